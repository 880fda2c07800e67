//! Two servers with the same data directory.

use crate::server::Server;

#[test]
fn second_server_on_a_data_directory_is_refused() {
    let server = Server::start();
    let second = crate::server::command(server.data()).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert!(!second.status.success());
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}
