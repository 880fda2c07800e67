//! Clients that send too much, or do not read.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;
use tungstenite::Message;

use crate::site::{Site, deny};
use crate::socket::Socket;

/// Of the server's process, in KiB.
fn memory(site: &Site) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_frame_that_is_too_large_ends_the_socket_and_takes_no_memory() {
    let site = Site::start();
    let before = memory(&site);
    let mut announced = site.follow("s");
    // A frame of a gigabyte, of which nothing comes: opcode text, masked, a length of 64 bits, the mask.
    let head = [&[0x81, 0xff][..], &(1_u64 << 30).to_be_bytes(), &[0; 4]].concat();
    announced.0.get_mut().write_all(&head).unwrap();
    announced.set_patience(Duration::from_secs(30));
    assert_eq!(announced.read(), None);
    let mut large = site.follow("s");
    let _ = large.0.send(Message::text("x".repeat(65 << 10)));
    assert_eq!(large.read(), None);
    // In pieces it is no smaller.
    let mut pieces = site.follow("s");
    let piece = |opcode: u8| [&[opcode, 0xfe][..], &60_000_u16.to_be_bytes(), &[0; 4], &vec![b'x'; 60_000]].concat();
    let _ = pieces.0.get_mut().write_all(&[piece(0x01), piece(0x00), piece(0x00)].concat());
    assert_eq!(pieces.read(), None);
    assert!(memory(&site) < before + (64 << 10), "{before} KiB became {} KiB", memory(&site));
    let mut others = site.follow("s");
    others.assert_silent();
}

#[test]
fn whoever_does_not_read_is_left_behind_and_holds_nobody_up() {
    let site = Site::start();
    let before = memory(&site);
    let slow = site.follow("s");
    assert!(is_held(&slow), "the control");
    let mut reader = site.follow("s");
    // Each question carries its command, so that the slow one's connection is full long before the last.
    let padding = "x".repeat(100_000);
    for number in 0..150 {
        let run = site.begin(&site.server.token, "s", &format!("cat {}/{number} # {padding}", site.directory()));
        let asked = reader.next();
        assert_eq!(asked["exec_id"], json!(run));
        site.answer(&site.server.token, &asked["requestId"], &deny("")).expect(200);
        assert_eq!(reader.next()["type"], "permission_resolved");
    }
    assert!(memory(&site) < before + (256 << 10), "{before} KiB became {} KiB", memory(&site));
    // The server has hung up on it, which only the kernel can say: behind all that it never read, nothing comes through.
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_held(&slow) {
        assert!(Instant::now() < deadline, "it is still connected");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whether the other end of a connection is still open, by the kernel's own table.
fn is_held(socket: &Socket) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{:04X}", socket.0.get_ref().local_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.into_iter().any(|row| row[2].ends_with(&port) && row[3] == ESTABLISHED)
}

#[test]
fn no_agent_asks_without_end() {
    // None of the questions is over before the last one, however slow the machine is.
    let site = Site::start_under(&[("RINGWALL_APPROVALS_TIMEOUT_S", "600")]);
    let agent = site.server.make_token(&["--role", "agent", "--user", "u", "--agent", "a"]);
    let body = |number: usize| json!({ "session_id": "s", "command": format!("cat {}/{number}", site.directory()), "wait": false });
    let mut last = json!(null);
    for number in 0..=512 {
        last = site.server.ask_as(&agent, "POST", "/api/sandbox/execute", Some(&body(number))).json();
    }
    let ended = site.ended(&last["exec_id"]);
    assert_eq!(ended["error_reason"]["code"], "TOO_MANY_APPROVALS", "{ended}");
    // Others are asked all the same.
    let mut socket = site.follow("s");
    let run = site.run(&site.server.token, "s", &site.command());
    let asked = loop {
        let asked = socket.next();
        if asked["user"] == "default" {
            break asked;
        }
    };
    site.answer(&site.server.token, &asked["requestId"], &deny("")).expect(200);
    run.join().unwrap();
}
