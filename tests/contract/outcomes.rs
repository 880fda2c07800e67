//! Outcomes of execs: limits, cancellation, processes left in the box; and idempotency keys.

use std::thread;

use serde_json::{Value, json};
use tests::support::docker_daemon::wait_until;
use tests::support::server::Server;

use crate::fixture::Fixture;

/// Runs a script with one limit overridden.
fn limited(server: &Server, script: &str, limit: &str, value: u64) -> Value {
    let mut body = server.request(script);
    body["policy_overrides"] = json!({ limit: value });
    server.run(&body)
}

pub(crate) fn timeout_ends_exec(fixture: &Fixture) {
    let server = fixture.start();
    // On a slow machine the shell may not print before the timeout, so longer ones are tried.
    let mut output = String::new();
    for limit in [1_000, 5_000, 50_000] {
        let slow = limited(&server, "trap '' TERM; echo begun; while :; do sleep 600; done", "timeout_ms", limit);
        assert_eq!(
            (&slow["status"], &slow["exit_code"], &slow["error_reason"]["code"]),
            (&json!("TIMEOUT"), &Value::Null, &json!("TIMEOUT"))
        );
        assert!(slow["error_reason"]["message"].as_str().unwrap().contains(&limit.to_string()), "{slow}");
        output = server.stdout(&slow);
        if !output.is_empty() {
            break;
        }
    }
    assert_eq!(output, "begun\n", "output before the timeout");
}

pub(crate) fn memory_limit_ends_exec(fixture: &Fixture) {
    let server = fixture.start();
    let greedy = limited(&server, "exec python3 -c 'b=bytearray(400<<20); print(len(b))'", "memory_mb", 64);
    assert_eq!((&greedy["status"], &greedy["error_reason"]["code"]), (&json!("FAILED"), &json!("OOM")), "{greedy}");
    assert_eq!(greedy["exit_code"], 137, "{greedy}");
}

pub(crate) fn artifacts_limit_fails_exec(fixture: &Fixture) {
    let server = fixture.start();
    let script = "head -c 600 /dev/zero > ../artifacts/a; head -c 5000 /dev/zero > ../artifacts/b; head -c 9000 /dev/zero > scratch";
    let hoarder = limited(&server, script, "max_artifacts_bytes_total", 1000);
    assert_eq!((&hoarder["status"], &hoarder["error_reason"]["code"]), (&json!("FAILED"), &json!("ARTIFACTS_LIMIT")));
    let path = format!("/sandbox/execs/{}/artifacts", hoarder["exec_id"].as_str().unwrap());
    let files = server.ask("GET", &path, None).expect(200)["files"].clone();
    let own = ["stdout.txt", "stderr.txt", "meta.json"];
    let left = files.as_array().unwrap().iter().filter(|file| !own.contains(&file["path"].as_str().unwrap()));
    let kept: u64 = left.map(|file| file["size"].as_u64().unwrap()).sum();
    assert!(kept <= 1000, "{files}");
    // Files in `work` do not count.
    let within = limited(&server, "head -c 9000 /dev/zero > scratch", "max_artifacts_bytes_total", 1000);
    assert_eq!(within["status"], "SUCCEEDED");
}

pub(crate) fn output_is_truncated_at_limit(fixture: &Fixture) {
    let server = fixture.start();
    let loud = limited(&server, "head -c 300000 /dev/zero | tr '\\0' x; echo done >&2", "max_stdout_bytes", 1000);
    assert_eq!(
        (&loud["status"], &loud["stdout_truncated"], &loud["stderr_truncated"]),
        (&json!("SUCCEEDED"), &json!(true), &json!(false))
    );
    assert_eq!(server.stdout(&loud), "x".repeat(1000));
}

pub(crate) fn running_exec_is_cancelled_once(fixture: &Fixture) {
    let server = fixture.start();
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    let path = format!("/sandbox/execs/{id}");
    assert_eq!(server.exec(&id)["status"], "RUNNING");
    assert_eq!(server.ask("DELETE", &path, None).expect(202)["status"], "CANCELLED");
    assert_eq!(server.exec(&id)["status"], "CANCELLED");
    server.ask("DELETE", &path, None).refused(409);
    assert_eq!(server.ask("GET", &format!("{path}/stdout"), None).expect(200)["content"], "begun\n");
}

pub(crate) fn same_key_runs_one_exec(fixture: &Fixture) {
    let server = fixture.start();
    let authorization = format!("Bearer {}", server.token);
    let ask = |key: &str, script: &str| {
        let headers = [("authorization", authorization.as_str()), ("idempotency-key", key)];
        server.ask_with("POST", "/sandbox/execs", &headers, Some(&server.request(script)))
    };
    let count = "echo x >> runs; wc -l < runs";
    let ids: Vec<Value> = thread::scope(|scope| {
        let both = [scope.spawn(|| ask("k", count)), scope.spawn(|| ask("k", count))];
        both.map(|one| one.join().unwrap().expect(200)["exec_id"].clone()).into()
    });
    assert_eq!(ids[0], ids[1]);
    let other = ask("l", count).expect(200);
    assert_eq!(server.stdout(&other), "2\n", "the first key ran more than once");
    assert_eq!(ask("k", count).expect(200)["exec_id"], ids[0]);
    ask("k", "echo different").refused(409);
}

pub(crate) fn background_processes_end_with_box(fixture: &Fixture) {
    let server = fixture.start();
    let mark = tests::support::scratch::token().unwrap();
    let script = format!("setsid bash -c 'trap \"\" TERM HUP; while :; do sleep 600; done' {mark} & echo done");
    let done = server.shell(&script);
    assert_eq!((server.stdout(&done).as_str(), &done["status"]), ("done\n", &json!("SUCCEEDED")), "{done}");
    // The answer is sent after the outcome is recorded, and that happens after the end of the box.
    assert_eq!(fixture.box_processes(&server, &mark), [0_u32; 0], "processes outlive the box");
    // The control: the processes of a running exec are found.
    let id = server.begin(&format!("echo begun; sleep 600; : {mark}"));
    server.wait_for_output(&id);
    assert!(!fixture.box_processes(&server, &mark).is_empty());
    server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
    wait_until("the cancelled exec's processes are gone", || fixture.box_processes(&server, &mark).is_empty());
}
