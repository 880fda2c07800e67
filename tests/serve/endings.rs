//! The ways in which an exec ends, and requests that are the same request.

use std::thread;

use serde_json::{Value, json};

use crate::server::{Server, shell};

#[test]
fn time_memory_and_files_have_their_endings() {
    let server = Server::start();
    let mut slow = shell("sleep 600");
    slow["policy_overrides"] = json!({ "timeout_ms": 300 });
    let slow = server.ask("POST", "/sandbox/execs", Some(&slow)).expect(200);
    assert_eq!(
        (&slow["status"], &slow["exit_code"], &slow["error_reason"]["code"]),
        (&json!("TIMEOUT"), &Value::Null, &json!("TIMEOUT"))
    );
    let mut greedy = shell("exec python3 -c 'b=bytearray(400<<20); print(len(b))'");
    greedy["policy_overrides"] = json!({ "memory_mb": 64 });
    let greedy = server.ask("POST", "/sandbox/execs", Some(&greedy)).expect(200);
    assert_eq!((&greedy["status"], &greedy["error_reason"]["code"]), (&json!("FAILED"), &json!("OOM")), "{greedy}");
    let mut hoarder = shell("head -c 5000 /dev/zero > /workspace/artifacts/f");
    hoarder["policy_overrides"] = json!({ "max_artifacts_bytes_total": 1000 });
    let hoarder = server.ask("POST", "/sandbox/execs", Some(&hoarder)).expect(200);
    assert_eq!((&hoarder["status"], &hoarder["error_reason"]["code"]), (&json!("FAILED"), &json!("ARTIFACTS_LIMIT")));
    let mut loud = shell("head -c 3000 /dev/zero | tr '\\0' x; echo done >&2");
    loud["policy_overrides"] = json!({ "max_stdout_bytes": 1000 });
    let loud = server.ask("POST", "/sandbox/execs", Some(&loud)).expect(200);
    assert_eq!(
        (&loud["status"], &loud["stdout_truncated"], &loud["stderr_truncated"]),
        (&json!("SUCCEEDED"), &json!(true), &json!(false))
    );
}

#[test]
fn an_asynchronous_exec_is_cancelled_once() {
    let server = Server::start();
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    let path = format!("/sandbox/execs/{id}");
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "RUNNING");
    assert_eq!(server.ask("DELETE", &path, None).expect(202)["status"], "CANCELLED");
    assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "CANCELLED");
    server.ask("DELETE", &path, None).refused(409);
}

#[test]
fn a_key_makes_one_exec() {
    let server = Server::start();
    let authorization = format!("Bearer {}", server.token);
    let ask = |key: &str, script: &str| {
        let headers = [("authorization", authorization.as_str()), ("idempotency-key", key)];
        server.ask_with("POST", "/sandbox/execs", &headers, Some(&shell(script)))
    };
    let count = "echo x >> runs; wc -l < runs";
    let ids: Vec<Value> = thread::scope(|scope| {
        let both = [scope.spawn(|| ask("k", count)), scope.spawn(|| ask("k", count))];
        both.map(|one| one.join().unwrap().expect(200)["exec_id"].clone()).into()
    });
    assert_eq!(ids[0], ids[1]);
    let other = ask("l", count).expect(200)["exec_id"].as_str().unwrap().to_owned();
    let output = server.ask("GET", &format!("/sandbox/execs/{other}/stdout"), None).expect(200);
    assert_eq!(output["content"], "2\n", "the first key ran more than once");
    ask("k", "echo different").refused(409);
}

#[test]
fn a_full_queue_is_said_to_be_full() {
    let server = Server::start();
    let patch = json!({ "sandbox": { "max_concurrent_execs": 1, "max_queued_execs": 1 } });
    server.ask("PUT", "/settings", Some(&patch)).expect(200);
    let running = server.begin("echo begun; sleep 600");
    server.wait_for_output(&running);
    let queued = server.begin("echo second");
    assert_eq!(server.ask("GET", &format!("/sandbox/execs/{queued}"), None).expect(200)["status"], "QUEUED");
    let full = server.ask("POST", "/sandbox/execs", Some(&shell("true")));
    assert!(full.headers.contains_key("retry-after"));
    assert_eq!(full.refused(429), "QUEUE_FULL");
    server.ask("DELETE", &format!("/sandbox/execs/{running}"), None).expect(202);
    server.wait_for_output(&queued);
}

#[test]
fn inputs_are_there_for_the_exec_and_whole_or_not_at_all() {
    let server = Server::start();
    let mut body = shell("cat /workspace/inputs/a/b.txt; touch /workspace/inputs/x 2>/dev/null || echo read-only");
    body["inputs"] = json!([{ "path": "a/b.txt", "content": "in\n" }]);
    body["task_ref"] = json!({ "conversation_id": "talk" });
    body.as_object_mut().unwrap().remove("project_id");
    let done = server.ask("POST", "/sandbox/execs", Some(&body)).expect(200);
    let id = done["exec_id"].as_str().unwrap();
    assert_eq!(done["artifacts_dir"], format!("projects/talk/artifacts/{id}"));
    assert_eq!(
        server.ask("GET", &format!("/sandbox/execs/{id}/stdout"), None).expect(200)["content"],
        "in\nread-only\n"
    );
    let mut bad = shell("true");
    bad["project_id"] = "fresh".into();
    bad["inputs"] = json!([{ "path": "good", "content": "" }, { "path": "a/../../up", "content": "" }]);
    let detail = &server.ask("POST", "/sandbox/execs", Some(&bad)).expect(400)["detail"];
    assert!(detail["message"].as_str().unwrap().contains("a/../../up"), "{detail}");
    let mut look = shell("ls -A /workspace/inputs");
    look["project_id"] = "fresh".into();
    let look = server.ask("POST", "/sandbox/execs", Some(&look)).expect(200);
    let path = format!("/sandbox/execs/{}/stdout", look["exec_id"].as_str().unwrap());
    assert_eq!(server.ask("GET", &path, None).expect(200)["content"], "");
}

#[test]
fn a_backend_that_is_not_there_is_said_and_none_takes_its_place() {
    let server = Server::start_with(&["--docker-cli-path", "/nonexistent/docker"]);
    let mut body = shell("true");
    body["backend"] = "docker".into();
    assert_eq!(server.ask("POST", "/sandbox/execs", Some(&body)).refused(503), "BACKEND_UNAVAILABLE");
    body["backend"] = "moon".into();
    assert_eq!(server.ask("POST", "/sandbox/execs", Some(&body)).refused(400), "INVALID_ARGUMENT");
}
