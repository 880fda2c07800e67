//! 1000 idle WebSockets, 1000 followers of execs and 200 open questions, while other callers are served.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Error, Message};

use crate::server::Server;
use crate::site::{Site, TEXT, allow};
use crate::socket::Socket;

const SOCKETS: usize = 1000;
const OPEN: usize = 200;
const FOLLOWERS: usize = 1000;
/// Comparisons with a server that has no crowd. The crowd's own cost is in each of them; the cost of other programs is not.
const ROUNDS: usize = 20;
const TIMEOUT: Duration = Duration::from_secs(120);
/// One caller may have so many streams.
const OF_ONE: usize = 250;

#[test]
fn command_among_a_thousand_idle_sockets_is_served() {
    // No question expires before the end of the test, however slow the machine is.
    let site = Site::start_under(&[("RINGWALL_APPROVALS_TIMEOUT_S", "3600")]);
    let server = &site.server;
    let quiet = Server::start();
    let idle = IdleSockets::start();
    (0..SOCKETS).for_each(|number| idle.add(site.follow(&format!("idle-{number}"))));
    let all = messages(Socket::open(server, "/ws/approvals", &server.token));
    let next = || all.recv_timeout(TIMEOUT).unwrap();
    let execs: Vec<String> = (0..OPEN)
        .map(|number| site.begin(&server.token, "crowd", &format!("cat {}/{number}", site.directory())))
        .collect();
    let mut ids: Vec<_> = (0..OPEN).map(|_| next()["exec_id"].as_str().unwrap().to_owned()).collect();
    ids.sort();
    let mut expected = execs.clone();
    expected.sort();
    assert_eq!(ids, expected, "each is announced once");
    let (followed, followers) = follow(&site);
    (0..FOLLOWERS / OF_ONE).for_each(|_| drop(next()));
    assert_eq!(server.shell("echo served")["status"], "SUCCEEDED");
    let mut waits = Vec::new();
    while waits.len() < ROUNDS && !waits.last().is_some_and(is_close) {
        waits.push(compare_waits(server, &quiet));
    }
    assert!(waits.last().is_some_and(is_close), "in the crowd and alone: {waits:?}");
    let run = site.run(&server.token, "one", &site.command());
    let asked = next();
    site.answer(&server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let page = server.ask("GET", "/api/approvals?status=pending&limit=150", None).expect(200);
    assert_eq!(page["approvals"].as_array().unwrap().len(), 150);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = server.ask("GET", &format!("/api/approvals?status=pending&limit=150&cursor={cursor}"), None).expect(200);
    let more = FOLLOWERS / OF_ONE;
    assert_eq!((rest["approvals"].as_array().unwrap().len(), &rest["next_cursor"]), (50 + more, &json!(null)));
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

/// Keeps sockets open. The server closes a socket that does not answer its ping, which it sends every 20 seconds.
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

/// Reads a socket on a thread of its own, so that pings are answered while the test does something else.
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

/// The median time of a command on each server. The commands alternate, so that other load of the machine slows both.
fn compare_waits(crowded: &Server, quiet: &Server) -> (Duration, Duration) {
    let mut waits = [Vec::new(), Vec::new()];
    for _ in 0..15 {
        for (server, waits) in [crowded, quiet].into_iter().zip(&mut waits) {
            let begun = Instant::now();
            assert_eq!(server.shell("true")["status"], "SUCCEEDED");
            waits.push(begun.elapsed());
        }
    }
    let [crowded, quiet] = waits.map(|mut waits| {
        waits.sort();
        waits[waits.len() / 2]
    });
    (crowded, quiet)
}

fn is_close((crowded, quiet): &(Duration, Duration)) -> bool {
    *crowded <= *quiet * 3 + Duration::from_millis(50)
}

/// Execs that wait for a person, each followed by as many as its user may be.
fn follow(site: &Site) -> (Vec<String>, Vec<BufReader<TcpStream>>) {
    let mut execs = Vec::new();
    let mut followers = Vec::new();
    for number in 0..FOLLOWERS / OF_ONE {
        let token = site.server.make_token(&["--role", "user", "--user", &format!("follower-{number}")]);
        let exec = site.begin(&token, "followed", &site.command());
        for _ in 0..OF_ONE {
            let mut stream = site.server.connect();
            let head = format!("GET /sandbox/execs/{exec}/events HTTP/1.1\r\nhost: {}\r\n", site.server.address);
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
