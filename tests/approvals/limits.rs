//! Clients that send too much or do not read, and an agent that opens too many approvals.

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::json;
use tungstenite::Message;

use crate::fixture::{Fixture, deny};
use crate::socket::Socket;

/// Resident memory of the server in KiB.
fn memory(fixture: &Fixture) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn oversized_message_closes_socket_without_using_memory() {
    let fixture = Fixture::start();
    let before = memory(&fixture);
    let mut announced = fixture.open_socket("s");
    // The head of a frame of 1 GiB whose payload is never sent: opcode text, masked, a 64-bit
    // length, the mask.
    let head = [&[0x81, 0xff][..], &(1_u64 << 30).to_be_bytes(), &[0; 4]].concat();
    announced.0.get_mut().write_all(&head).unwrap();
    announced.set_timeout(Duration::from_secs(30));
    assert_eq!(announced.read(), None);
    let mut large = fixture.open_socket("s");
    let _ = large.0.send(Message::text("x".repeat(65 << 10)));
    assert_eq!(large.read(), None);
    // The limit also counts for the sum of fragments.
    let mut fragmented = fixture.open_socket("s");
    let fragment = |opcode: u8| [&[opcode, 0xfe][..], &60_000_u16.to_be_bytes(), &[0; 4], &vec![b'x'; 60_000]].concat();
    let _ = fragmented.0.get_mut().write_all(&[fragment(0x01), fragment(0x00), fragment(0x00)].concat());
    assert_eq!(fragmented.read(), None);
    assert!(memory(&fixture) < before + (64 << 10), "{before} KiB became {} KiB", memory(&fixture));
    let mut others = fixture.open_socket("s");
    others.assert_silent();
}

#[test]
fn client_that_does_not_read_is_disconnected_and_blocks_no_other() {
    let fixture = Fixture::start();
    let before = memory(&fixture);
    let slow = fixture.open_socket("s");
    assert!(is_established(&slow), "control");
    let mut reader = fixture.open_socket("s");
    // Each question contains its command of 100 kB, so the socket buffers of the slow client are
    // soon full.
    let padding = "x".repeat(100_000);
    for number in 0..150 {
        let run = fixture.submit_command("s", &format!("cat {}/{number} # {padding}", fixture.blocked_directory()));
        let question = reader.next();
        assert_eq!(question["exec_id"], json!(run));
        fixture.answer(&question, &deny("")).expect(200);
        assert_eq!(reader.next()["type"], "permission_resolved");
    }
    assert!(memory(&fixture) < before + (256 << 10), "{before} KiB became {} KiB", memory(&fixture));
    // The client cannot see that the server has closed the connection, because unread data comes
    // before the end of file.
    let deadline = Instant::now() + Duration::from_secs(60);
    while is_established(&slow) {
        assert!(Instant::now() < deadline, "the slow client is still connected");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// True while the kernel lists the connection as established.
fn is_established(socket: &Socket) -> bool {
    const ESTABLISHED: &str = "01";
    let port = format!(":{:04X}", socket.0.get_ref().local_addr().unwrap().port());
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.into_iter().any(|row| row[2].ends_with(&port) && row[3] == ESTABLISHED)
}

#[test]
fn open_approvals_of_one_user_are_limited() {
    // The first approval does not expire before the last one is opened.
    let fixture = Fixture::start_with_env(&[("RINGWALL_APPROVALS_TIMEOUT_S", "600")]);
    let agent = fixture.server.make_token(&["--role", "agent", "--user", "u", "--agent", "a"]);
    let body = |number: usize| json!({ "session_id": "s", "command": format!("cat {}/{number}", fixture.blocked_directory()), "wait": false });
    let mut last = json!(null);
    for number in 0..=512 {
        last = fixture.server.ask_as(&agent, "POST", "/api/sandbox/execute", Some(&body(number))).json();
    }
    let ended = fixture.wait_for_exec(last["exec_id"].as_str().unwrap());
    assert_eq!(ended["error_reason"]["code"], "TOO_MANY_APPROVALS", "{ended}");
    // The limit does not affect other users.
    let mut socket = fixture.open_socket("s");
    let run = fixture.spawn_command("s", &fixture.blocked_command());
    let question = loop {
        let question = socket.next();
        if question["user"] == "default" {
            break question;
        }
    };
    fixture.answer(&question, &deny("")).expect(200);
    run.join().unwrap();
}
