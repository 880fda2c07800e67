//! Open approvals of a server that is killed or stopped.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;

use crate::fixture::{Fixture, allow_once};
use crate::server::Server;

#[test]
fn approval_of_killed_server_is_expired_after_restart() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let exec = fixture.submit_command("s", &fixture.blocked_command());
    let question = socket.next();
    fixture.server.signal(Signal::KILL);
    assert_eq!(socket.read(), None);
    let server = Arc::into_inner(fixture.server).unwrap();
    let fixture = Fixture::with_server(Server::start_in(server.leave(), &[]));
    let approval = fixture.approval(&question);
    assert_eq!((&approval["status"], &approval["reason"]), (&json!("expired"), &json!("the server was restarted")));
    assert_eq!(fixture.answer(&question, &allow_once()).status, 410);
    assert_eq!(fixture.server.exec(&exec)["status"], "LOST");
    let mut late = fixture.open_socket("s");
    late.assert_silent();
}

#[test]
fn stopping_server_expires_approvals_and_closes_sockets() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let exec = fixture.submit_command("s", &fixture.blocked_command());
    let question = socket.next();
    fixture.server.signal(Signal::TERM);
    let resolved = socket.next();
    assert_eq!((&resolved["type"], &resolved["requestId"]), (&json!("permission_resolved"), &question["requestId"]));
    assert_eq!((&resolved["status"], &resolved["reason"]), (&json!("expired"), &json!("the server was stopped")));
    assert_eq!(socket.read(), None);
    let mut server = Arc::into_inner(fixture.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    let fixture = Fixture::with_server(Server::start_in(server.leave(), &[]));
    let approval = fixture.approval(&question);
    assert_eq!((&approval["status"], &approval["reason"]), (&json!("expired"), &json!("the server was stopped")));
    let ended = fixture.server.exec(&exec);
    assert_eq!((&ended["status"], &ended["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
}
