//! What is open when a server is killed or asked to stop.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;

use crate::server::Server;
use crate::site::{Site, allow};

#[test]
fn what_a_killed_server_left_is_never_approved() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let exec = site.begin(&site.server.token, "s", &site.command());
    let asked = socket.next();
    site.server.signal(Signal::KILL);
    assert_eq!(socket.read(), None);
    let server = Arc::into_inner(site.server).unwrap();
    let site = Site::of(Server::start_in(server.leave(), &[]));
    let approval = site.approval(&asked["requestId"]);
    assert_eq!((&approval["status"], &approval["reason"]), (&json!("expired"), &json!("the server was restarted")));
    assert_eq!(site.answer(&site.server.token, &asked["requestId"], &allow()).status, 410);
    assert_eq!(site.server.exec(&exec)["status"], "LOST");
    let mut late = site.follow("s");
    late.assert_silent();
}

#[test]
fn a_server_that_stops_ends_what_waits_and_says_goodbye() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let exec = site.begin(&site.server.token, "s", &site.command());
    let asked = socket.next();
    site.server.signal(Signal::TERM);
    let resolved = socket.next();
    assert_eq!((&resolved["type"], &resolved["requestId"]), (&json!("permission_resolved"), &asked["requestId"]));
    assert_eq!((&resolved["status"], &resolved["reason"]), (&json!("expired"), &json!("the server was stopped")));
    assert_eq!(socket.read(), None);
    let mut server = Arc::into_inner(site.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    let site = Site::of(Server::start_in(server.leave(), &[]));
    let approval = site.approval(&asked["requestId"]);
    assert_eq!((&approval["status"], &approval["reason"]), (&json!("expired"), &json!("the server was stopped")));
    let ended = site.server.exec(&exec);
    assert_eq!((&ended["status"], &ended["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
}
