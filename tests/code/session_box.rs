//! The session box: its state is kept between execs, and it ends with its session.

use serde_json::{Value, json};
use tests::support::server::Answer;
use tests::support::wait::{wait_for, wait_until};

use crate::fixture::Fixture;

fn exec(fixture: &Fixture, session: &str, command: &str) -> Answer {
    fixture.server.ask("POST", &format!("/api/sessions/{session}/exec"), Some(&json!({ "command": command })))
}

/// A server on which these commands need no approval.
fn start_with_auto_approve() -> Fixture {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    fixture
}

#[test]
fn session_box_keeps_files_and_processes_between_execs() {
    let fixture = start_with_auto_approve();
    let first = exec(&fixture, "s", "echo kept > /tmp/state; sleep 1000 & echo $! > /tmp/pid; echo hello").expect(200);
    assert_eq!((&first["success"], &first["sandbox_type"]), (&json!(true), &json!("aio")), "{first}");
    assert_eq!(first["stdout"], "hello\n");
    let second = exec(&fixture, "s", "cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive").expect(200);
    assert_eq!(second["stdout"], "kept\nalive\n", "{second}");
    // The command is recorded as an exec.
    let recorded = fixture.server.exec(second["exec_id"].as_str().unwrap());
    assert_eq!((&recorded["status"], &recorded["backend"]), (&json!("SUCCEEDED"), &json!("aio")));
    let code = json!({ "session_id": "s", "code": "print(open('/tmp/state').read())", "backend": "aio" });
    assert_eq!(fixture.run(&code).expect(200)["stdout"], "kept\n\n");
    let other = exec(&fixture, "other", "cat /tmp/state; true").expect(200);
    assert_eq!(other["stdout"], "", "another session has another box");
    let alone = json!({ "session_id": "s", "code": "cat /tmp/state; true", "language": "shell" });
    assert_eq!(fixture.run(&alone).expect(200)["stdout"], "", "a single-use box saw the state");
    fixture.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    assert_eq!(exec(&fixture, "s", "cat /tmp/state; true").expect(200)["stdout"], "", "the box outlived its session");
}

#[test]
fn session_exec_has_timeout_output_limit_and_exit_code() {
    let fixture = start_with_auto_approve();
    let failed = exec(&fixture, "s", "echo x >&2; exit 3").expect(200);
    assert_eq!((&failed["exit_code"], &failed["stderr"]), (&json!(3), &json!("x\n")));
    let slow = json!({ "command": "sleep 1000", "timeout": 1 });
    let slow = fixture.server.ask("POST", "/api/sessions/s/exec", Some(&slow)).expect(200);
    assert_eq!((&slow["success"], &slow["exit_code"]), (&json!(false), &json!(-1)));
    let much = json!({ "command": "head -c 100 /dev/zero | tr '\\0' x", "max_output_bytes": 7 });
    assert_eq!(fixture.server.ask("POST", "/api/sessions/s/exec", Some(&much)).expect(200)["stdout"], "xxxxxxx");
    // When the in-box agent is killed, the box ends, and the next command gets a new one.
    let killed = exec(&fixture, "s", "echo x > /tmp/state; kill -9 $PPID; sleep 1000").expect(200);
    assert_eq!(killed["success"], json!(false), "{killed}");
    assert_eq!(exec(&fixture, "s", "cat /tmp/state || echo new").expect(200)["stdout"], "new\n");
}

#[test]
fn process_output_input_and_signals_work() {
    let fixture = start_with_auto_approve();
    let script =
        "read -r line; echo \"got $line\"; trap 'echo bye; exit 4' USR1; echo ready >&2; while :; do sleep 0.1; done";
    let begun = json!({ "command": script });
    let begun = fixture.server.ask("POST", "/api/sessions/s/processes", Some(&begun)).expect(202);
    let pid = begun["pid"].as_str().unwrap();
    let route = |what: &str| format!("/api/sessions/s/processes/{pid}/{what}");
    let output = |words: &str| fixture.server.ask("GET", &route(&format!("output{words}")), None).expect(200);
    let send = |what: &str, body: Value| fixture.server.ask("POST", &route(what), Some(&body));
    let until = |is_so: &dyn Fn(&Value) -> bool| wait_for("the process", || Some(output("")).filter(is_so));
    // The start is only visible in its status.
    until(&|seen| seen["status"] == "RUNNING");
    wait_until("stdin to be accepted", || send("stdin", json!({ "data": "this\n", "close": true })).status == 200);
    assert_eq!(send("stdin", json!({ "data": "more" })).status, 409, "it was closed");
    let seen = until(&|seen| seen["stderr"]["text"] == "ready\n");
    assert_eq!((&seen["stdout"]["text"], &seen["stdout"]["next"]), (&json!("got this\n"), &json!(9)));
    assert_eq!(output("?stdout=4&stderr=6")["stdout"]["text"], "this\n", "from any byte on");
    assert_eq!(send("signal", json!({ "signal": "NONE" })).status, 400);
    send("signal", json!({ "signal": "USR1" })).expect(200);
    let over = until(&|seen| seen["status"] == "FAILED");
    assert_eq!((&over["exit_code"], &over["stdout"]["text"]), (&json!(4), &json!("got this\nbye\n")));
    send("signal", json!({ "signal": "TERM" })).expect(404);
    let elsewhere = format!("/api/sessions/other/processes/{pid}/output");
    fixture.server.ask("GET", &elsewhere, None).expect(404);
    fixture.server.ask_as(&fixture.user_token("stranger"), "GET", &route("output"), None).expect(404);
}

#[test]
fn paused_session_rejects_execs_and_other_user_cannot_resume_it() {
    let fixture = start_with_auto_approve();
    let pause_or_resume =
        |token: &str, verb: &str| fixture.server.ask_as(token, "POST", &format!("/api/sessions/s/{verb}"), None);
    let own = fixture.server.token.clone();
    pause_or_resume(&own, "pause").expect(404);
    exec(&fixture, "s", "true").expect(200);
    assert_eq!(pause_or_resume(&own, "pause").expect(200)["paused"], json!(true));
    let refused = exec(&fixture, "s", "true").expect(409);
    assert!(refused["error"]["message"].as_str().unwrap().contains("paused"), "{refused}");
    pause_or_resume(&fixture.user_token("stranger"), "resume").expect(404);
    assert_eq!(pause_or_resume(&own, "resume").expect(200)["paused"], json!(false));
    assert_eq!(exec(&fixture, "s", "echo on").expect(200)["stdout"], "on\n");
}
