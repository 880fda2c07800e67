//! What lasts in a session's box: processes, what is left in the background, a pause; and how each is brought to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::pool_watch::pool;
use tests::support::server::{Answer, Server};
use tests::support::wait::wait_until;

use crate::site::{Site, code_of};

/// How long a server that stops waits for those who run.
const DRAIN: Duration = Duration::from_secs(8);

/// Nobody is asked about what these commands do to their own box.
fn unasked() -> Site {
    let site = Site::start();
    site.set(&json!({ "sessions": { "confirmation": "auto-approve" }, "pool": { "min_instances": 0 } }));
    site
}

fn exec(site: &Site, session: &str, command: &str) -> Answer {
    site.server.ask("POST", &format!("/api/sessions/{session}/exec"), Some(&json!({ "command": command })))
}

fn turn(site: &Site, session: &str, verb: &str) {
    site.server.ask("POST", &format!("/api/sessions/{session}/{verb}"), None).expect(200);
}

fn begin(site: &Site, session: &str, command: &str) -> Answer {
    site.server.ask("POST", &format!("/api/sessions/{session}/processes"), Some(&json!({ "command": command })))
}

/// A process that has begun for sure, by its id.
fn running(site: &Site, session: &str, command: &str) -> String {
    let begun = begin(site, session, &format!("echo up; {command}")).expect(202);
    let pid = begun["pid"].as_str().unwrap().to_owned();
    site.server.wait_for_output(&pid);
    pid
}

fn is_busy(site: &Site) -> bool {
    let contexts = site.server.ask("GET", "/api/contexts/s", None);
    contexts.status == 200 && contexts.json()["contexts"][0]["status"] == "busy"
}

fn cell(code: &str, timeout: u64) -> Value {
    json!({ "session_id": "s", "context_id": "c", "code": code, "timeout": timeout })
}

#[test]
fn what_stands_still_has_time_and_can_be_ended() {
    let site = unasked();
    let pid = running(&site, "s", "sleep 1000");
    // Its time would be over, had it passed. Where a machine is so slow that it is over all the same, a longer one is tried.
    let mut went = Value::Null;
    for timeout in [1, 5, 60] {
        let code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'went'";
        let (began, waiting) = (Instant::now(), site.begin(cell(code, timeout)));
        wait_until("a busy context", || is_busy(&site));
        turn(&site, "s", "pause");
        if timeout == 1 {
            // What stands still hears nobody, and ends all the same.
            site.server.ask("DELETE", &format!("/sandbox/execs/{pid}"), None).expect(202);
            assert_eq!(site.server.exec(&pid)["status"], "CANCELLED");
        }
        wait_until("as if it were over", || began.elapsed() > Duration::from_millis(timeout * 1000 + 200));
        assert_eq!(site.put("/api/sessions/s/files/go", b"").status, 200);
        turn(&site, "s", "resume");
        went = waiting.join().unwrap();
        if went["success"] == true {
            break;
        }
        exec(&site, "s", "rm go").expect(200);
    }
    assert_eq!(went["results"], json!([{ "text/plain": "'went'" }]), "{went}");
    let pid = running(&site, "s", "trap '' TERM; while :; do sleep 0.1; done");
    let endless = site.begin(cell("while True: pass", 300));
    wait_until("a busy context", || is_busy(&site));
    turn(&site, "s", "pause");
    site.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    assert_eq!(site.server.exec(&pid)["status"], "CANCELLED");
    assert_eq!(endless.join().unwrap()["error"], "it was cancelled");
    assert_eq!(pool(&site.server)["total"], 0);
}

#[test]
fn a_stop_waits_for_nothing_that_does_not_end_by_itself() {
    let site = unasked();
    let still = running(&site, "still", "sleep 1000");
    let going = running(&site, "going", "sleep 1000");
    turn(&site, "still", "pause");
    let began = Instant::now();
    site.server.signal(Signal::TERM);
    let mut server = Arc::into_inner(site.server).unwrap();
    assert!(server.ended().success());
    assert!(began.elapsed() < DRAIN, "{:?}", began.elapsed());
    let next = Server::start_in(server.leave(), &[]);
    for pid in [still, going] {
        let exec = next.exec(&pid);
        assert_eq!((&exec["status"], &exec["error_reason"]["code"]), (&json!("CANCELLED"), &json!("SERVER_STOPPED")));
    }
}

#[test]
fn a_process_lasts_holds_no_slot_and_keeps_its_session() {
    let site = unasked();
    let limits = json!({ "max_concurrent_execs": 1, "max_concurrent_execs_per_user": 1 });
    site.set(&json!({ "sandbox": limits }));
    let pids = [running(&site, "s", "sleep 1000"), running(&site, "s", "sleep 1000")];
    assert_eq!(exec(&site, "s", "echo others").expect(200)["stdout"], "others\n", "nobody waits for them");
    for pid in &pids {
        let exec = site.server.exec(pid);
        assert_eq!(exec["policy_snapshot"]["limits"]["timeout_ms"], Value::Null, "{exec}");
    }
    // They keep a box, and one user does not keep them all.
    assert_eq!(code_of(begin(&site, "t", "sleep 1000"), 503), "POOL_FULL");
    let limited = json!({ "command": "sleep 1000", "timeout": 1 });
    let limited = site.server.ask("POST", "/api/sessions/s/processes", Some(&limited)).expect(202);
    wait_until("the limit that was asked for", || {
        site.server.exec(limited["pid"].as_str().unwrap())["status"] == "TIMEOUT"
    });
    // What the operator says of all time limits holds for them too.
    site.set(&json!({ "sandbox": { "limits": { "timeout_ms": 60_000 } } }));
    let bound = running(&site, "s", "sleep 1000");
    assert_eq!(site.server.exec(&bound)["policy_snapshot"]["limits"]["timeout_ms"], 60_000);
    let used = site.server.data().join("workspaces/default/default/sessions/s/.used");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(30 * 3600);
    std::fs::File::open(&used).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::open(used.parent().unwrap()).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(site.server.ask("POST", "/api/gc", None).expect(200)["sessions"], 0, "it is in use");
    assert_eq!(site.session("s").status, 200);
}

#[test]
fn a_process_that_a_person_changed_is_reached_as_before() {
    let site = Site::start();
    let begun = begin(&site, "s", "curl x.example | bash").expect(202);
    assert_eq!(begun["status"], "AWAITING_APPROVAL");
    let route = |what: &str| format!("/api/sessions/s/processes/{}/{what}", begun["pid"].as_str().unwrap());
    let question = site.next_question(&[]);
    let changed = "read -r line; echo \"got $line\"; sleep 1000";
    site.answer(&question, &json!({ "approved": true, "modified_code": changed })).expect(200);
    let tell = |what: &str, body: Value| site.server.ask("POST", &route(what), Some(&body)).status;
    wait_until("its input", || tell("stdin", json!({ "data": "this\n" })) == 200);
    let output = || site.server.ask("GET", &route("output"), None).expect(200);
    wait_until("what it printed", || output()["stdout"]["text"] == "got this\n");
    let seen = output();
    assert_eq!(seen["status"], "RUNNING");
    assert_ne!(seen["goes_on_as"], begun["pid"]);
    let next = site.server.exec(seen["goes_on_as"].as_str().unwrap());
    assert_eq!(next["policy_snapshot"]["code"]["replaces"]["exec_id"], begun["pid"], "{next}");
    assert_eq!(next["policy_snapshot"]["limits"]["timeout_ms"], Value::Null, "a process like the first");
    assert_eq!(exec(&site, "s", "echo beside").expect(200)["stdout"], "beside\n");
    assert_eq!(tell("signal", json!({ "signal": "TERM" })), 200);
    wait_until("its end", || output()["status"] == "FAILED");
}

#[test]
fn what_is_left_in_the_background_cannot_fill_the_disk() {
    let site = unasked();
    site.set(&json!({ "sessions": { "max_mb": 8 } }));
    let writer = "while :; do head -c 1000000 /dev/zero >> x; sleep 0.05; done";
    // Nothing runs any more that anybody knows of, and it goes on writing.
    exec(&site, "s", &format!("sh -c '{writer}' > /dev/null 2>&1 &")).expect(200);
    wait_until("the end of its box", || pool(&site.server)["total"] == 0);
    let x = site.server.data().join("workspaces/default/default/sessions/s/work/x");
    let size = || std::fs::metadata(&x).unwrap().len();
    let before = size();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(size(), before, "nobody writes any more");
    // Whoever is in the box ends with it, and is told why.
    let pid = running(&site, "t", "sleep 1000");
    exec(&site, "t", &format!("sh -c '{writer}' > /dev/null 2>&1 &")).expect(200);
    wait_until("the end of the process", || site.server.exec(&pid)["status"] == "FAILED");
    assert_eq!(site.server.exec(&pid)["error_reason"]["code"], "DISK_QUOTA");
    wait_until("the end of its box", || pool(&site.server)["total"] == 0);
}
