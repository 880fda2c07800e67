//! Many sockets that say nothing and many questions that nobody answers, while others are served.

use serde_json::json;

use crate::site::{Site, TEXT, allow};
use crate::socket::Socket;

const SOCKETS: usize = 1000;
const OPEN: usize = 200;

#[test]
fn a_thousand_sockets_and_two_hundred_questions_keep_nobody_waiting() {
    let site = Site::start();
    let server = &site.server;
    let sockets: Vec<Socket> = (0..SOCKETS).map(|number| site.follow(&format!("idle-{number}"))).collect();
    let mut all = Socket::open(server, "/ws/approvals", &server.token);
    let execs: Vec<String> = (0..OPEN)
        .map(|number| site.begin(&server.token, "crowd", &format!("cat {}/{number}", site.directory())))
        .collect();
    let mut ids: Vec<_> = (0..OPEN).map(|_| all.next()["exec_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    let mut expected = execs.clone();
    expected.sort();
    assert_eq!(ids, expected, "each is announced once");
    // Boxes run, and the newest question is answered, while all of that is there.
    assert_eq!(server.shell("echo served")["status"], "SUCCEEDED");
    let run = site.run(&server.token, "one", &site.command());
    let asked = all.next();
    site.answer(&server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let page = server.ask("GET", "/api/approvals?status=pending&limit=150", None).expect(200);
    assert_eq!(page["approvals"].as_array().unwrap().len(), 150);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = server.ask("GET", &format!("/api/approvals?status=pending&limit=150&cursor={cursor}"), None).expect(200);
    assert_eq!((rest["approvals"].as_array().unwrap().len(), &rest["next_cursor"]), (50, &json!(null)));
    // The idle ones are still there, each of them.
    for mut socket in sockets {
        socket.assert_silent();
    }
}
