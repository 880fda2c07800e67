//! A server without a free file descriptor: accept fails with EMFILE. The server closes the connection that
//! was idle for longest, serves new clients, and retries accept at most ten times per second.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tests::support::wait::wait_until;

use crate::server::Server;

/// Needs no descriptor. `/healthz` queries the database and would return 500 while the table is full.
const REQUEST: &[u8] = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// The server's pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Less than the 30 s after which the server closes an idle connection.
const TIMEOUT: Duration = Duration::from_secs(20);
/// More than the descriptors that the limit leaves ([`FREE_DESCRIPTORS`]).
const CLIENTS: usize = 60;
const FREE_DESCRIPTORS: u64 = 20;
/// As a limit, it leaves only the standard streams.
const STANDARD_STREAMS: u64 = 3;
const MAX_GROWTH_KIB: u64 = 16 << 10;

#[test]
fn full_descriptor_table_closes_longest_idle_and_serves_new_clients() {
    // Control: without the limit all connections stay open.
    let unlimited = Server::start_with(&["--max-connections", "1000"]);
    let mut clients: Vec<TcpStream> = (0..CLIENTS).map(|_| unlimited.connect()).collect();
    assert!(clients.iter_mut().all(|client| request_status(client) == "200"));
    assert!(clients.iter_mut().all(|client| request_status(client) == "200"), "control: a connection was closed");
    assert_eq!(failures(&unlimited), 0);

    let server = Server::start_with(&["--max-connections", "1000"]);
    set_descriptor_limit(&server, open_files(&server) + FREE_DESCRIPTORS);
    let begun = Instant::now();
    let mut clients = Vec::new();
    let mut memory = 0;
    for number in 0..CLIENTS {
        let mut client = server.connect();
        assert_eq!(request_status(&mut client), "200", "client {number} is not served");
        clients.push(client);
        if number == CLIENTS / 2 {
            memory = resident_kib(&server);
        }
    }
    assert!(server.log().contains("Too many open files"), "accept never failed: {}", server.log());
    assert_eq!(request_status(clients.last_mut().unwrap()), "200", "the newest connection was closed");
    let mut oldest = clients.swap_remove(0);
    assert_eq!(oldest.read(&mut [0; 1]).unwrap_or(0), 0, "the oldest connection is still open");
    let grown = resident_kib(&server).saturating_sub(memory);
    assert!(grown < MAX_GROWTH_KIB, "{grown} KiB more for connections that replaced others");
    check_failures_paused(&server, begun);
}

#[test]
fn client_waits_in_the_queue_while_no_descriptor_can_be_freed() {
    let server = Server::start();
    let (default, begun) = (set_descriptor_limit(&server, STANDARD_STREAMS), Instant::now());
    let mut client = server.connect();
    client.write_all(REQUEST).unwrap();
    wait_until("five failed attempts", || failures(&server) >= 5);
    check_failures_paused(&server, begun);
    set_descriptor_limit(&server, default);
    assert_eq!(status(&mut client), "200", "the waiting client was dropped");
}

/// Checks that the server paused after each failure. A busy loop would fail thousands of times.
fn check_failures_paused(server: &Server, begun: Instant) {
    let failed = failures(server);
    let most = begun.elapsed().as_millis() / ACCEPT_PAUSE.as_millis() + 1;
    assert!(u128::from(failed) <= most, "accept failed {failed} times, with a pause after each at most {most}");
}

fn request_status(client: &mut TcpStream) -> String {
    client.write_all(REQUEST).unwrap();
    status(client)
}

/// Reads one complete response and returns its status.
fn status(client: &mut TcpStream) -> String {
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0; 1]);
    while !answer.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    let head = String::from_utf8(answer).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
    client.read_exact(&mut vec![0; length]).unwrap();
    head.split(' ').nth(1).unwrap().to_owned()
}

/// Sets the server's soft RLIMIT_NOFILE and returns the previous value.
fn set_descriptor_limit(server: &Server, current: u64) -> u64 {
    let pid = Pid::from_raw(i32::try_from(server.id()).unwrap());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let before = prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
    before.current.unwrap()
}

fn open_files(server: &Server) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count() as u64
}

/// How often accept has failed.
fn failures(server: &Server) -> u64 {
    server.log().matches("could not accept a connection").count() as u64
}

fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
