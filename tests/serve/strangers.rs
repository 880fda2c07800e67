//! Connections that say nothing, and callers who follow much: nobody is kept out by them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Server, shell};

const ASK: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Less than idle connections get where there is room.
const SOON: Duration = Duration::from_secs(20);

/// Asks on a connection that is already there, and says how the answer begins.
fn ask(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut answer = [0; 12];
    match stream.write_all(ASK).and_then(|()| stream.read_exact(&mut answer)) {
        Ok(()) => String::from_utf8_lossy(&answer).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn idle_strangers_keep_nobody_out() {
    let server = Server::start_with(&["--max-connections", "16"]);
    let mut strangers: Vec<TcpStream> = (0..100).map(|_| server.connect()).collect();
    // Half a head is no request either.
    for stranger in &mut strangers {
        // The first of them are closed by now.
        let _ = stranger.write_all(&ASK[..20]);
    }
    let mut caller = server.connect();
    assert_eq!(ask(&mut caller), "HTTP/1.1 200");
    let mut youngest = strangers.pop().unwrap();
    youngest.set_read_timeout(Some(SOON)).unwrap();
    youngest.write_all(&ASK[20..]).unwrap();
    let mut answer = [0; 12];
    youngest.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200", "no more are closed than there is need");
    let mut oldest = strangers.swap_remove(0);
    assert_eq!(oldest.read(&mut answer).unwrap_or(0), 0, "the oldest still has its place");
}

#[test]
fn the_busy_are_not_sent_away() {
    let server = Server::start_with(&["--max-connections", "1"]);
    let id = server.begin("echo held; until [ -e go ]; do sleep 0.01; done");
    let authorization = format!("Bearer {}", server.token);
    let events = server.send("GET", &format!("/sandbox/execs/{id}/events"), &[("authorization", &authorization)], None);
    let mut next = server.connect();
    next.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    std::fs::write(server.data().join("workspaces/default/default/projects/p/work/go"), "").unwrap();
    let told = events.into_body().read_to_string().unwrap();
    assert!(told.contains("event: end"), "{told}");
    let mut answer = String::new();
    next.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn nobody_follows_without_end() {
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
    assert_eq!(server.ask_as(&ann, "GET", &of_ann, None).status, 200, "only what lasts is counted");
    assert_eq!(follow(&bob, &of_bob).status().as_u16(), 200, "another's are not counted");
    drop(first);
    let begun = Instant::now();
    while follow(&ann, &of_ann).status().as_u16() != 200 {
        assert!(begun.elapsed() < SOON, "one that is closed is still counted");
        thread::yield_now();
    }
    drop(second);
    for (token, exec) in [(&ann, &of_ann), (&bob, &of_bob)] {
        assert_eq!(server.ask_as(token, "DELETE", exec, None).status, 202);
    }
}
