//! Confirmation of code: questions, answers, changed code, modes and callbacks.

use std::net::TcpListener;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::fixture::{Delivery, Fixture, RISKY, code_of};

fn risky() -> Value {
    json!({ "session_id": "s", "code": RISKY, "language": "python" })
}

#[test]
fn question_shows_whole_code_and_each_run_needs_its_own_answer() {
    let fixture = Fixture::start();
    let (run, question) = fixture.run_until_question(risky());
    assert_eq!((&question["kind"], &question["session_id"]), (&json!("risk"), &json!("s")));
    assert_eq!((&question["risk_level"], &question["code"]), (&json!("critical"), &json!(RISKY)));
    assert!(question["description"].as_str().unwrap().contains("shell"), "{question}");
    assert!(question["patterns"][1].as_str().unwrap().starts_with("py.process.shell (line 2)"), "{question}");
    let remembered = fixture.answer(&question, &json!({ "approved": true, "remember": true }));
    assert_eq!(remembered.status, 400, "an answer about code cannot be remembered");
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    assert_eq!(fixture.answer(&question, &json!({ "approved": true })).status, 409);
    let (run, question) = fixture.run_until_question(risky());
    fixture.answer(&question, &json!({ "approved": false, "reason": "not today" })).expect(200);
    let response = run.join().unwrap();
    assert_eq!(
        (&response["success"], &response["exit_code"], &response["stdout"]),
        (&json!(false), &json!(-1), &json!(""))
    );
    assert_eq!(response["error"], "Execution refused: denied by a person: not today");
    // An answer is void if the policy has changed since the question, and the code asks again.
    let (run, question) = fixture.run_until_question(risky());
    fixture.change_settings(&json!({ "sandbox": { "limits": { "memory_mb": 300 } } }));
    assert_eq!(fixture.answer(&question, &json!({ "approved": true })).status, 409);
    let next = fixture.next_question(&[question["id"].clone()]);
    assert_eq!((&next["exec_id"], &next["code"]), (&question["exec_id"], &json!(RISKY)));
    fixture.answer(&next, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    let ran = fixture.server.exec(next["exec_id"].as_str().unwrap());
    assert_eq!(ran["policy_snapshot"]["limits"]["memory_mb"], 300, "the record shows the policy of the run");
}

#[test]
fn code_question_says_that_opened_files_are_not_covered() {
    let fixture = Fixture::start();
    let (run, question) = fixture.run_until_question(risky());
    assert_eq!(question["not_covered"], json!([{ "path": "/workspace", "why": "opened_by_code" }]));
    let id = question["id"].as_str().unwrap();
    let shown = fixture.server.show_approval(id);
    assert!(shown.contains("/workspace  files that the code opens or starts"), "{shown}");
    fixture.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}

/// A context runs in a session box whatever backend the request names, so the choice made again after
/// the answer is the same.
#[test]
fn approved_code_of_context_with_session_box_runs() {
    let fixture = Fixture::start();
    let body = json!({ "session_id": "s", "context_id": "c", "backend": "aio", "language": "python", "code": RISKY });
    let (run, question) = fixture.run_until_question(body);
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    let response = run.join().unwrap();
    assert_eq!(response["success"], true, "{response}");
}

/// Stores the value that the code has already, so that only the layer of the value changes.
#[test]
fn unchanged_policy_keeps_code_question() {
    let fixture = Fixture::start();
    let safe = fixture.python("1");
    let pids = &fixture.server.exec(safe["exec_id"].as_str().unwrap())["policy_snapshot"]["limits"]["pids"];
    let (run, question) = fixture.run_until_question(risky());
    fixture.change_settings(&json!({ "sandbox": { "limits": { "pids": pids } }, "pool": { "max_instances": 9 } }));
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    let ran = fixture.server.exec(question["exec_id"].as_str().unwrap());
    assert_eq!(ran["policy_snapshot"]["layers"]["pids"], "settings", "control: the layer has changed");
}

#[test]
fn code_of_medium_risk_runs_without_asking() {
    let fixture = Fixture::start();
    for code in ["import os", "open('a', 'w')", "print(open('/etc/passwd').read()[:1])"] {
        assert_eq!(fixture.python(code)["success"], true, "{code}");
    }
    assert!(fixture.approvals("").is_empty());
}

#[test]
fn expired_question_is_a_result() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "approvals": { "timeout_s": 1 } }));
    let response = fixture.run(&risky()).expect(200);
    assert_eq!((&response["success"], &response["exit_code"]), (&json!(false), &json!(-1)));
    assert_eq!(response["error"], "Execution refused: the approval expired without an answer");
    assert_eq!(fixture.approvals("")[0]["status"], "expired");
}

#[test]
fn changed_code_runs_as_another_exec_and_is_assessed_again() {
    let fixture = Fixture::start();
    let (run, question) = fixture.run_until_question(risky());
    let changed = json!({ "approved": true, "modified_code": "print('changed')" });
    fixture.answer(&question, &changed).expect(200);
    let response = run.join().unwrap();
    assert_eq!((&response["stdout"], &response["risk"]["level"]), (&json!("changed\n"), &json!("safe")));
    let first = fixture.server.exec(question["exec_id"].as_str().unwrap());
    let next = response["exec_id"].as_str().unwrap();
    assert_eq!((&first["status"], &first["error_reason"]["code"]), (&json!("CANCELLED"), &json!("REPLACED")));
    assert!(first["error_reason"]["message"].as_str().unwrap().ends_with(next), "{first}");
    assert!(first["started_at"].is_null() && first["args"][1] == RISKY);
    let ran = fixture.server.exec(next);
    assert_eq!(ran["args"][1], "print('changed')", "the record shows what ran");
    let replaces = &ran["policy_snapshot"]["code"]["replaces"];
    assert_eq!((&replaces["exec_id"], &replaces["approval"]), (&question["exec_id"], &question["id"]));
    let intact = fixture.server.ask("POST", "/api/audit/verify", Some(&json!({}))).expect(200);
    assert_eq!(intact["intact"], true);
}

#[test]
fn changed_code_of_high_risk_asks_again() {
    let fixture = Fixture::start();
    let (run, first) = fixture.run_until_question(risky());
    let worse = "import shutil\nshutil.rmtree('temp')";
    fixture.answer(&first, &json!({ "approved": true, "modified_code": worse })).expect(200);
    let second = fixture.next_question(&[first["id"].clone()]);
    assert_eq!((&second["code"], &second["risk_level"]), (&json!(worse), &json!("high")));
    assert_ne!(second["exec_id"], first["exec_id"]);
    fixture.answer(&second, &json!({ "approved": true })).expect(200);
    let response = run.join().unwrap();
    assert_eq!((&response["success"], &response["exec_id"]), (&json!(true), &second["exec_id"]));
    // Destructive code of an approver is refused too.
    let (run, question) = fixture.run_until_question(json!({ "session_id": "s", "code": "rm x", "language": "shell" }));
    fixture.answer(&question, &json!({ "approved": true, "modified_code": "rm -rf /" })).expect(200);
    let response = run.join().unwrap();
    assert!(
        response["success"] == false && response["error"].as_str().unwrap().starts_with("Execution refused: "),
        "{response}"
    );
}

#[test]
fn changed_code_requires_approval_without_remember() {
    let fixture = Fixture::start();
    let (run, question) = fixture.run_until_question(risky());
    for body in [
        json!({ "approved": false, "modified_code": "1" }),
        json!({ "approved": true, "remember": true, "modified_code": "1" }),
        json!({ "approved": true, "modified_code": "a\u{0}" }),
        json!({ "approved": true, "modified_code": "x".repeat((1 << 20) + 1) }),
    ] {
        assert_eq!(fixture.answer(&question, &body).status, 400);
    }
    let user = fixture.user_token("eve");
    let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
    let foreign = fixture.server.ask_as(&user, "POST", &path, Some(&json!({ "approved": true, "modified_code": "1" })));
    assert_eq!(foreign.status, 404, "another user found the question");
    assert_eq!(fixture.pending().len(), 1, "the question was closed");
    fixture.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}

#[test]
fn automatic_decision_of_session_is_recorded() {
    let fixture = Fixture::start();
    let owner = fixture.server.token.clone();
    fixture.python("1");
    fixture.change_session_as(&owner, "s", &json!({ "confirmation": "auto-approve" })).expect(200);
    assert_eq!(fixture.run(&risky()).expect(200)["stdout"], "ran\n");
    fixture.change_session_as(&owner, "s", &json!({ "confirmation": "auto-reject" })).expect(200);
    let response = fixture.run(&risky()).expect(200);
    assert!(
        response["success"] == false && response["error"].as_str().unwrap().starts_with("Execution refused: "),
        "{response}"
    );
    let ledger = fixture.approvals("");
    let settled: Vec<_> = ledger.iter().map(|one| (one["status"].as_str(), one["answered_by"].as_str())).collect();
    assert_eq!(settled, [(Some("denied"), Some("auto-reject")), (Some("approved"), Some("auto-approve"))]);
    assert!(ledger.iter().all(|one| one["code"] == RISKY));
}

#[test]
fn changed_confirmation_mode_voids_answer() {
    let fixture = Fixture::start();
    let (run, question) = fixture.run_until_question(risky());
    // The exec waits, so it has not created its session yet.
    fixture.server.ask("POST", "/api/sessions", Some(&json!({ "session_id": "s" }))).expect(201);
    fixture
        .change_session_as(&fixture.server.token.clone(), "s", &json!({ "confirmation": "auto-reject" }))
        .expect(200);
    assert_eq!(fixture.answer(&question, &json!({ "approved": true })).status, 409);
    let response = run.join().unwrap();
    assert!(response["error"].as_str().unwrap().contains("the session rejects"), "{response}");
}

#[test]
fn only_operator_can_loosen_session_rules() {
    let fixture = Fixture::start();
    let (user, agent) = (fixture.user_token("ann"), fixture.agent_token("ann", "bot"));
    let make = |token: &str, body: Value| fixture.server.ask_as(token, "POST", "/api/sessions", Some(&body));
    make(&user, json!({ "session_id": "s" })).expect(201);
    for body in [
        json!({ "confirmation": "auto-approve" }),
        json!({ "confirmation": "callback", "callback_url": "http://127.0.0.1:1/" }),
        json!({ "security_mode": "permissive" }),
    ] {
        assert_eq!(code_of(fixture.change_session_as(&user, "s", &body), 403), "FORBIDDEN", "{body}");
        assert_eq!(code_of(make(&user, body.clone()), 403), "FORBIDDEN", "{body}");
        assert_eq!(fixture.change_session_as(&agent, "s", &body).status, 403, "{body}");
        assert_eq!(make(&agent, body).status, 403);
    }
    let rules = json!({ "confirmation": "auto-reject", "security_mode": "strict" });
    assert_eq!(fixture.change_session_as(&agent, "s", &rules).status, 403, "an agent changed the rules of its session");
    let changed = fixture.change_session_as(&user, "s", &rules).expect(200);
    assert_eq!((&changed["confirmation"], &changed["security_mode"]), (&json!("auto-reject"), &json!("strict")));
    let path = "/api/sessions/s?user_id=ann";
    let by_operator = fixture.server.ask("PUT", path, Some(&json!({ "security_mode": "permissive" }))).expect(200);
    assert_eq!(
        (&by_operator["security_mode"], &by_operator["confirmation"]),
        (&json!("permissive"), &json!("auto-reject"))
    );
    // A session that is created again starts with the defaults.
    fixture.server.ask("PUT", path, Some(&json!({ "confirmation": "auto-approve" }))).expect(200);
    fixture.server.ask_as(&user, "DELETE", "/api/sessions/s", None).expect(200);
    let again = make(&user, json!({ "session_id": "s" })).expect(201);
    assert_eq!((&again["confirmation"], &again["security_mode"]), (&json!("websocket"), &json!("strict")));
}

#[test]
fn callback_gets_signed_questions() {
    const SECRET: &str = "hunter2 and more";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)]);
    let user = fixture.user_token("ann");
    for wrong in
        [json!(null), json!("file:///etc/passwd"), json!("gopher://x"), json!("http://"), json!("http://a\r\nb")]
    {
        let body = json!({ "session_id": "w", "confirmation": "callback", "callback_url": wrong });
        assert_eq!(fixture.server.ask("POST", "/api/sessions", Some(&body)).status, 400, "{body}");
    }
    let body = json!({ "session_id": "s", "confirmation": "callback", "callback_url": url });
    fixture.server.ask("POST", "/api/sessions", Some(&body)).expect(201);
    let run = fixture.spawn_run(risky());
    let delivery = Delivery::next(&listener);
    let header = |name: &str| delivery.header(name);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{}.", header("x-ringwall-timestamp")).as_bytes());
    mac.update(&delivery.bytes);
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(header("x-ringwall-signature"), format!("sha256={digits}"));
    let response: Value = serde_json::from_slice(&delivery.bytes).unwrap();
    assert_eq!((&response["code"], &response["kind"]), (&json!(RISKY), &json!("risk")));
    fixture.answer(&json!({ "id": response["request_id"] }), &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    assert_eq!(
        Delivery::next(&listener).header("x-ringwall-signature").len(),
        7 + 64,
        "the resolution is delivered too"
    );
    // Without its own address a session uses `approvals.webhook_url`.
    let callback = json!({ "session_id": "t", "confirmation": "callback" });
    let make = || fixture.server.ask_as(&user, "POST", "/api/sessions", Some(&callback));
    assert_eq!(make().status, 400);
    fixture
        .change_settings(&json!({ "approvals": { "webhook_url": url }, "sessions": { "confirmation": "callback" } }));
    assert_eq!(make().expect(201)["callback_url"], Value::Null);
    for session in ["t", "usual"] {
        let body = json!({ "session_id": session, "user_id": "ann", "code": RISKY, "language": "python" });
        let run = fixture.spawn_run(body);
        let response: Value = serde_json::from_slice(&Delivery::next(&listener).bytes).unwrap();
        assert_eq!((&response["session_id"], &response["kind"]), (&json!(session), &json!("risk")), "{response}");
        fixture.answer(&json!({ "id": response["request_id"] }), &json!({ "approved": false })).expect(200);
        assert_eq!(run.join().unwrap()["success"], false);
        Delivery::next(&listener);
    }
    let made =
        fixture.server.ask_as(&user, "POST", "/api/sessions", Some(&json!({ "session_id": "usual" }))).expect(201);
    assert_eq!(made["confirmation"], "callback");
}

#[test]
fn callback_without_secret_is_rejected() {
    let fixture = Fixture::start();
    let body = json!({ "session_id": "s", "confirmation": "callback", "callback_url": "http://127.0.0.1:1/" });
    assert_eq!(code_of(fixture.server.ask("POST", "/api/sessions", Some(&body)), 409), "CONFLICT");
    assert_eq!(fixture.session("s").status, 404, "the session was created");
    let by_settings = json!({ "sessions": { "confirmation": "callback" } });
    assert_eq!(fixture.server.ask("PUT", "/settings", Some(&by_settings)).status, 400);
}
