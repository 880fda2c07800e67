//! Stops and kills of a server: running execs get an outcome, and their processes end.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::docker_daemon::wait_until;
use tests::support::host::marked;
use tests::support::server::Server;
use tests::support::traces::cgroups_of;
use tests::support::wait::wait_for;

use crate::fixture::{Backend, Fixture, runs_gvisor};

pub(crate) fn killed_server_leaves_nothing(fixture: &Fixture) {
    let mut server = fixture.start();
    let mark = tests::support::scratch::token().unwrap();
    let id = server.begin(&format!("echo begun; sleep 600; : {mark}"));
    server.wait_for_output(&id);
    let processes = fixture.box_processes(&server, &mark);
    assert!(!processes.is_empty(), "the control: the box's own process is visible from outside");
    let code = matches!(fixture.backend, Backend::Native).then(|| start_process(&server));
    let server_id = server.id();
    server.signal(Signal::KILL);
    server.ended();
    let server = fixture.start_in(server.leave());
    if let Some(code) = code {
        assert_eq!(server.exec(&code)["status"], "LOST");
        assert_eq!(server.ask("GET", &format!("/sandbox/execs/{code}/stdout"), None).expect(200)["content"], "words\n");
        assert!(find(server.data(), &code).is_some() && find(server.data(), &format!("{code}.output")).is_none());
    }
    let lost = server.exec(&id);
    assert_eq!((&lost["status"], &lost["exit_code"]), (&json!("LOST"), &Value::Null), "{lost}");
    match fixture.backend {
        // The kernel kills the box after the server, which takes a moment.
        Backend::Native => wait_until("the box is gone", || marked(&mark).unwrap().is_empty()),
        // Our process around `runsc` notices the end of the server and removes everything, gVisor's
        // kernel first.
        Backend::Gvisor => {
            wait_until("the box is gone", || !processes.iter().any(|one| runs_gvisor(*one)));
            wait_until("its cgroups are gone", || cgroups_of(&[server_id]).is_empty());
            let left: Vec<_> = fs::read_dir(server.data()).unwrap().flatten().map(|entry| entry.file_name()).collect();
            assert!(!left.iter().any(|name| name.to_string_lossy().contains("gvisor")), "{left:?}");
        }
        // Our watcher process or the next server removes the container.
        Backend::Docker => {
            wait_until("the box is gone", || marked(&mark).unwrap().is_empty());
            fixture.daemon.as_ref().unwrap().wait_until_gone(&format!("ringwall-{id}"));
        }
    }
    assert_eq!(server.ask("GET", &format!("/sandbox/execs/{id}/stdout"), None).expect(200)["content"], "begun\n");
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

/// Starts a process in a session that prints a line and keeps running. While it runs its output is
/// in a file `ID.output`, from which the server reads it.
fn start_process(server: &Server) -> String {
    let body = json!({ "command": "echo words; sleep 600" });
    let begun = server.ask("POST", "/api/sessions/s/processes", Some(&body)).expect(202);
    let id = begun["pid"].as_str().unwrap().to_owned();
    server.wait_for_output(&id);
    assert!(find(server.data(), &id).is_none() && find(server.data(), &format!("{id}.output")).is_some());
    id
}

pub(crate) fn stopping_server_waits_for_exec(fixture: &Fixture) {
    let mut server = fixture.start();
    let waiting = submit_in_thread(&server, "touch go; echo begun; until [ -s go ]; do sleep 0.01; done; echo ended");
    server.signal(Signal::TERM);
    wait_until("the server is stopping", || server.log().contains("stopping"));
    // The exec waits for a line from this test, so it ends after the server began to stop. (In a
    // file, because a FIFO created under gVisor is not visible on the host.)
    fs::write(find(server.data(), "go").unwrap(), "on\n").unwrap();
    assert_eq!(waiting.join().unwrap()["status"], "SUCCEEDED");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert!(std::net::TcpStream::connect(&server.address).is_err());
}

pub(crate) fn stopping_server_cancels_exec(fixture: &Fixture) {
    let mut server = fixture.start();
    let waiting = submit_in_thread(&server, "echo begun; sleep 600");
    server.signal(Signal::TERM);
    let answer = waiting.join().unwrap();
    assert_eq!((&answer["status"], &answer["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    let server = fixture.start_in(server.leave());
    let path = format!("/sandbox/execs/{}", answer["exec_id"].as_str().unwrap());
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "CANCELLED");
}

/// A client that waits for an exec, which has printed something by now.
fn submit_in_thread(server: &Server, script: &str) -> thread::JoinHandle<Value> {
    let (url, token) = (format!("http://{}/sandbox/execs", server.address), server.token.clone());
    let body = server.request(script).to_string();
    let waiting = thread::spawn(move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let mut answer = agent.post(url).header("authorization", format!("Bearer {token}")).send(body).unwrap();
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    });
    let id = wait_for("an exec that runs", || {
        let running = server.ask("GET", "/sandbox/execs?status=RUNNING", None).expect(200);
        running[0]["exec_id"].as_str().map(str::to_owned)
    });
    server.wait_for_output(&id);
    waiting
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.filter_map(Result::ok).find_map(|entry| {
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if entry.file_name() == name { Some(entry.path()) } else { is_directory.then(|| find(&entry.path(), name))? }
    })
}
