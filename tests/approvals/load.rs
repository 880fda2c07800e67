//! 1000 idle WebSockets, 1000 followers of execs and 200 open questions, while other callers are
//! served.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Error, Message};

use crate::fixture::{FILE_CONTENT, Fixture, allow_once};
use crate::server::Server;
use crate::socket::Socket;

const SOCKETS: usize = 1000;
const OPEN: usize = 200;
const FOLLOWERS: usize = 1000;
/// Comparisons with an idle server. One that is close suffices: the load is present in each, that
/// of other programs is not.
const ROUNDS: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Streams per caller; the limit is 256.
const STREAMS_PER_CALLER: usize = 250;

#[test]
fn command_among_a_thousand_idle_sockets_is_served() {
    // No approval expires before the end of the test.
    let fixture = Fixture::start_with_env(&[("RINGWALL_APPROVALS_TIMEOUT_S", "3600")]);
    let server = &fixture.server;
    let idle_server = Server::start();
    let idle = IdleSockets::start();
    (0..SOCKETS).for_each(|number| idle.add(fixture.open_socket(&format!("idle-{number}"))));
    let all = messages(Socket::open(server, "/ws/approvals", &server.token));
    let next = || all.recv_timeout(TIMEOUT).unwrap();
    let execs: Vec<String> = (0..OPEN)
        .map(|number| fixture.submit_command("crowd", &format!("cat {}/{number}", fixture.blocked_directory())))
        .collect();
    let mut ids: Vec<_> = (0..OPEN).map(|_| next()["exec_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    let mut expected = execs.clone();
    expected.sort();
    assert_eq!(ids, expected, "each approval is announced once");
    let (followed, followers) = follow(&fixture);
    (0..FOLLOWERS / STREAMS_PER_CALLER).for_each(|_| drop(next()));
    assert_eq!(server.shell("echo served")["status"], "SUCCEEDED");
    let mut waits = Vec::new();
    while waits.len() < ROUNDS && !waits.last().is_some_and(is_close) {
        waits.push(compare_waits(server, &idle_server));
    }
    assert!(waits.last().is_some_and(is_close), "under load and idle: {waits:?}");
    let run = fixture.spawn_command("one", &fixture.blocked_command());
    let question = next();
    fixture.answer(&question, &allow_once()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], FILE_CONTENT);
    let page = server.ask("GET", "/api/approvals?status=pending&limit=150", None).expect(200);
    assert_eq!(page["approvals"].as_array().unwrap().len(), 150);
    let cursor = page["next_cursor"].as_str().unwrap();
    let second_page =
        server.ask("GET", &format!("/api/approvals?status=pending&limit=150&cursor={cursor}"), None).expect(200);
    let more = FOLLOWERS / STREAMS_PER_CALLER;
    assert_eq!(
        (second_page["approvals"].as_array().unwrap().len(), &second_page["next_cursor"]),
        (50 + more, &json!(null))
    );
    for mut socket in idle.stop() {
        socket.assert_silent();
    }
    // Each follower sees the end of its exec.
    for exec in followed {
        server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }
    for mut follower in followers {
        read_until(&mut follower, "event: end");
    }
}

/// Keeps sockets open. The server closes a socket that does not answer its ping, which it sends
/// every 20 seconds.
struct IdleSockets {
    sockets: Arc<Mutex<Vec<Socket>>>,
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<()>,
}

impl IdleSockets {
    fn start() -> Self {
        let (sockets, is_over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (watched, ended) = (sockets.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                watched.lock().unwrap().iter_mut().for_each(answer_pings);
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        Self { sockets, is_over, thread }
    }

    fn add(&self, socket: Socket) {
        socket.0.get_ref().set_nonblocking(true).unwrap();
        self.sockets.lock().unwrap().push(socket);
    }

    fn stop(self) -> Vec<Socket> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
        let sockets = std::mem::take(&mut *self.sockets.lock().unwrap());
        sockets.iter().for_each(|socket| socket.0.get_ref().set_nonblocking(false).unwrap());
        sockets
    }
}

fn answer_pings(socket: &mut Socket) {
    loop {
        match socket.0.read() {
            // The next read sends the pong.
            Ok(Message::Ping(_)) => {}
            Err(Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => return,
            other => panic!("an idle socket got {other:?}"),
        }
    }
}

/// Reads a socket on its own thread, so that pings are answered while the test does something else.
fn messages(mut socket: Socket) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Some(message) = socket.read() {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The median time of a command on each server. The commands alternate, so that other load of the
/// machine slows both.
fn compare_waits(loaded: &Server, idle_server: &Server) -> (Duration, Duration) {
    let mut waits = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (server, waits) in [loaded, idle_server].into_iter().zip(&mut waits) {
            let begun = Instant::now();
            assert_eq!(server.shell("true")["status"], "SUCCEEDED");
            waits.push(begun.elapsed());
        }
    }
    let [loaded, idle_server] = waits.map(|mut waits| {
        waits.sort();
        waits[waits.len() / 2]
    });
    (loaded, idle_server)
}

fn is_close((loaded, idle_server): &(Duration, Duration)) -> bool {
    *loaded <= *idle_server * 3 + Duration::from_millis(50)
}

/// Execs that wait for an approval, each with [`STREAMS_PER_CALLER`] followers of its user.
fn follow(fixture: &Fixture) -> (Vec<String>, Vec<BufReader<TcpStream>>) {
    let mut execs = Vec::new();
    let mut followers = Vec::new();
    for number in 0..FOLLOWERS / STREAMS_PER_CALLER {
        let token = fixture.server.make_token(&["--role", "user", "--user", &format!("follower-{number}")]);
        let exec = fixture.submit_command_as(&token, "followed", &fixture.blocked_command());
        for _ in 0..STREAMS_PER_CALLER {
            let mut stream = fixture.server.connect();
            let head = format!("GET /sandbox/execs/{exec}/events HTTP/1.1\r\nhost: {}\r\n", fixture.server.address);
            write!(stream, "{head}authorization: Bearer {token}\r\n\r\n").unwrap();
            let mut reader = BufReader::new(stream);
            read_until(&mut reader, "event: status");
            followers.push(reader);
        }
        execs.push(exec);
    }
    (execs, followers)
}

fn read_until(reader: &mut BufReader<TcpStream>, wanted: &str) {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the stream ended before {wanted}");
    }
}
