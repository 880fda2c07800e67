//! Refused execs, execs of other users, skill invocations and settings that apply to execs.

use serde_json::json;

use crate::server::{Server, shell};

#[test]
fn malformed_and_denied_requests_name_the_reason() {
    let server = Server::start();
    let exec = || json!({ "kind": "shell", "command": "bash", "args": ["-lc", "true"] });
    let bad = [
        json!({}),
        json!([]),
        json!({ "project_id": "../x", "exec": exec() }),
        json!({ "project_id": "p", "exec": exec(), "surprise": 1 }),
        json!({ "project_id": "p", "exec": exec(), "policy_overrides": { "surprise": 1 } }),
        json!({ "project_id": "p", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", "true"], "cwd": "/etc" } }),
        json!({ "project_id": "p", "exec": exec(), "inputs": [{ "path": "../up", "content": "" }] }),
        json!({ "project_id": "p", "exec": exec(), "inputs": [{ "path": "good", "content": "" }, { "path": "/abs", "content": "" }] }),
        json!({ "project_id": "p", "exec": { "kind": "shell", "command": "bash", "env": { "K": 1 } } }),
    ];
    for body in bad {
        assert_eq!(server.ask("POST", "/sandbox/execs", Some(&body)).refused(400), "INVALID_ARGUMENT", "{body}");
    }
    let denied = [
        json!({ "project_id": "p", "exec": { "kind": "perl", "command": "perl", "args": [] } }),
        json!({ "project_id": "p", "exec": { "kind": "shell", "command": "sh", "args": ["-c", "true"] } }),
        json!({ "project_id": "p", "exec": exec(), "policy_overrides": { "timeout_ms": 999_999_999 } }),
    ];
    for body in denied {
        let answer = server.ask("POST", "/sandbox/execs", Some(&body)).expect(403);
        assert_eq!(answer["detail"]["code"], "POLICY_DENIED", "{answer}");
        let path = format!("/sandbox/execs/{}", answer["detail"]["exec_id"].as_str().unwrap());
        assert_eq!(server.ask("GET", &path, None).expect(200)["status"], "POLICY_DENIED");
    }
    let limit = json!({ "project_id": "p", "exec": exec(), "policy_overrides": { "timeout_ms": 999_999_999 } });
    let detail = &server.ask("POST", "/sandbox/execs", Some(&limit)).expect(403)["detail"];
    assert_eq!(
        (&detail["field"], &detail["asked"], &detail["allowed"]),
        (&json!("timeout_ms"), &json!(999_999_999), &json!(60000))
    );
    assert!(detail["layer"].is_string(), "{detail}");
}

#[test]
fn exec_of_another_user_is_not_found() {
    let server = Server::start();
    let (ann, bob) = (
        server.make_token(&["--role", "user", "--user", "ann"]),
        server.make_token(&["--role", "user", "--user", "bob"]),
    );
    let agent = server.make_token(&["--role", "agent", "--user", "ann", "--agent", "a1"]);
    let id = server.ask_as(&ann, "POST", "/sandbox/execs", Some(&shell("true"))).expect(200)["exec_id"]
        .as_str()
        .unwrap()
        .to_owned();
    for (token, status) in [(&ann, 200), (&bob, 404), (&agent, 404), (&server.token, 200)] {
        let path = format!("/sandbox/execs/{id}");
        assert_eq!(server.ask_as(token, "GET", &path, None).status, status);
        for part in ["artifacts", "artifacts/stdout.txt", "stdout", "stderr", "events", "observation"] {
            assert_eq!(server.ask_as(token, "GET", &format!("{path}/{part}"), None).status, status, "{part}");
        }
    }
    assert_eq!(server.ask_as(&bob, "GET", "/sandbox/execs", None).expect(200), json!([]));
    assert_eq!(server.ask_as(&bob, "DELETE", &format!("/sandbox/execs/{id}"), None).refused(404), "NOT_FOUND");
    let mut foreign = shell("true");
    foreign["user_id"] = "ann".into();
    assert_eq!(server.ask_as(&bob, "POST", "/sandbox/execs", Some(&foreign)).status, 403);
}

#[test]
fn skill_invocation_is_an_exec() {
    let server = Server::start();
    let skills = server.ask("GET", "/skills", None).expect(200);
    let ids: Vec<&str> = skills.as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"shell.run") && ids.contains(&"python.run"), "{ids:?}");
    assert_eq!(server.ask("GET", "/skills?include=invalid", None).expect(200)["invalid"], json!([]));
    let call = json!({ "project_id": "p", "script": "echo skilled" });
    let done = server.ask("POST", "/skills/shell.run/invoke", Some(&call)).expect(200);
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    let path = format!("/sandbox/execs/{}", done["exec_id"].as_str().unwrap());
    assert_eq!(server.ask("GET", &path, None).expect(200)["skill_id"], "shell.run");
    assert_eq!(server.ask("POST", "/skills/no.such/invoke", Some(&call)).refused(404), "NOT_FOUND");
    let wrong = json!({ "project_id": "p", "script": 5 });
    let detail = &server.ask("POST", "/skills/shell.run/invoke", Some(&wrong)).expect(400)["detail"];
    assert_eq!((&detail["code"], &detail["field"]), (&json!("INVALID_INPUT"), &json!("script")), "{detail}");
}

#[test]
fn changed_limit_applies_to_the_next_exec() {
    let server = Server::start();
    let patch = json!({ "sandbox": { "limits": { "timeout_ms": 1234 } } });
    let after = server.ask("PUT", "/settings", Some(&patch)).expect(200);
    assert_eq!(after["sandbox"]["limits"]["timeout_ms"], 1234, "{after}");
    assert_eq!(server.ask("GET", "/settings", None).expect(200), after);
    let id = server.shell("true")["exec_id"].as_str().unwrap().to_owned();
    let view = server.ask("GET", &format!("/sandbox/execs/{id}"), None).expect(200);
    assert_eq!(view["policy_snapshot"]["limits"]["timeout_ms"], 1234);
    assert_eq!(view["policy_snapshot"]["layers"]["timeout_ms"], "settings");
    let unknown = json!({ "sandbox": { "limits": { "surprise": 1 } } });
    assert_eq!(server.ask("PUT", "/settings", Some(&unknown)).refused(400), "INVALID_ARGUMENT");
}
