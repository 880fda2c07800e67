//! The ways in which an exec ends, and requests that are the same request.

use std::thread;

use serde_json::{Value, json};
use tests::support::docker_daemon::wait_until;
use tests::support::server::Server;

use crate::site::Site;

/// A script under one limit that is tighter than usual.
fn limited(server: &Server, script: &str, limit: &str, value: u64) -> Value {
    let mut body = server.request(script);
    body["policy_overrides"] = json!({ limit: value });
    server.run(&body)
}

pub(crate) fn too_long(site: &Site) {
    let server = site.start();
    // Where a shell does not get so far in time, it is given more.
    let mut said = String::new();
    for limit in [1_000, 5_000, 50_000] {
        let slow = limited(&server, "trap '' TERM; echo begun; while :; do sleep 600; done", "timeout_ms", limit);
        assert_eq!(
            (&slow["status"], &slow["exit_code"], &slow["error_reason"]["code"]),
            (&json!("TIMEOUT"), &Value::Null, &json!("TIMEOUT"))
        );
        assert!(slow["error_reason"]["message"].as_str().unwrap().contains(&limit.to_string()), "{slow}");
        said = server.stdout(&slow);
        if !said.is_empty() {
            break;
        }
    }
    assert_eq!(said, "begun\n", "what it said before stays");
}

pub(crate) fn too_much_memory(site: &Site) {
    let server = site.start();
    let greedy = limited(&server, "exec python3 -c 'b=bytearray(400<<20); print(len(b))'", "memory_mb", 64);
    assert_eq!((&greedy["status"], &greedy["error_reason"]["code"]), (&json!("FAILED"), &json!("OOM")), "{greedy}");
    assert_eq!(greedy["exit_code"], 137, "{greedy}");
}

pub(crate) fn too_many_artifacts(site: &Site) {
    let server = site.start();
    let script = "head -c 600 /dev/zero > ../artifacts/a; head -c 5000 /dev/zero > ../artifacts/b; head -c 9000 /dev/zero > scratch";
    let hoarder = limited(&server, script, "max_artifacts_bytes_total", 1000);
    assert_eq!((&hoarder["status"], &hoarder["error_reason"]["code"]), (&json!("FAILED"), &json!("ARTIFACTS_LIMIT")));
    let path = format!("/sandbox/execs/{}/artifacts", hoarder["exec_id"].as_str().unwrap());
    let files = server.ask("GET", &path, None).expect(200)["files"].clone();
    let own = ["stdout.txt", "stderr.txt", "meta.json"];
    let left = files.as_array().unwrap().iter().filter(|file| !own.contains(&file["path"].as_str().unwrap()));
    let kept: u64 = left.map(|file| file["size"].as_u64().unwrap()).sum();
    assert!(kept <= 1000, "{files}");
    // What is in `work` does not count.
    let within = limited(&server, "head -c 9000 /dev/zero > scratch", "max_artifacts_bytes_total", 1000);
    assert_eq!(within["status"], "SUCCEEDED");
}

pub(crate) fn too_much_output(site: &Site) {
    let server = site.start();
    let loud = limited(&server, "head -c 300000 /dev/zero | tr '\\0' x; echo done >&2", "max_stdout_bytes", 1000);
    assert_eq!(
        (&loud["status"], &loud["stdout_truncated"], &loud["stderr_truncated"]),
        (&json!("SUCCEEDED"), &json!(true), &json!(false))
    );
    assert_eq!(server.stdout(&loud), "x".repeat(1000));
}

pub(crate) fn cancelled_once(site: &Site) {
    let server = site.start();
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    let path = format!("/sandbox/execs/{id}");
    assert_eq!(server.exec(&id)["status"], "RUNNING");
    assert_eq!(server.ask("DELETE", &path, None).expect(202)["status"], "CANCELLED");
    assert_eq!(server.exec(&id)["status"], "CANCELLED");
    server.ask("DELETE", &path, None).refused(409);
    assert_eq!(server.ask("GET", &format!("{path}/stdout"), None).expect(200)["content"], "begun\n");
}

pub(crate) fn one_key_is_one_exec(site: &Site) {
    let server = site.start();
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

pub(crate) fn what_is_left_in_the_box_ends_with_it(site: &Site) {
    let server = site.start();
    let mark = tests::support::scratch::token().unwrap();
    let script = format!("setsid bash -c 'trap \"\" TERM HUP; while :; do sleep 600; done' {mark} & echo done");
    let done = server.shell(&script);
    assert_eq!((server.stdout(&done).as_str(), &done["status"]), ("done\n", &json!("SUCCEEDED")), "{done}");
    // The answer comes when the record has the ending, and the box is gone before that.
    assert_eq!(site.boxed(&server, &mark), [0_u32; 0], "something of the box outlives it");
    // The control: while its exec runs, it is to be seen.
    let id = server.begin(&format!("echo begun; sleep 600; : {mark}"));
    server.wait_for_output(&id);
    assert!(!site.boxed(&server, &mark).is_empty());
    server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
    wait_until("the cancelled exec's processes are gone", || site.boxed(&server, &mark).is_empty());
}
