//! The ways in which an exec ends, and requests that are the same request.

use std::thread;

use serde_json::{Value, json};

use crate::server::{Server, shell};

#[test]
fn time_and_memory_end_an_exec() {
    let server = Server::start();
    let mut slow = shell("sleep 600");
    slow["policy_overrides"] = json!({ "timeout_ms": 300 });
    let slow = server.ask("POST", "/sandbox/execs", Some(&slow)).expect(200);
    assert_eq!(
        (&slow["status"], &slow["exit_code"], &slow["error_reason"]["code"]),
        (&json!("TIMEOUT"), &Value::Null, &json!("TIMEOUT"))
    );
    let mut loud = shell("head -c 3000 /dev/zero | tr '\\0' x; echo done >&2");
    loud["policy_overrides"] = json!({ "max_stdout_bytes": 1000 });
    let loud = server.ask("POST", "/sandbox/execs", Some(&loud)).expect(200);
    assert_eq!(
        (&loud["status"], &loud["stdout_truncated"], &loud["stderr_truncated"]),
        (&json!("SUCCEEDED"), &json!(true), &json!(false))
    );
}

#[test]
fn an_asynchronous_exec_is_cancelled_once() {
    let server = Server::start();
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    let path = format!("/sandbox/execs/{id}");
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "RUNNING");
    assert_eq!(server.ask("DELETE", &path, None).expect(202)["status"], "CANCELLED");
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "CANCELLED");
    server.ask("DELETE", &path, None).refused(409);
}

#[test]
fn a_key_makes_one_exec() {
    let server = Server::start();
    let authorization = format!("Bearer {}", server.token);
    let ask = |key: &str, script: &str| {
        let headers = [("authorization", authorization.as_str()), ("idempotency-key", key)];
        server.ask_with("POST", "/sandbox/execs", &headers, Some(&shell(script)))
    };
    let count = "echo x >> runs; wc -l < runs";
    let ids: Vec<Value> = thread::scope(|scope| {
        let both = [scope.spawn(|| ask("k", count)), scope.spawn(|| ask("k", count))];
        both.map(|one| one.join().unwrap().expect(200)["exec_id"].clone()).into()
    });
    assert_eq!(ids[0], ids[1]);
    let other = ask("l", count).expect(200)["exec_id"].as_str().unwrap().to_owned();
    let output = server.ask("GET", &format!("/sandbox/execs/{other}/stdout"), None).expect(200);
    assert_eq!(output["content"], "2\n", "the first key ran more than once");
    ask("k", "echo different").refused(409);
}
