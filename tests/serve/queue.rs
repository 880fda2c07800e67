//! The exec queue.

use serde_json::json;

use crate::server::{Server, shell};

#[test]
fn full_queue_returns_429() {
    let server = Server::start();
    let patch = json!({ "sandbox": { "max_concurrent_execs": 1, "max_queued_execs": 1 } });
    server.ask("PUT", "/settings", Some(&patch)).expect(200);
    let running = server.begin("echo begun; sleep 600");
    server.wait_for_output(&running);
    let queued = server.begin("echo second");
    assert_eq!(server.ask("GET", &format!("/sandbox/execs/{queued}"), None).expect(200)["status"], "QUEUED");
    let full = server.ask("POST", "/sandbox/execs", Some(&shell("true")));
    assert!(full.headers.contains_key("retry-after"));
    assert_eq!(full.refused(429), "QUEUE_FULL");
    server.ask("DELETE", &format!("/sandbox/execs/{running}"), None).expect(202);
    server.wait_for_output(&queued);
}
