//! A server's end and its next beginning: what was running is accounted for, and what was asked stays asked.

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

use crate::site::{Backend, Site, runs_gvisor};

pub(crate) fn a_killed_server_leaves_nothing(site: &Site) {
    let mut server = site.start();
    let mark = tests::support::scratch::token().unwrap();
    let id = server.begin(&format!("echo begun; sleep 600; : {mark}"));
    server.wait_for_output(&id);
    let processes = site.boxed(&server, &mark);
    assert!(!processes.is_empty(), "the control: the box's own process is visible from outside");
    let code = matches!(site.backend, Backend::Native).then(|| begin_code(&server));
    let maker = server.id();
    server.signal(Signal::KILL);
    server.ended();
    let server = site.start_in(server.leave());
    if let Some(code) = code {
        assert_eq!(server.exec(&code)["status"], "LOST");
        assert_eq!(server.ask("GET", &format!("/sandbox/execs/{code}/stdout"), None).expect(200)["content"], "words\n");
        assert!(find(server.data(), &code).is_some() && find(server.data(), &format!("{code}.output")).is_none());
    }
    let lost = server.exec(&id);
    assert_eq!((&lost["status"], &lost["exit_code"]), (&json!("LOST"), &Value::Null), "{lost}");
    match site.backend {
        // The kernel ends it with the server, and needs a moment for that.
        Backend::Native => wait_until("the box is gone", || marked(&mark).unwrap().is_empty()),
        // Its warden sees the server's end and takes everything along, the kernel of the box first.
        Backend::Gvisor => {
            wait_until("the box is gone", || !processes.iter().any(|one| runs_gvisor(*one)));
            wait_until("its cgroups are gone", || cgroups_of(&[maker]).is_empty());
            let left: Vec<_> = fs::read_dir(server.data()).unwrap().flatten().map(|entry| entry.file_name()).collect();
            assert!(!left.iter().any(|name| name.to_string_lossy().contains("gvisor")), "{left:?}");
        }
        // A container belongs to the daemon; who removes it is at work, or the next server is.
        Backend::Docker => {
            wait_until("the box is gone", || marked(&mark).unwrap().is_empty());
            site.daemon.as_ref().unwrap().wait_until_gone(&format!("ringwall-{id}"));
        }
    }
    assert_eq!(server.ask("GET", &format!("/sandbox/execs/{id}/stdout"), None).expect(200)["content"], "begun\n");
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

/// Code in a session that has printed something and goes on. While it runs what it prints is not in its place, and is read
/// all the same.
fn begin_code(server: &Server) -> String {
    let body = json!({ "command": "echo words; sleep 600" });
    let begun = server.ask("POST", "/api/sessions/s/processes", Some(&body)).expect(202);
    let id = begun["pid"].as_str().unwrap().to_owned();
    server.wait_for_output(&id);
    assert!(find(server.data(), &id).is_none() && find(server.data(), &format!("{id}.output")).is_some());
    id
}

pub(crate) fn a_stopped_server_waits(site: &Site) {
    let mut server = site.start();
    let waiting = ask_and_wait(&server, "touch go; echo begun; until [ -s go ]; do sleep 0.01; done; echo ended");
    server.signal(Signal::TERM);
    wait_until("the server is stopping", || server.log().contains("stopping"));
    // The exec waits for a line that only this test can write, so it ends after the server began to stop. (In a file, because
    // a pipe that is made behind gVisor is there alone.)
    fs::write(find(server.data(), "go").unwrap(), "on\n").unwrap();
    assert_eq!(waiting.join().unwrap()["status"], "SUCCEEDED");
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert!(std::net::TcpStream::connect(&server.address).is_err());
}

pub(crate) fn a_stopped_server_cancels(site: &Site) {
    let mut server = site.start();
    let waiting = ask_and_wait(&server, "echo begun; sleep 600");
    server.signal(Signal::TERM);
    let answer = waiting.join().unwrap();
    assert_eq!((&answer["status"], &answer["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    let server = site.start_in(server.leave());
    let path = format!("/sandbox/execs/{}", answer["exec_id"].as_str().unwrap());
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "CANCELLED");
}

/// Somebody who waits for an exec that has said something by now.
fn ask_and_wait(server: &Server, script: &str) -> thread::JoinHandle<Value> {
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
