//! Invalid requests for an exec's events. The `contract` suite tests valid ones.

use crate::server::Server;

#[test]
fn malformed_event_requests_are_refused() {
    let server = Server::start();
    let id = server.shell("true")["exec_id"].as_str().unwrap().to_owned();
    let path = format!("/sandbox/execs/{id}/events");
    assert_eq!(server.ask("GET", &format!("{path}?encoding=rot13"), None).refused(400), "INVALID_ARGUMENT");
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str()), ("last-event-id", "o1")];
    assert_eq!(server.ask_with("GET", &path, &headers, None).refused(400), "INVALID_ARGUMENT");
}
