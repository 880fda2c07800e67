//! Long-lived work in a session box: processes, background jobs, pauses, and how each ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::pool_watch::pool;
use tests::support::server::{Answer, Server};
use tests::support::wait::wait_until;

use crate::fixture::{Fixture, code_of};

/// How long a stopping server waits for running execs.
const DRAIN: Duration = Duration::from_secs(8);

/// A server on which these commands need no approval.
fn start_with_auto_approve() -> Fixture {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" }, "pool": { "min_instances": 0 } }));
    fixture
}

fn exec(fixture: &Fixture, session: &str, command: &str) -> Answer {
    fixture.server.ask("POST", &format!("/api/sessions/{session}/exec"), Some(&json!({ "command": command })))
}

fn pause_or_resume(fixture: &Fixture, session: &str, verb: &str) {
    fixture.server.ask("POST", &format!("/api/sessions/{session}/{verb}"), None).expect(200);
}

fn start_process(fixture: &Fixture, session: &str, command: &str) -> Answer {
    fixture.server.ask("POST", &format!("/api/sessions/{session}/processes"), Some(&json!({ "command": command })))
}

/// Starts a process, waits for its first output and returns its id.
fn start_running_process(fixture: &Fixture, session: &str, command: &str) -> String {
    let begun = start_process(fixture, session, &format!("echo up; {command}")).expect(202);
    let pid = begun["pid"].as_str().unwrap().to_owned();
    fixture.server.wait_for_output(&pid);
    pid
}

fn is_busy(fixture: &Fixture) -> bool {
    let contexts = fixture.server.ask("GET", "/api/contexts/s", None);
    contexts.status == 200 && contexts.json()["contexts"][0]["status"] == "busy"
}

fn context_run(code: &str, timeout: u64) -> Value {
    json!({ "session_id": "s", "context_id": "c", "code": code, "timeout": timeout })
}

#[test]
fn paused_box_stops_timeouts_and_can_be_ended() {
    let fixture = start_with_auto_approve();
    let pid = start_running_process(&fixture, "s", "sleep 1000");
    // The pause is longer than the timeout. A slow machine may reach the timeout before the pause;
    // then a longer one is tried.
    let mut went = Value::Null;
    for timeout in [1, 5, 60] {
        let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'went'";
        let (began, waiting) = (Instant::now(), fixture.spawn_run(context_run(code, timeout)));
        wait_until("a busy context", || is_busy(&fixture));
        pause_or_resume(&fixture, "s", "pause");
        if timeout == 1 {
            // A process of a paused box can be cancelled.
            fixture.server.ask("DELETE", &format!("/sandbox/execs/{pid}"), None).expect(202);
            assert_eq!(fixture.server.exec(&pid)["status"], "CANCELLED");
        }
        wait_until("the timeout to pass", || began.elapsed() > Duration::from_millis(timeout * 1000 + 200));
        assert_eq!(fixture.put_bytes("/api/sessions/s/files/go", b"").status, 200);
        pause_or_resume(&fixture, "s", "resume");
        went = waiting.join().unwrap();
        if went["success"] == true {
            break;
        }
        exec(&fixture, "s", "rm go").expect(200);
    }
    assert_eq!(went["results"], json!([{ "text/plain": "'went'" }]), "{went}");
    let pid = start_running_process(&fixture, "s", "trap '' TERM; while :; do sleep 0.1; done");
    let endless = fixture.spawn_run(context_run("while True: pass", 300));
    wait_until("a busy context", || is_busy(&fixture));
    pause_or_resume(&fixture, "s", "pause");
    fixture.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    assert_eq!(fixture.server.exec(&pid)["status"], "CANCELLED");
    assert_eq!(endless.join().unwrap()["error"], "the exec was cancelled");
    assert_eq!(pool(&fixture.server)["total"], 0);
}

#[test]
fn stopping_server_does_not_wait_for_processes() {
    let fixture = start_with_auto_approve();
    let still = start_running_process(&fixture, "still", "sleep 1000");
    let going = start_running_process(&fixture, "going", "sleep 1000");
    pause_or_resume(&fixture, "still", "pause");
    let began = Instant::now();
    fixture.server.signal(Signal::TERM);
    let mut server = Arc::into_inner(fixture.server).unwrap();
    assert!(server.ended().success());
    assert!(began.elapsed() < DRAIN, "{:?}", began.elapsed());
    let next = Server::start_in(server.leave(), &[]);
    for pid in [still, going] {
        let exec = next.exec(&pid);
        assert_eq!((&exec["status"], &exec["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
    }
}

#[test]
fn process_has_no_timeout_holds_no_slot_and_keeps_its_session() {
    let fixture = start_with_auto_approve();
    let limits = json!({ "max_concurrent_execs": 1, "max_concurrent_execs_per_user": 1 });
    fixture.change_settings(&json!({ "sandbox": limits }));
    let pids = [start_running_process(&fixture, "s", "sleep 1000"), start_running_process(&fixture, "s", "sleep 1000")];
    assert_eq!(exec(&fixture, "s", "echo others").expect(200)["stdout"], "others\n", "the processes hold no exec slot");
    for pid in &pids {
        let exec = fixture.server.exec(pid);
        assert_eq!(exec["policy_snapshot"]["limits"]["timeout_ms"], Value::Null, "{exec}");
    }
    // A process holds a session box, and one user may hold only one here.
    assert_eq!(code_of(start_process(&fixture, "t", "sleep 1000"), 503), "POOL_FULL");
    let limited = json!({ "command": "sleep 1000", "timeout": 1 });
    let limited = fixture.server.ask("POST", "/api/sessions/s/processes", Some(&limited)).expect(202);
    wait_until("the limit that was asked for", || {
        fixture.server.exec(limited["pid"].as_str().unwrap())["status"] == "TIMEOUT"
    });
    // A timeout in the settings applies to processes too.
    fixture.change_settings(&json!({ "sandbox": { "limits": { "timeout_ms": 60_000 } } }));
    let bound = start_running_process(&fixture, "s", "sleep 1000");
    assert_eq!(fixture.server.exec(&bound)["policy_snapshot"]["limits"]["timeout_ms"], 60_000);
    let used = fixture.server.data().join("workspaces/default/default/sessions/s/.used");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(30 * 3600);
    std::fs::File::open(&used).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::open(used.parent().unwrap()).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(fixture.server.ask("POST", "/api/gc", None).expect(200)["sessions"], 0, "a session in use was removed");
    assert_eq!(fixture.session("s").status, 200);
}

#[test]
fn process_with_changed_code_keeps_its_routes() {
    let fixture = Fixture::start();
    let begun = start_process(&fixture, "s", "curl x.example | bash").expect(202);
    assert_eq!(begun["status"], "AWAITING_APPROVAL");
    let route = |what: &str| format!("/api/sessions/s/processes/{}/{what}", begun["pid"].as_str().unwrap());
    let question = fixture.next_question(&[]);
    let changed = "read -r line; echo \"got $line\"; sleep 1000";
    fixture.answer(&question, &json!({ "approved": true, "modified_code": changed })).expect(200);
    let tell = |what: &str, body: Value| fixture.server.ask("POST", &route(what), Some(&body)).status;
    wait_until("its input", || tell("stdin", json!({ "data": "this\n" })) == 200);
    let output = || fixture.server.ask("GET", &route("output"), None).expect(200);
    wait_until("what it printed", || output()["stdout"]["text"] == "got this\n");
    let seen = output();
    assert_eq!(seen["status"], "RUNNING");
    assert_ne!(seen["goes_on_as"], begun["pid"]);
    let next = fixture.server.exec(seen["goes_on_as"].as_str().unwrap());
    assert_eq!(next["policy_snapshot"]["code"]["replaces"]["exec_id"], begun["pid"], "{next}");
    assert_eq!(next["policy_snapshot"]["limits"]["timeout_ms"], Value::Null, "the changed process has a timeout");
    assert_eq!(exec(&fixture, "s", "echo beside").expect(200)["stdout"], "beside\n");
    assert_eq!(tell("signal", json!({ "signal": "TERM" })), 200);
    wait_until("its end", || output()["status"] == "FAILED");
}

#[test]
fn background_writer_that_exceeds_quota_ends_its_box() {
    let fixture = start_with_auto_approve();
    fixture.change_settings(&json!({ "sessions": { "max_mb": 8 } }));
    let writer = "while :; do head -c 1000000 /dev/zero >> x; sleep 0.05; done";
    // The exec has ended, and its background process goes on writing.
    exec(&fixture, "s", &format!("sh -c '{writer}' > /dev/null 2>&1 &")).expect(200);
    wait_until("the end of its box", || pool(&fixture.server)["total"] == 0);
    let x = fixture.server.data().join("workspaces/default/default/sessions/s/work/x");
    let size = || std::fs::metadata(&x).unwrap().len();
    let before = size();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(size(), before, "the writer is still running");
    // A process in the same box ends with it, with the reason.
    let pid = start_running_process(&fixture, "t", "sleep 1000");
    exec(&fixture, "t", &format!("sh -c '{writer}' > /dev/null 2>&1 &")).expect(200);
    wait_until("the end of the process", || fixture.server.exec(&pid)["status"] == "FAILED");
    assert_eq!(fixture.server.exec(&pid)["error_reason"]["code"], "DISK_QUOTA");
    wait_until("the end of its box", || pool(&fixture.server)["total"] == 0);
}
