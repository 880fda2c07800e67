//! Clients that never finish a request or never read a response: other clients are served and memory stays bounded.
//!
//! Each test fills all connections with stalled clients and passes if another request is answered within
//! [`TIMEOUT`]. Without a rule for stalled clients the server would answer only after its timeouts: 30 s
//! for an unread response, 60 s for a body. The controls show that stalled clients hold connections.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tests::support::wait::wait_until;

use crate::server::{Server, shell};

const MAX_CONNECTIONS: usize = 64;
const CLIENTS: usize = 150;
const TIMEOUT: Duration = Duration::from_secs(20);
/// Far below the memory of a server that buffers the unread responses or unfinished bodies of all clients.
const MAX_GROWTH_BYTES: u64 = 96 << 20;

fn start() -> Server {
    Server::start_with(&["--max-connections", &MAX_CONNECTIONS.to_string()])
}

/// Opens `count` connections and sends `request` on each. The server closes the oldest ones when all
/// connections are taken.
fn stall(server: &Server, count: usize, request: &[u8]) -> Vec<TcpStream> {
    let send = |mut stream: TcpStream| {
        let _ = stream.write_all(request);
        stream
    };
    (0..count).map(|_| send(server.connect())).collect()
}

/// Checks that a request on a new connection, which needs a handler and the record, is answered.
fn assert_served(server: &Server) {
    let mut stream = server.connect();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let token = &server.token;
    write!(stream, "GET /api/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n").unwrap();
    assert_eq!(read_status(&mut stream), "HTTP/1.1 200");
}

fn read_status(stream: &mut TcpStream) -> String {
    let mut status = [0; 12];
    match stream.read_exact(&mut status) {
        Ok(()) => String::from_utf8_lossy(&status).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns `true` if the connection is open and the server has sent nothing on it.
fn is_held(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let held = stream.peek(&mut [0; 1]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    held
}

fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Waits until a handler expects the request body: hyper sends this line when the body is first read.
fn wait_for_continue(stream: &mut TcpStream) {
    const LINE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut line = vec![0; LINE.len()];
    stream.read_exact(&mut line).unwrap();
    assert_eq!(line, LINE);
}

/// Sends requests whose body lacks its last byte. The newest client can still finish its own.
fn assert_unfinished_body_does_not_block_others(server: &Server, heads: &[String], body: &str, status: &str) {
    let before = resident_bytes(server);
    let mut stalled = Vec::new();
    for head in heads {
        let head = format!("{head}Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
        for _ in 0..CLIENTS / heads.len() {
            let mut stream = server.connect();
            stream.write_all(head.as_bytes()).unwrap();
            // Until all connections are taken: each client waits until the server expects its body.
            if stalled.len() < MAX_CONNECTIONS {
                wait_for_continue(&mut stream);
                stream.write_all(&body.as_bytes()[..body.len() - 1]).unwrap();
            }
            stalled.push(stream);
        }
    }
    assert_served(server);
    for newest in stalled.iter_mut().rev().take(MAX_CONNECTIONS / 4) {
        wait_for_continue(newest);
        assert!(is_held(newest), "control: a stalled client holds no connection");
    }
    let mut newest = stalled.pop().unwrap();
    newest.write_all(body.as_bytes()).unwrap();
    assert_eq!(read_status(&mut newest), status);
    let grown = resident_bytes(server).saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
}

#[test]
fn unfinished_login_does_not_block_others() {
    let head = "POST /api/login HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    assert_unfinished_body_does_not_block_others(&start(), &[head], r#"{"token":"x"}"#, "HTTP/1.1 401");
}

/// With five users, because one user may have at most half of the connections.
#[test]
fn unfinished_exec_does_not_block_others() {
    let server = start();
    let heads = ["a", "b", "c", "d", "e"].map(|user| {
        let token = server.make_token(&["--role", "agent", "--user", user, "--agent", "a"]);
        format!(
            "POST /sandbox/execs HTTP/1.1\r\nHost: localhost\r\nPrefer: respond-async\r\nAuthorization: Bearer {token}\r\n"
        )
    });
    assert_unfinished_body_does_not_block_others(&server, &heads, &shell("true").to_string(), "HTTP/1.1 202");
}

#[test]
fn unfinished_head_does_not_block_others() {
    let server = start();
    let before = resident_bytes(&server);
    let mut head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
    head.resize(60_000, b'x');
    let stalled = stall(&server, CLIENTS, &head);
    assert_served(&server);
    assert!(stalled.last().is_some_and(is_held), "control: the newest client holds no connection");
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
}

#[test]
fn head_above_64_kib_is_refused() {
    let server = start();
    let get = |length: usize| {
        let mut stream = server.connect();
        let head = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(length));
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(head.as_bytes());
        read_status(&mut stream)
    };
    assert_eq!(get(32 << 10), "HTTP/1.1 200");
    assert_ne!(get(256 << 10), "HTTP/1.1 200");
}

#[test]
fn login_above_4_kib_is_refused() {
    let server = start();
    let body = json!({ "token": "x".repeat(5000) });
    let refused = server.ask_with("POST", "/api/login", &[], Some(&body)).expect(413);
    assert_eq!(refused["error"]["code"], "BODY_TOO_LARGE");
}

/// The number of the server's connections with bytes that the kernel could not send yet (`/proc/net/tcp`).
fn unread_connections(server: &Server) -> usize {
    let port = server.address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let suffix = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let is_unread = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[1].ends_with(&suffix) && !fields[4].starts_with("00000000:")
    };
    table.lines().skip(1).filter(is_unread).count()
}

fn wait_until_unread(server: &Server, count: usize) {
    wait_until("the responses of all clients to be unread", || unread_connections(server) >= count);
}

/// Each client requests 40 MB of responses without a token. The kernel buffers only a few of them.
#[test]
fn unread_responses_do_not_block_others() {
    let server = start();
    let before = resident_bytes(&server);
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(300);
    let stalled = stall(&server, MAX_CONNECTIONS, &request);
    wait_until_unread(&server, MAX_CONNECTIONS);
    assert_served(&server);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
    drop(stalled);
}

/// 24 clients take all 24 connections with event streams of 60 MB each.
#[test]
fn unread_event_streams_do_not_block_others() {
    const READERS: usize = 24;
    const OF_ONE_TOKEN: usize = READERS / 4;
    let server = Server::start_with(&["--max-connections", &READERS.to_string()]);
    let raise = json!({ "sandbox": { "limits": { "max_stdout_bytes": 10 << 20 } } });
    assert_eq!(server.ask("PUT", "/settings", Some(&raise)).status, 200);
    // In JSON each byte takes six bytes: `\u0001`.
    let exec = server.shell(r"head -c 10485760 /dev/zero | tr '\0' '\1'");
    let path = format!("/sandbox/execs/{}/events", exec["exec_id"].as_str().unwrap());
    let tokens: Vec<_> = (0..READERS / OF_ONE_TOKEN).map(|_| server.make_token(&["--role", "operator"])).collect();
    let before = resident_bytes(&server);
    let mut stalled = Vec::new();
    for token in tokens {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        for _ in 0..OF_ONE_TOKEN {
            let mut reader = server.connect();
            reader.write_all(request.as_bytes()).unwrap();
            assert_eq!(read_status(&mut reader), "HTTP/1.1 200");
            stalled.push(reader);
        }
    }
    wait_until_unread(&server, READERS);
    assert_served(&server);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
}

/// Two terminals with endless output that is not read take both connections.
#[test]
fn unread_terminals_do_not_block_others() {
    let server = Server::start_with(&["--max-connections", "2"]);
    let tokens = [(); 2].map(|()| server.make_token(&["--role", "operator"]));
    let before = resident_bytes(&server);
    let open = |(index, token): (usize, &String)| {
        let mut terminal = server.connect();
        write!(
            terminal,
            "GET /api/sessions/s{index}/pty?command=yes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        .unwrap();
        assert_eq!(read_status(&mut terminal), "HTTP/1.1 101");
        terminal
    };
    let _terminals: Vec<_> = tokens.iter().enumerate().map(open).collect();
    wait_until_unread(&server, 2);
    assert_served(&server);
    let grown = resident_bytes(&server).saturating_sub(before);
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
}

/// One user's waiting requests may take half of the connections. Further ones are refused with 429.
#[test]
fn waiting_execs_of_one_user_do_not_block_others() {
    let server = Server::start_with(&["--max-connections", "8"]);
    let token = server.make_token(&["--role", "agent", "--user", "ann", "--agent", "a"]);
    let body = shell("sleep 600").to_string();
    let request = format!(
        "POST /sandbox/execs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut waiting = stall(&server, 4, request.as_bytes());
    let has_begun = || server.ask("GET", "/sandbox/execs", None).expect(200).as_array().unwrap().len() == 4;
    wait_until("four execs", has_begun);
    waiting.extend(stall(&server, 4, request.as_bytes()));
    for refused in &mut waiting[4..] {
        assert_eq!(read_status(refused), "HTTP/1.1 429");
    }
    assert!(waiting[..4].iter().all(is_held), "control: the first four do not wait");
    assert_served(&server);
}

/// The number of bytes that clients have sent and the server has not read yet (`/proc/net/tcp`).
fn bytes_on_the_way(server: &Server) -> u64 {
    let port = server.address.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let suffix = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let waiting = table.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (sent, received) = fields[4].split_once(':').unwrap();
        match (fields[1].ends_with(&suffix), fields[2].ends_with(&suffix)) {
            (true, _) => u64::from_str_radix(received, 16).unwrap(),
            (false, true) => u64::from_str_radix(sent, 16).unwrap(),
            (false, false) => 0,
        }
    });
    waiting.sum()
}

/// 32 bodies of 8 MiB, each without its last byte, would take all memory for large bodies. One user may take
/// a quarter of it.
#[test]
fn unfinished_bodies_of_one_user_leave_memory_for_others() {
    const BODY: usize = 8 << 20;
    let server = Server::start();
    let [ann, bob] = ["ann", "bob"].map(|user| server.make_token(&["--role", "user", "--user", user]));
    let send = |token: &str, length: usize, body: &[u8]| {
        let mut stream = server.connect();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let head = format!(
            "POST /sandbox/execs HTTP/1.1\r\nHost: localhost\r\nPrefer: respond-async\r\nAuthorization: Bearer {token}\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The server closes a connection whose body it refuses.
        let _ = stream.write_all(body);
        stream
    };
    let mut unfinished = shell("true").to_string().into_bytes();
    unfinished.resize(BODY - 1, b' ');
    let held: Vec<TcpStream> = (0..32).map(|_| send(&ann, BODY, &unfinished)).collect();
    wait_until("the server to read all bodies", || bytes_on_the_way(&server) == 0);
    // The server reads the rest of a refused body for up to 5 s before it answers.
    wait_until("a quarter of the bodies to be held", || held.iter().filter(|stream| is_held(stream)).count() == 8);
    // Larger than the bodies that need none of this memory.
    let finished = &unfinished[..100_000];
    assert_eq!(read_status(&mut send(&bob, finished.len(), finished)), "HTTP/1.1 202");
    assert_eq!(read_status(&mut send(&ann, finished.len(), finished)), "HTTP/1.1 429", "control");
    drop(held);
    wait_until("the memory to be free", || read_status(&mut send(&ann, finished.len(), finished)) == "HTTP/1.1 202");
}
