//! Strict and permissive mode: code that is refused without asking, and demanded backends.

use serde_json::{Value, json};

use crate::fixture::{Fixture, code_of};

#[test]
fn destructive_code_is_refused_without_asking() {
    let fixture = Fixture::start();
    for code in ["rm -rf /", "sudo rm -fr ~", "mkfs.ext4 /dev/sda", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:"] {
        let response = fixture.shell(code);
        assert_eq!((&response["success"], &response["exit_code"]), (&json!(false), &json!(-1)), "{code}");
        assert!(response["error"].as_str().unwrap().starts_with("Execution refused: "), "{response}");
        let exec = fixture.server.exec(response["exec_id"].as_str().unwrap());
        assert_eq!(
            (&exec["status"], &exec["started_at"]),
            (&json!("POLICY_DENIED"), &Value::Null),
            "the denial is recorded and the code did not run"
        );
    }
    let authorization = format!("Bearer {}", fixture.server.token);
    let headers = [("authorization", authorization.as_str()), ("accept-language", "zh-CN,zh;q=0.9")];
    let body = json!({ "session_id": "s", "code": "rm -rf /", "language": "shell" });
    let response = fixture.server.ask_with("POST", "/api/run", &headers, Some(&body)).expect(200);
    assert!(response["error"].as_str().unwrap().starts_with("执行被拒绝: "), "{response}");
    assert!(fixture.approvals("").is_empty(), "an approval was opened");
}

#[test]
fn destructive_code_in_permissive_session_asks() {
    let fixture = Fixture::start();
    fixture
        .server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "security_mode": "permissive" })))
        .expect(201);
    let (run, question) =
        fixture.run_until_question(json!({ "session_id": "s", "code": "rm -rf /", "language": "shell" }));
    assert_eq!(question["risk_level"], "critical");
    fixture.answer(&question, &json!({ "approved": false })).expect(200);
    assert_eq!(run.join().unwrap()["error"], "Execution refused: denied by a person");
}

#[test]
fn missing_backend_is_not_replaced_by_another() {
    let fixture = Fixture::start();
    let run = |code: &str, backend: Value| {
        fixture.run(&json!({ "session_id": "s", "code": code, "language": "shell", "backend": backend }))
    };
    assert_eq!(run("echo 1", json!("native")).expect(200)["sandbox_type"], "native");
    // Without a docker client neither docker nor gVisor through docker is available.
    let cli = "/nonexistent/docker";
    let bare =
        Fixture::start_with_env(&[("RINGWALL_SANDBOX_DOCKER_CLI_PATH", cli), ("RINGWALL_STRICT_BACKENDS", "docker")]);
    let run = |code: &str, backend: Value| {
        bare.run(&json!({ "session_id": "s", "code": code, "language": "shell", "backend": backend }))
    };
    assert_eq!(run("ls", Value::Null).expect(200)["sandbox_type"], "native", "safe code needs no demanded backend");
    assert_eq!(code_of(run("make x", Value::Null), 503), "backend_unavailable");
    assert_eq!(code_of(run("make x", json!("native")), 503), "backend_unavailable");
    assert_eq!(code_of(run("ls", json!("docker")), 503), "backend_unavailable");
    bare.change_session_as(&bare.server.token, "s", &json!({ "security_mode": "permissive" })).expect(200);
    assert_eq!(run("make x", Value::Null).expect(200)["sandbox_type"], "native");
    let settings = bare.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(settings["strict"]["backends"], json!(["docker"]));
    let several = Fixture::start_with_env(&[("RINGWALL_SANDBOX_DOCKER_CLI_PATH", cli)]);
    several.change_settings(&json!({ "strict": { "backends": ["native", "docker"] } }));
    assert_eq!(several.shell("make x")["sandbox_type"], "native", "the strongest available backend");
    for wrong in [json!([]), json!(["vm"]), json!("native")] {
        let body = json!({ "strict": { "backends": wrong } });
        assert_eq!(several.server.ask("PUT", "/settings", Some(&body)).status, 400, "{body}");
    }
}
