//! Faults of session boxes: out of memory, a killed or stopped in-box agent, a full pool, and a
//! server stop. Meanwhile `PoolWatch` checks the pool's numbers.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::host::{descendants, is_alive};
use tests::support::pool_watch::{PoolWatch, pool};
use tests::support::traces::{cgroups_of, describe, mounts};
use tests::support::wait::wait_until;

use crate::fixture::{Fixture, code_of};

const TIMEOUT: Duration = Duration::from_secs(90);

fn in_session(session: &str, code: &str) -> Value {
    json!({ "session_id": session, "code": code, "backend": "aio" })
}

fn in_context(session: &str, code: &str) -> Value {
    json!({ "session_id": session, "context_id": "c", "code": code })
}

/// A server without questions and with 128 MB per box.
fn start() -> Fixture {
    let fixture = Fixture::start();
    fixture.change_settings(
        &json!({ "sessions": { "confirmation": "auto-approve" }, "sandbox": { "limits": { "memory_mb": 128 } } }),
    );
    fixture
}

#[test]
fn out_of_memory_is_reported_and_next_run_works() {
    let fixture = start();
    let watch = PoolWatch::begin(&fixture.server);
    let greedy = "b = bytearray(600 << 20); print(len(b))";
    for body in [in_session("s", greedy), in_context("t", greedy)] {
        let ended = fixture.run(&body).expect(200);
        assert_eq!((&ended["success"], &ended["stdout"]), (&json!(false), &json!("")), "{ended}");
        let exec = fixture.server.exec(ended["exec_id"].as_str().unwrap());
        assert_eq!((&exec["status"], &exec["error_reason"]["code"]), (&json!("FAILED"), &json!("OOM")), "{ended}");
        assert!(ended["error"].as_str().unwrap().contains("128"), "the error does not name the limit: {ended}");
    }
    assert_eq!(fixture.run(&in_session("s", "print(1)")).expect(200)["stdout"], "1\n");
    assert_eq!(fixture.run(&in_context("t", "1 + 1")).expect(200)["results"][0]["text/plain"], "2");
    // Each process is below the limit, all together exceed it. Those that remain after the run do
    // not block the next one.
    let many = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        b = bytearray(60 << 20)\n        time.sleep(600)\nprint(os.wait()[1])";
    assert_eq!(fixture.run(&in_session("s", many)).expect(200)["stdout"], "9\n");
    assert_eq!(fixture.run(&in_session("s", "print(2)")).expect(200)["stdout"], "2\n");
    watch.end();
}

#[test]
fn killed_agent_ends_its_box_only() {
    let fixture = start();
    let watch = PoolWatch::begin(&fixture.server);
    fixture.run(&in_context("s", "x = 1")).expect(200);
    fixture.run(&in_context("other", "x = 1")).expect(200);
    let ended =
        fixture.run(&in_context("s", "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"));
    let ended = ended.expect(200);
    assert_eq!(ended["success"], false, "{ended}");
    assert!(ended["error"].as_str().is_some_and(|error| error.contains("agent")), "{ended}");
    assert!(fixture.run(&in_context("s", "x")).expect(200)["error"].as_str().unwrap().starts_with("NameError"));
    assert_eq!(fixture.run(&in_context("other", "x")).expect(200)["results"][0]["text/plain"], "1");
    watch.end();
}

/// Code has the uid of the in-box agent and can stop it; then the box no longer reacts to messages.
#[test]
fn stopped_agent_does_not_block_timeout_or_cancellation() {
    let fixture = start();
    // Waits until the agent sleeps: then it has reported the start of the command.
    let shell = "until grep -q '^State:.S' /proc/$PPID/status; do :; done; kill -STOP $PPID; sleep 1000";
    let python = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass";
    let mut bodies = [in_session("exec", shell), in_context("cell", python), in_context("cancelled", python)];
    bodies[0]["language"] = json!("shell");
    bodies[0]["timeout"] = json!(1);
    bodies[1]["timeout"] = json!(1);
    let began = Instant::now();
    let runs = bodies.map(|body| fixture.spawn_run(body));
    let of_session = |session: &str| {
        let listed = fixture.server.ask("GET", "/sandbox/execs", None).expect(200);
        let own = listed.as_array().unwrap().iter().find(|exec| exec["conversation_id"] == session).cloned();
        own.map(|exec| exec["exec_id"].as_str().unwrap().to_owned())
    };
    wait_until("the third", || {
        let contexts = fixture.server.ask("GET", "/api/contexts/cancelled", None);
        contexts.status == 200 && contexts.json()["contexts"][0]["status"] == "busy"
    });
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{}", of_session("cancelled").unwrap()), None).expect(202);
    let ended = runs.map(|run| run.join().unwrap());
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    let statuses = ["exec", "cell", "cancelled"].map(|session| {
        let exec = fixture.server.exec(&of_session(session).unwrap());
        exec["status"].as_str().unwrap().to_owned()
    });
    assert_eq!(statuses, ["TIMEOUT", "TIMEOUT", "CANCELLED"], "{ended:?}");
    wait_until("free places", || pool(&fixture.server)["busy"] == 0);
    for body in [in_session("exec", "print(1)"), in_context("cell", "print(1)"), in_context("cancelled", "print(1)")] {
        assert_eq!(fixture.run(&body).expect(200)["stdout"], "1\n");
    }
}

#[test]
fn many_runs_of_each_kind_share_a_small_pool() {
    let fixture = start();
    fixture.change_settings(&json!({ "pool": { "max_instances": 3 } }));
    let watch = PoolWatch::begin(&fixture.server);
    let runs: Vec<_> = (0..24)
        .map(|number| {
            let session = format!("s{}", number % 5);
            fixture.spawn_run(match number % 3 {
                0 => in_session(&session, "print(1)"),
                1 => in_context(&session, "print(1)"),
                _ => json!({ "session_id": session, "code": "print(1)" }),
            })
        })
        .collect();
    for run in runs {
        let ended = run.join().unwrap();
        assert_eq!((&ended["success"], &ended["stdout"]), (&json!(true), &json!("1\n")), "{ended}");
    }
    watch.end();
    // Lowered limits apply at once to new boxes; excess boxes are ended.
    fixture.change_settings(&json!({ "pool": { "max_instances": 2, "min_instances": 0 } }));
    wait_until("fewer boxes", || {
        fixture.server.ask("GET", "/api/pool", None).expect(200)["total"].as_u64().unwrap() <= 2
    });
    let watch = PoolWatch::begin(&fixture.server);
    assert_eq!(fixture.run(&in_session("s9", "print(9)")).expect(200)["stdout"], "9\n");
    watch.end();
}

#[test]
fn stopping_busy_server_leaves_no_process_cgroup_or_mount() {
    let mut fixture = start();
    let watch = PoolWatch::begin(&fixture.server);
    // Warm boxes, an idle and a busy session box, a busy context, and a background process.
    fixture.python("print(1)");
    fixture.run(&in_session("idle", "print(1)")).expect(200);
    let busy = in_session("busy", "print('up', flush=True)\nimport time\ntime.sleep(600)");
    let runs = [busy, in_context("context", "while True: pass")].map(|body| {
        let server = fixture.server.clone();
        std::thread::spawn(move || server.ask("POST", "/api/run", Some(&body)))
    });
    let process = json!({ "command": "sleep 600 & sleep 600" });
    fixture.server.ask("POST", "/api/sessions/process/processes", Some(&process)).expect(202);
    let is_root = rustix::process::geteuid().is_root();
    wait_until("everything", || {
        let pool = pool(&fixture.server);
        let count = |name: &str| pool[name].as_u64().unwrap();
        count("busy") == 3 && count("warming") == 0 && count("idle") >= if is_root { 3 } else { 1 }
    });
    let below = descendants(fixture.server.id()).unwrap();
    assert!(below.len() > 8, "{below:?}");
    fixture.server.signal(Signal::TERM);
    for run in runs {
        assert_eq!(code_of(run.join().unwrap(), 503), "STOPPING");
    }
    watch.end();
    let server = std::sync::Arc::get_mut(&mut fixture.server).unwrap();
    assert!(server.ended().success());
    let left: Vec<String> = below.into_iter().filter(|process| is_alive(*process)).map(describe).collect();
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(cgroups_of(&[server.id()]), Vec::<std::path::PathBuf>::new());
    let place = server.data().to_str().unwrap();
    let mounted: Vec<String> = mounts().unwrap().into_iter().filter(|mount| mount.contains(place)).collect();
    assert_eq!(mounted, Vec::<String>::new());
    assert!(Path::new(place).exists(), "control: the data directory exists");
}
