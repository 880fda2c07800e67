//! Code in a session on every backend: same files, same answers, and no weaker box than the
//! settings demand.

use serde_json::{Value, json};
use tests::support::server::{Answer, Server};

use crate::fixture::{Backend, Fixture};

fn run(server: &Server, code: &str, backend: Value) -> Answer {
    let files = json!([{ "path": "data/given", "content": "given\n" }]);
    let body = json!({ "session_id": "s", "code": code, "language": "shell", "backend": backend, "files": files });
    server.ask("POST", "/api/run", Some(&body))
}

pub(crate) fn session_code_sees_same_files_on_every_backend(fixture: &Fixture) {
    let server = fixture.start();
    let name = fixture.backend.name();
    server.ask("PUT", "/settings", Some(&json!({ "sessions": { "confirmation": "auto-approve" } }))).expect(200);
    let ran = run(&server, "cat data/given; echo made > output/made; pwd; exit 3", json!(name)).expect(200);
    assert_eq!((&ran["stdout"], &ran["exit_code"]), (&json!("given\n/workspace\n"), &json!(3)), "{ran}");
    assert_eq!((&ran["sandbox_type"], &ran["files_created"]), (&json!(name), &json!(["output/made"])), "{ran}");
    let exec = server.exec(ran["exec_id"].as_str().unwrap());
    assert_eq!((&exec["backend"], &exec["status"]), (&json!(name), &json!("FAILED")));
    // Code that exceeds the kernel's limit for one argument.
    let long = ": x y z\n".repeat(16 * 1024) + "cat output/made; cat";
    let ran = run(&server, &long, json!(name)).expect(200);
    assert_eq!((&ran["stdout"], &ran["success"]), (&json!("made\n"), &json!(true)), "{}", ran["error"]);
    let native = run(&server, "cat output/made; stat -c %U output/made", json!("native")).expect(200);
    assert_eq!(native["stdout"], "made\nsandbox\n", "owner of a file from {name}: {native}");
}

pub(crate) fn strict_settings_choose_backend_of_code(fixture: &Fixture) {
    let server = fixture.start();
    let name = fixture.backend.name();
    server.ask("PUT", "/settings", Some(&json!({ "strict": { "backends": [name] } }))).expect(200);
    let ran = run(&server, "echo x > y", Value::Null).expect(200);
    assert_eq!((&ran["sandbox_type"], &ran["success"]), (&json!(name), &json!(true)), "{ran}");
    assert_eq!(run(&server, "ls", Value::Null).expect(200)["sandbox_type"], "native", "safe code runs natively");
    match fixture.backend {
        Backend::Native => {}
        Backend::Docker | Backend::Gvisor => {
            let weaker = run(&server, "echo x > y", json!("native")).expect(403);
            assert_eq!(weaker["error"]["code"], "POLICY_DENIED", "{weaker}");
            let exec = server.exec(weaker["error"]["exec_id"].as_str().unwrap());
            assert_eq!(exec["status"], "POLICY_DENIED", "a denied exec is recorded");
        }
    }
}
