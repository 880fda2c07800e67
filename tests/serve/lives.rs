//! A server beside another, and one after another.

use crate::server::Server;

#[test]
fn two_servers_do_not_share_a_directory() {
    let server = Server::start();
    let second = crate::server::command(server.data()).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert!(!second.status.success());
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}
