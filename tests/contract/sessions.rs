//! The session box on every backend: state between execs, processes with stdin and signals, a
//! pause, an interpreter context, and deletion.

use serde_json::{Value, json};
use tests::support::server::{Answer, Server};
use tests::support::wait::{wait_for, wait_until};

use crate::fixture::Fixture;

fn exec(server: &Server, command: &str) -> Answer {
    server.ask("POST", "/api/sessions/s/exec", Some(&json!({ "command": command })))
}

fn cell(server: &Server, code: &str) -> Value {
    let body = json!({ "session_id": "s", "context_id": "c", "code": code });
    server.ask("POST", "/api/run", Some(&body)).expect(200)
}

fn until(look: impl Fn() -> Value, is_so: impl Fn(&Value) -> bool) -> Value {
    wait_for("the expected state", || Some(look()).filter(&is_so))
}

pub(crate) fn session_box_keeps_state(fixture: &Fixture) {
    let server = fixture.start();
    let name = fixture.backend.name();
    let settings = json!({ "sessions": { "confirmation": "auto-approve" }, "strict": { "backends": [name] } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    let first =
        exec(&server, "echo kept > /tmp/state; sleep 1000 & echo $! > /tmp/pid; echo made > output/made").expect(200);
    assert_eq!((&first["success"], &first["files_created"]), (&json!(true), &json!(["output/made"])), "{first}");
    let second = exec(&server, "cat /tmp/state; kill -0 $(cat /tmp/pid) && echo alive").expect(200);
    assert_eq!((&second["stdout"], &second["sandbox_type"]), (&json!("kept\nalive\n"), &json!("aio")), "{second}");

    let script =
        "read -r line; echo \"got $line\"; trap 'echo bye; exit 4' USR1; echo ready; while :; do sleep 0.1; done";
    let begun = server.ask("POST", "/api/sessions/s/processes", Some(&json!({ "command": script }))).expect(202);
    let route = |what: &str| format!("/api/sessions/s/processes/{}/{what}", begun["pid"].as_str().unwrap());
    let output = || server.ask("GET", &route("output"), None).expect(200);
    let tell = |what: &str, body: Value| server.ask("POST", &route(what), Some(&body)).status;
    wait_until("stdin to be accepted", || tell("stdin", json!({ "data": "this\n" })) == 200);
    until(output, |seen| seen["stdout"]["text"] == "got this\nready\n");

    cell(&server, "x = 41");
    assert_eq!(cell(&server, "x + 1")["results"], json!([{ "text/plain": "42" }]), "beside the process");
    let turn = |verb: &str| server.ask("POST", &format!("/api/sessions/s/{verb}"), None).expect(200)["paused"].clone();
    assert_eq!(turn("pause"), json!(true));
    assert_eq!(exec(&server, "true").status, 409);
    assert_eq!(turn("resume"), json!(false));
    assert_eq!(cell(&server, "x")["results"], json!([{ "text/plain": "41" }]));

    assert_eq!(tell("signal", json!({ "signal": "USR1" })), 200);
    let over = until(output, |seen| seen["status"] != "RUNNING");
    assert_eq!((&over["status"], &over["exit_code"]), (&json!("FAILED"), &json!(4)), "{over}");
    assert_eq!(over["stdout"]["text"], "got this\nready\nbye\n");

    // A paused session with a running process can be deleted.
    server.ask("POST", "/api/sessions/s/processes", Some(&json!({ "command": "sleep 1000" }))).expect(202);
    until(|| server.ask("GET", "/api/pool", None).expect(200), |pool| pool["busy"] == 1);
    turn("pause");
    assert_eq!(server.ask("DELETE", "/api/sessions/s", None).expect(200)["deleted"], true);
    assert_eq!(server.ask("GET", "/api/sessions/s", None).status, 404);
    assert_eq!(
        exec(&server, "cat /tmp/state; cat output/made; true").expect(200)["stdout"],
        "",
        "nothing is left of it"
    );
}
