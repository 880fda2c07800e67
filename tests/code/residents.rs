//! The box that stays with a session: what is left in it is found again, and it ends with its session.

use serde_json::{Value, json};
use tests::support::server::Answer;

use crate::site::Site;

fn exec(site: &Site, session: &str, command: &str) -> Answer {
    site.server.ask("POST", &format!("/api/sessions/{session}/exec"), Some(&json!({ "command": command })))
}

/// Nobody is asked about what these commands do to their own box.
fn unasked() -> Site {
    let site = Site::start();
    site.set(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    site
}

#[test]
fn what_is_left_in_a_sessions_box_is_found_again() {
    let site = unasked();
    let first = exec(&site, "s", "echo kept > /tmp/state; sleep 1000 & echo $! > /tmp/pid; echo hello").expect(200);
    assert_eq!((&first["success"], &first["sandbox_type"]), (&json!(true), &json!("aio")), "{first}");
    assert_eq!(first["stdout"], "hello\n");
    let second = exec(&site, "s", "cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive").expect(200);
    assert_eq!(second["stdout"], "kept\nalive\n", "{second}");
    // It is an exec like any other.
    let recorded = site.server.exec(second["exec_id"].as_str().unwrap());
    assert_eq!((&recorded["status"], &recorded["backend"]), (&json!("SUCCEEDED"), &json!("aio")));
    let code = json!({ "session_id": "s", "code": "print(open('/tmp/state').read())", "backend": "aio" });
    assert_eq!(site.run(&code).expect(200)["stdout"], "kept\n\n");
    let other = exec(&site, "other", "cat /tmp/state; true").expect(200);
    assert_eq!(other["stdout"], "", "another session has another box");
    let alone = json!({ "session_id": "s", "code": "cat /tmp/state; true", "language": "shell" });
    assert_eq!(site.run(&alone).expect(200)["stdout"], "", "a box of its own is none that stays");
    site.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    assert_eq!(exec(&site, "s", "cat /tmp/state; true").expect(200)["stdout"], "", "it ended with its session");
}

#[test]
fn limits_and_endings_are_those_of_any_exec() {
    let site = unasked();
    let failed = exec(&site, "s", "echo x >&2; exit 3").expect(200);
    assert_eq!((&failed["exit_code"], &failed["stderr"]), (&json!(3), &json!("x\n")));
    let slow = json!({ "command": "sleep 1000", "timeout": 1 });
    let slow = site.server.ask("POST", "/api/sessions/s/exec", Some(&slow)).expect(200);
    assert_eq!((&slow["success"], &slow["exit_code"]), (&json!(false), &json!(-1)));
    let much = json!({ "command": "head -c 100 /dev/zero | tr '\\0' x", "max_output_bytes": 7 });
    assert_eq!(site.server.ask("POST", "/api/sessions/s/exec", Some(&much)).expect(200)["stdout"], "xxxxxxx");
    // Its own agent killed: the box ends, and the next command gets another.
    let killed = exec(&site, "s", "echo x > /tmp/state; kill -9 $PPID; sleep 1000").expect(200);
    assert_eq!(killed["success"], json!(false), "{killed}");
    assert_eq!(exec(&site, "s", "cat /tmp/state || echo new").expect(200)["stdout"], "new\n");
}

#[test]
fn a_process_is_read_written_and_signalled_to() {
    let site = unasked();
    let script =
        "read -r line; echo \"got $line\"; trap 'echo bye; exit 4' USR1; echo ready >&2; while :; do sleep 0.1; done";
    let begun = json!({ "command": script });
    let begun = site.server.ask("POST", "/api/sessions/s/processes", Some(&begun)).expect(202);
    let pid = begun["pid"].as_str().unwrap();
    let route = |what: &str| format!("/api/sessions/s/processes/{pid}/{what}");
    let output = |words: &str| site.server.ask("GET", &route(&format!("output{words}")), None).expect(200);
    let send = |what: &str, body: Value| site.server.ask("POST", &route(what), Some(&body));
    let until = |is_so: &dyn Fn(&Value) -> bool| {
        let began = std::time::Instant::now();
        loop {
            let seen = output("");
            if is_so(&seen) {
                return seen;
            }
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "{seen}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    // Nobody is told when it has begun.
    until(&|seen| seen["status"] == "RUNNING");
    let began = std::time::Instant::now();
    while send("stdin", json!({ "data": "this\n", "close": true })).status != 200 {
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    }
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
    site.server.ask("GET", &elsewhere, None).expect(404);
    site.server.ask_as(&site.user("stranger"), "GET", &route("output"), None).expect(404);
}

#[test]
fn a_paused_session_stands_still_and_strangers_do_not_turn_it() {
    let site = unasked();
    let turn = |token: &str, verb: &str| site.server.ask_as(token, "POST", &format!("/api/sessions/s/{verb}"), None);
    let own = site.server.token.clone();
    turn(&own, "pause").expect(404);
    exec(&site, "s", "true").expect(200);
    assert_eq!(turn(&own, "pause").expect(200)["paused"], json!(true));
    let refused = exec(&site, "s", "true").expect(409);
    assert!(refused["error"]["message"].as_str().unwrap().contains("paused"), "{refused}");
    turn(&site.user("stranger"), "resume").expect(404);
    assert_eq!(turn(&own, "resume").expect(200)["paused"], json!(false));
    assert_eq!(exec(&site, "s", "echo on").expect(200)["stdout"], "on\n");
}
