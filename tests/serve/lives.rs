//! A server's end and its next beginning: what was running is accounted for, and what was asked stays asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::{Server, shell};

#[test]
fn a_killed_server_leaves_lost_execs_and_no_processes() {
    let mut server = Server::start();
    let mark = format!("{}", 500_000 + u64::from(std::process::id()));
    let id = server.begin(&format!("echo begun; exec sleep {mark}"));
    server.wait_for_output(&id);
    assert!(is_running(&mark), "the control: the box's own process is visible from outside");
    server.signal(Signal::KILL);
    server.ended();
    let server = Server::start_in(server.leave(), &[]);
    assert_eq!(server.ask("GET", &format!("/sandbox/execs/{id}"), None).expect(200)["status"], "LOST");
    assert!(!is_running(&mark));
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

#[test]
fn a_key_holds_over_a_restart() {
    let mut server = Server::start();
    let key = [("authorization", format!("Bearer {}", server.token)), ("idempotency-key", "again".to_owned())];
    let ask = |server: &Server| {
        let headers = key.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.ask_with("POST", "/sandbox/execs", &headers, Some(&shell("echo once"))).expect(200)
    };
    let first = ask(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let server = Server::start_in(server.leave(), &[]);
    assert_eq!(ask(&server), first);
    assert_eq!(server.ask("GET", "/sandbox/execs", None).expect(200).as_array().unwrap().len(), 1);
}

#[test]
fn a_stopped_server_waits_for_an_exec_and_answers_for_it() {
    let mut server = Server::start();
    let waiting = ask_and_wait(&server, "mkfifo go; echo begun; read line < go; echo ended");
    server.signal(Signal::TERM);
    while !server.log().contains("stopping") {
        thread::yield_now();
    }
    // The exec waits for a line that only this test can send, so it ends after the server began to stop.
    fs::write(find(server.data(), "go").unwrap(), "on\n").unwrap();
    assert_eq!(waiting.join().unwrap()["status"], "SUCCEEDED");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert!(std::net::TcpStream::connect(&server.address).is_err());
}

#[test]
fn a_stopped_server_cancels_what_does_not_end() {
    let mut server = Server::start();
    let waiting = ask_and_wait(&server, "echo begun; sleep 600");
    server.signal(Signal::TERM);
    let answer = waiting.join().unwrap();
    assert_eq!((&answer["status"], &answer["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    let server = Server::start_in(server.leave(), &[]);
    let path = format!("/sandbox/execs/{}", answer["exec_id"].as_str().unwrap());
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "CANCELLED");
}

/// Somebody who waits for an exec that has said something by now.
fn ask_and_wait(server: &Server, script: &str) -> thread::JoinHandle<Value> {
    let (url, token) = (format!("http://{}/sandbox/execs", server.address), server.token.clone());
    let body = shell(script).to_string();
    let waiting = thread::spawn(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let mut answer = agent.post(url).header("authorization", format!("Bearer {token}")).send(body).unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    });
    let id = loop {
        let running = server.ask("GET", "/sandbox/execs?status=RUNNING", None).expect(200);
        if let Some(id) = running[0]["exec_id"].as_str() {
            break id.to_owned();
        }
    };
    server.wait_for_output(&id);
    waiting
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.filter_map(Result::ok).find_map(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if entry.file_name() == name { Some(entry.path()) } else { is_directory.then(|| find(&entry.path(), name))? }
    })
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let server = Server::start();
    let second = crate::server::command(server.data()).args(["serve", "--listen", "127.0.0.1:0"]).output().unwrap();
    assert!(!second.status.success());
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

/// The mark is in the script, so it shows before and after the shell has become another program.
fn is_running(mark: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| line.windows(mark.len()).any(|part| part == mark.as_bytes()))
}
