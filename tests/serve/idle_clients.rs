//! Idle connections and many event streams do not block other clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Server, shell};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Less than the 30 s after which the server closes an idle connection.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends a request on an open connection and returns the start of the response.
fn status_line(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut answer = [0; 12];
    match stream.write_all(REQUEST).and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) => String::from_utf8_lossy(&answer).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn idle_connections_do_not_block_clients() {
    let server = Server::start_with(&["--max-connections", "16"]);
    let mut idle: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    // An incomplete head does not count as a request.
    for connection in &mut idle {
        // The server has closed the oldest of them by now.
        let _ = connection.write_all(&REQUEST[..20]);
    }
    let mut client = server.connect();
    assert_eq!(status_line(&mut client), "HTTP/1.1 200");
    let mut newest = idle.pop().unwrap();
    newest.set_read_timeout(Some(TIMEOUT)).unwrap();
    newest.write_all(&REQUEST[20..]).unwrap();
    let mut answer = [0; 12];
    newest.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200", "the newest connection was closed");
    let mut oldest = idle.swap_remove(0);
    assert_eq!(oldest.read(&mut answer).unwrap_or(0), 0, "the oldest connection is still open");
}

#[test]
fn busy_connections_are_not_closed() {
    let server = Server::start_with(&["--max-connections", "1"]);
    let id = server.begin("echo held; until [ -e go ]; do sleep 0.01; done");
    let authorization = format!("Bearer {}", server.token);
    let events = server.send("GET", &format!("/sandbox/execs/{id}/events"), &[("authorization", &authorization)], None);
    let mut next = server.connect();
    next.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    std::fs::write(server.data().join("workspaces/default/default/projects/p/work/go"), "").unwrap();
    let events_text = events.into_body().read_to_string().unwrap();
    assert!(events_text.contains("event: end"), "{events_text}");
    let mut answer = String::new();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn event_streams_per_user_are_limited() {
    let server = Server::start_with(&["--max-connections", "8"]);
    let (ann, bob) = (
        server.make_token(&["--role", "agent", "--user", "ann", "--agent", "a"]),
        server.make_token(&["--role", "user", "--user", "bob"]),
    );
    let begin = |token: &str| {
        let authorization = format!("Bearer {token}");
        let headers = [("authorization", authorization.as_str()), ("prefer", "respond-async")];
        let exec = server.ask_with("POST", "/sandbox/execs", &headers, Some(&shell("sleep 600"))).expect(202);
        format!("/sandbox/execs/{}", exec["exec_id"].as_str().unwrap())
    };
    let follow = |token: &str, exec: &str| {
        let authorization = format!("Bearer {token}");
        server.send("GET", &format!("{exec}/events"), &[("authorization", &authorization)], None)
    };
    let (of_ann, of_bob) = (begin(&ann), begin(&bob));
    let first = follow(&ann, &of_ann);
    let second = follow(&ann, &of_ann);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    let refused = server.ask_as(&ann, "GET", &format!("{of_ann}/events"), None);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(refused.refused(429), "TOO_MANY_STREAMS");
    assert_eq!(server.ask_as(&ann, "GET", &of_ann, None).status, 200, "an ordinary request was counted");
    assert_eq!(follow(&bob, &of_bob).status().as_u16(), 200, "another user's streams were counted");
    drop(first);
    let begun = Instant::now();
    while follow(&ann, &of_ann).status().as_u16() != 200 {
        assert!(begun.elapsed() < TIMEOUT, "a closed stream is still counted");
        thread::yield_now();
    }
    drop(second);
    for (token, exec) in [(&ann, &of_ann), (&bob, &of_bob)] {
        assert_eq!(server.ask_as(token, "DELETE", exec, None).status, 202);
    }
}
