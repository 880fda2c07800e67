//! Many sockets that say nothing, many execs that are followed and many questions that nobody answers, while others are
//! served.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::Server;
use crate::site::{Site, TEXT, allow};
use crate::socket::Socket;

const SOCKETS: usize = 1000;
const OPEN: usize = 200;
const FOLLOWERS: usize = 1000;
/// For a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(30);
/// One caller may have so many streams.
const OF_ONE: usize = 250;

#[test]
fn a_thousand_sockets_and_two_hundred_questions_keep_nobody_waiting() {
    // None of the questions is over before the end, however slow the machine is.
    let site = Site::start_under(&[("RINGWALL_APPROVALS_TIMEOUT_S", "600")]);
    let server = &site.server;
    let alone = usual_wait(server);
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
    let (followed, followers) = follow(&site);
    (0..FOLLOWERS / OF_ONE).for_each(|_| drop(all.next()));
    // Boxes run, and the newest question is answered, while all of that is there.
    assert_eq!(server.shell("echo served")["status"], "SUCCEEDED");
    // This machine has other work too, at times: what the crowd itself costs is there every time, and so in each of some looks.
    let (bound, deadline) = (alone * 3 + Duration::from_millis(50), Instant::now() + PATIENCE);
    let mut among = usual_wait(server);
    while among > bound && Instant::now() < deadline {
        among = among.min(usual_wait(server));
    }
    assert!(among <= bound, "{alone:?} became {among:?}");
    let run = site.run(&server.token, "one", &site.command());
    let asked = all.next();
    site.answer(&server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let page = server.ask("GET", "/api/approvals?status=pending&limit=150", None).expect(200);
    assert_eq!(page["approvals"].as_array().unwrap().len(), 150);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = server.ask("GET", &format!("/api/approvals?status=pending&limit=150&cursor={cursor}"), None).expect(200);
    let more = FOLLOWERS / OF_ONE;
    assert_eq!((rest["approvals"].as_array().unwrap().len(), &rest["next_cursor"]), (50 + more, &json!(null)));
    // The idle ones are still there, each of them.
    for mut socket in sockets {
        socket.assert_silent();
    }
    // And so are those who follow an exec: each sees its end.
    for exec in followed {
        server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }
    for mut follower in followers {
        read_until(&mut follower, "event: end");
    }
}

/// The middle one of some waits for a box.
fn usual_wait(server: &Server) -> Duration {
    let mut waits: Vec<Duration> = (0..15)
        .map(|_| {
            let begun = Instant::now();
            assert_eq!(server.shell("true")["status"], "SUCCEEDED");
            begun.elapsed()
        })
        .collect();
    waits.sort();
    waits[waits.len() / 2]
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
