//! The strict mode and the permissive one: what is refused outright, and which boxes are demanded.

use serde_json::{Value, json};

use crate::site::{Site, code_of};

#[test]
fn destruction_is_refused_without_asking_anybody() {
    let site = Site::start();
    for code in ["rm -rf /", "sudo rm -fr ~", "mkfs.ext4 /dev/sda", "dd if=/dev/zero of=/dev/sda", ":(){ :|:& };:"] {
        let told = site.shell(code);
        assert_eq!((&told["success"], &told["exit_code"]), (&json!(false), &json!(-1)), "{code}");
        assert!(told["error"].as_str().unwrap().starts_with("Execution refused: "), "{told}");
        let exec = site.server.exec(told["exec_id"].as_str().unwrap());
        assert_eq!(
            (&exec["status"], &exec["started_at"]),
            (&json!("POLICY_DENIED"), &Value::Null),
            "on record, never run"
        );
    }
    let authorization = format!("Bearer {}", site.server.token);
    let headers = [("authorization", authorization.as_str()), ("accept-language", "zh-CN,zh;q=0.9")];
    let body = json!({ "session_id": "s", "code": "rm -rf /", "language": "shell" });
    let told = site.server.ask_with("POST", "/api/run", &headers, Some(&body)).expect(200);
    assert!(told["error"].as_str().unwrap().starts_with("执行被拒绝: "), "{told}");
    assert!(site.approvals("").is_empty(), "nobody was asked");
}

#[test]
fn a_permissive_session_is_asked_about_destruction() {
    let site = Site::start();
    site.server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "security_mode": "permissive" })))
        .expect(201);
    let (run, question) = site.asked(json!({ "session_id": "s", "code": "rm -rf /", "language": "shell" }));
    assert_eq!(question["risk_level"], "critical");
    site.answer(&question, &json!({ "approved": false })).expect(200);
    assert_eq!(run.join().unwrap()["error"], "Execution refused: a person has denied it");
}

#[test]
fn a_backend_that_is_not_there_is_not_stood_in_for() {
    let site = Site::start();
    let run = |code: &str, backend: Value| {
        site.run(&json!({ "session_id": "s", "code": code, "language": "shell", "backend": backend }))
    };
    assert_eq!(run("echo 1", json!("native")).expect(200)["sandbox_type"], "native");
    // No docker client: neither is it docker's, nor a runtime of docker's.
    let cli = "/nonexistent/docker";
    let bare = Site::start_under(&[("RINGWALL_SANDBOX_DOCKER_CLI_PATH", cli), ("RINGWALL_STRICT_BACKENDS", "docker")]);
    let run = |code: &str, backend: Value| {
        bare.run(&json!({ "session_id": "s", "code": code, "language": "shell", "backend": backend }))
    };
    assert_eq!(run("ls", Value::Null).expect(200)["sandbox_type"], "native", "what is safe runs anywhere");
    assert_eq!(code_of(run("make x", Value::Null), 503), "backend_unavailable");
    assert_eq!(code_of(run("make x", json!("native")), 503), "backend_unavailable");
    assert_eq!(code_of(run("ls", json!("docker")), 503), "backend_unavailable");
    bare.rule(&bare.server.token, "s", &json!({ "security_mode": "permissive" })).expect(200);
    assert_eq!(run("make x", Value::Null).expect(200)["sandbox_type"], "native");
    let settings = bare.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(settings["strict"]["backends"], json!(["docker"]));
    let several = Site::start_under(&[("RINGWALL_SANDBOX_DOCKER_CLI_PATH", cli)]);
    several.set(&json!({ "strict": { "backends": ["native", "docker"] } }));
    assert_eq!(several.shell("make x")["sandbox_type"], "native", "the strongest that is there");
    for wrong in [json!([]), json!(["vm"]), json!("native")] {
        let body = json!({ "strict": { "backends": wrong } });
        assert_eq!(several.server.ask("PUT", "/settings", Some(&body)).status, 400, "{body}");
    }
}
