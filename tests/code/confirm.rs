//! Who is asked about code, and what an answer is worth.

use std::net::TcpListener;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::site::{Delivery, RISKY, Site, code_of};

fn risky() -> Value {
    json!({ "session_id": "s", "code": RISKY, "language": "python" })
}

#[test]
fn a_person_is_shown_all_of_it_and_their_word_counts_once() {
    let site = Site::start();
    let (run, question) = site.asked(risky());
    assert_eq!((&question["kind"], &question["session_id"]), (&json!("risk"), &json!("s")));
    assert_eq!((&question["risk_level"], &question["code"]), (&json!("critical"), &json!(RISKY)));
    assert!(question["description"].as_str().unwrap().contains("shell"), "{question}");
    assert!(question["patterns"][1].as_str().unwrap().starts_with("py.process.shell (line 2)"), "{question}");
    let remembered = site.answer(&question, &json!({ "approved": true, "remember": true }));
    assert_eq!(remembered.status, 400, "nothing of this kind is remembered");
    site.answer(&question, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    assert_eq!(site.answer(&question, &json!({ "approved": true })).status, 409);
    let (run, question) = site.asked(risky());
    site.answer(&question, &json!({ "approved": false, "reason": "not today" })).expect(200);
    let told = run.join().unwrap();
    assert_eq!((&told["success"], &told["exit_code"], &told["stdout"]), (&json!(false), &json!(-1), &json!("")));
    assert_eq!(told["error"], "Execution refused: a person has denied it: not today");
    // It is about one policy: where an operator tightens that meanwhile, it is asked anew.
    let (run, question) = site.asked(risky());
    site.set(&json!({ "sandbox": { "limits": { "memory_mb": 300 } } }));
    assert_eq!(site.answer(&question, &json!({ "approved": true })).status, 409);
    let next = site.next_question(&[question["id"].clone()]);
    assert_eq!((&next["exec_id"], &next["code"]), (&question["exec_id"], &json!(RISKY)));
    site.answer(&next, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    let ran = site.server.exec(next["exec_id"].as_str().unwrap());
    assert_eq!(ran["policy_snapshot"]["limits"]["memory_mb"], 300, "what it ran under is what is on record");
}

#[test]
fn code_question_says_that_opened_files_are_not_covered() {
    let site = Site::start();
    let (run, question) = site.asked(risky());
    assert_eq!(question["not_covered"], json!([{ "path": "/workspace", "why": "opened_by_code" }]));
    let id = question["id"].as_str().unwrap();
    let shown = site.server.show_approval(id);
    assert!(shown.contains("/workspace  files that the code opens or starts"), "{shown}");
    site.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}

/// The stored value is the one that the code has anyway, so only the layer that sets it changes.
#[test]
fn unchanged_policy_keeps_code_question() {
    let site = Site::start();
    let safe = site.python("1");
    let pids = &site.server.exec(safe["exec_id"].as_str().unwrap())["policy_snapshot"]["limits"]["pids"];
    let (run, question) = site.asked(risky());
    site.set(&json!({ "sandbox": { "limits": { "pids": pids } }, "pool": { "max_instances": 9 } }));
    site.answer(&question, &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    let ran = site.server.exec(question["exec_id"].as_str().unwrap());
    assert_eq!(ran["policy_snapshot"]["layers"]["pids"], "settings", "the control: the layer did change");
}

#[test]
fn nobody_is_asked_about_what_is_medium() {
    let site = Site::start();
    for code in ["import os", "open('a', 'w')", "print(open('/etc/passwd').read()[:1])"] {
        assert_eq!(site.python(code)["success"], true, "{code}");
    }
    assert!(site.approvals("").is_empty());
}

#[test]
fn a_question_expires_and_that_is_a_result() {
    let site = Site::start();
    site.set(&json!({ "approvals": { "timeout_s": 1 } }));
    let told = site.run(&risky()).expect(200);
    assert_eq!((&told["success"], &told["exit_code"]), (&json!(false), &json!(-1)));
    assert_eq!(told["error"], "Execution refused: nobody answered in time whether it may run");
    assert_eq!(site.approvals("")[0]["status"], "expired");
}

#[test]
fn changed_code_is_another_exec_judged_from_the_start() {
    let site = Site::start();
    let (run, question) = site.asked(risky());
    let changed = json!({ "approved": true, "modified_code": "print('changed')" });
    site.answer(&question, &changed).expect(200);
    let told = run.join().unwrap();
    assert_eq!((&told["stdout"], &told["risk"]["level"]), (&json!("changed\n"), &json!("safe")));
    let first = site.server.exec(question["exec_id"].as_str().unwrap());
    let next = told["exec_id"].as_str().unwrap();
    assert_eq!((&first["status"], &first["error_reason"]["code"]), (&json!("CANCELLED"), &json!("REPLACED")));
    assert!(first["error_reason"]["message"].as_str().unwrap().ends_with(next), "{first}");
    assert!(first["started_at"].is_null() && first["args"][1] == RISKY);
    let ran = site.server.exec(next);
    assert_eq!(ran["args"][1], "print('changed')", "the record shows what ran");
    let replaces = &ran["policy_snapshot"]["code"]["replaces"];
    assert_eq!((&replaces["exec_id"], &replaces["approval"]), (&question["exec_id"], &question["id"]));
    let intact = site.server.ask("POST", "/api/audit/verify", Some(&json!({}))).expect(200);
    assert_eq!(intact["intact"], true);
}

#[test]
fn changed_code_that_deserves_care_is_asked_about_anew() {
    let site = Site::start();
    let (run, first) = site.asked(risky());
    let worse = "import shutil\nshutil.rmtree('temp')";
    site.answer(&first, &json!({ "approved": true, "modified_code": worse })).expect(200);
    let second = site.next_question(&[first["id"].clone()]);
    assert_eq!((&second["code"], &second["risk_level"]), (&json!(worse), &json!("high")));
    assert_ne!(second["exec_id"], first["exec_id"]);
    site.answer(&second, &json!({ "approved": true })).expect(200);
    let told = run.join().unwrap();
    assert_eq!((&told["success"], &told["exec_id"]), (&json!(true), &second["exec_id"]));
    // What is refused outright is refused whoever writes it.
    let (run, question) = site.asked(json!({ "session_id": "s", "code": "rm x", "language": "shell" }));
    site.answer(&question, &json!({ "approved": true, "modified_code": "rm -rf /" })).expect(200);
    let told = run.join().unwrap();
    assert!(told["success"] == false && told["error"].as_str().unwrap().starts_with("Execution refused: "), "{told}");
}

#[test]
fn changed_code_goes_with_yes_and_with_code_alone() {
    let site = Site::start();
    let (run, question) = site.asked(risky());
    for body in [
        json!({ "approved": false, "modified_code": "1" }),
        json!({ "approved": true, "remember": true, "modified_code": "1" }),
        json!({ "approved": true, "modified_code": "a\u{0}" }),
        json!({ "approved": true, "modified_code": "x".repeat((1 << 20) + 1) }),
    ] {
        assert_eq!(site.answer(&question, &body).status, 400);
    }
    let user = site.user("eve");
    let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
    let foreign = site.server.ask_as(&user, "POST", &path, Some(&json!({ "approved": true, "modified_code": "1" })));
    assert_eq!(foreign.status, 404, "another user's question is not there");
    assert_eq!(site.pending().len(), 1, "it is still open");
    site.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}

#[test]
fn a_session_may_decide_by_itself_and_the_ledger_has_it() {
    let site = Site::start();
    let owner = site.server.token.clone();
    site.python("1");
    site.rule(&owner, "s", &json!({ "confirmation": "auto-approve" })).expect(200);
    assert_eq!(site.run(&risky()).expect(200)["stdout"], "ran\n");
    site.rule(&owner, "s", &json!({ "confirmation": "auto-reject" })).expect(200);
    let told = site.run(&risky()).expect(200);
    assert!(told["success"] == false && told["error"].as_str().unwrap().starts_with("Execution refused: "), "{told}");
    let ledger = site.approvals("");
    let settled: Vec<_> = ledger.iter().map(|one| (one["status"].as_str(), one["answered_by"].as_str())).collect();
    assert_eq!(settled, [(Some("denied"), Some("auto-reject")), (Some("approved"), Some("auto-approve"))]);
    assert!(ledger.iter().all(|one| one["code"] == RISKY));
}

#[test]
fn an_answer_to_a_session_that_is_treated_otherwise_by_now_is_void() {
    let site = Site::start();
    let (run, question) = site.asked(risky());
    // The exec's session is made by its first use, which has not come yet.
    site.server.ask("POST", "/api/sessions", Some(&json!({ "session_id": "s" }))).expect(201);
    site.rule(&site.server.token.clone(), "s", &json!({ "confirmation": "auto-reject" })).expect(200);
    assert_eq!(site.answer(&question, &json!({ "approved": true })).status, 409);
    let told = run.join().unwrap();
    assert!(told["error"].as_str().unwrap().contains("its session rejects"), "{told}");
}

#[test]
fn lenience_is_an_operators_to_give() {
    let site = Site::start();
    let (user, agent) = (site.user("ann"), site.agent("ann", "bot"));
    let make = |token: &str, body: Value| site.server.ask_as(token, "POST", "/api/sessions", Some(&body));
    make(&user, json!({ "session_id": "s" })).expect(201);
    for body in [
        json!({ "confirmation": "auto-approve" }),
        json!({ "confirmation": "callback", "callback_url": "http://127.0.0.1:1/" }),
        json!({ "security_mode": "permissive" }),
    ] {
        assert_eq!(code_of(site.rule(&user, "s", &body), 403), "FORBIDDEN", "{body}");
        assert_eq!(code_of(make(&user, body.clone()), 403), "FORBIDDEN", "{body}");
        assert_eq!(site.rule(&agent, "s", &body).status, 403, "{body}");
        assert_eq!(make(&agent, body).status, 403);
    }
    let rules = json!({ "confirmation": "auto-reject", "security_mode": "strict" });
    assert_eq!(site.rule(&agent, "s", &rules).status, 403, "an agent changes nothing about how it is watched");
    let changed = site.rule(&user, "s", &rules).expect(200);
    assert_eq!((&changed["confirmation"], &changed["security_mode"]), (&json!("auto-reject"), &json!("strict")));
    let path = "/api/sessions/s?user_id=ann";
    let by_operator = site.server.ask("PUT", path, Some(&json!({ "security_mode": "permissive" }))).expect(200);
    assert_eq!(
        (&by_operator["security_mode"], &by_operator["confirmation"]),
        (&json!("permissive"), &json!("auto-reject"))
    );
    // A session that is made again has nothing of what was said before.
    site.server.ask("PUT", path, Some(&json!({ "confirmation": "auto-approve" }))).expect(200);
    site.server.ask_as(&user, "DELETE", "/api/sessions/s", None).expect(200);
    let again = make(&user, json!({ "session_id": "s" })).expect(201);
    assert_eq!((&again["confirmation"], &again["security_mode"]), (&json!("websocket"), &json!("strict")));
}

#[test]
fn a_callback_is_told_and_signed() {
    const SECRET: &str = "hunter2 and more";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let site = Site::start_under(&[("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)]);
    let user = site.user("ann");
    for wrong in
        [json!(null), json!("file:///etc/passwd"), json!("gopher://x"), json!("http://"), json!("http://a\r\nb")]
    {
        let body = json!({ "session_id": "w", "confirmation": "callback", "callback_url": wrong });
        assert_eq!(site.server.ask("POST", "/api/sessions", Some(&body)).status, 400, "{body}");
    }
    let body = json!({ "session_id": "s", "confirmation": "callback", "callback_url": url });
    site.server.ask("POST", "/api/sessions", Some(&body)).expect(201);
    let run = site.begin(risky());
    let delivery = Delivery::next(&listener);
    let header = |name: &str| delivery.header(name);
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{}.", header("x-ringwall-timestamp")).as_bytes());
    mac.update(&delivery.bytes);
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(header("x-ringwall-signature"), format!("sha256={digits}"));
    let told: Value = serde_json::from_slice(&delivery.bytes).unwrap();
    assert_eq!((&told["code"], &told["kind"]), (&json!(RISKY), &json!("risk")));
    site.answer(&json!({ "id": told["request_id"] }), &json!({ "approved": true })).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], "ran\n");
    assert_eq!(Delivery::next(&listener).header("x-ringwall-signature").len(), 7 + 64, "its answer is told too");
    // Without an address of its own a session's questions are told where all are, if the operator has said where.
    let callback = json!({ "session_id": "t", "confirmation": "callback" });
    let make = || site.server.ask_as(&user, "POST", "/api/sessions", Some(&callback));
    assert_eq!(make().status, 400);
    site.set(&json!({ "approvals": { "webhook_url": url }, "sessions": { "confirmation": "callback" } }));
    assert_eq!(make().expect(201)["callback_url"], Value::Null);
    for session in ["t", "usual"] {
        let body = json!({ "session_id": session, "user_id": "ann", "code": RISKY, "language": "python" });
        let run = site.begin(body);
        let told: Value = serde_json::from_slice(&Delivery::next(&listener).bytes).unwrap();
        assert_eq!((&told["session_id"], &told["kind"]), (&json!(session), &json!("risk")), "{told}");
        site.answer(&json!({ "id": told["request_id"] }), &json!({ "approved": false })).expect(200);
        assert_eq!(run.join().unwrap()["success"], false);
        Delivery::next(&listener);
    }
    let made = site.server.ask_as(&user, "POST", "/api/sessions", Some(&json!({ "session_id": "usual" }))).expect(201);
    assert_eq!(made["confirmation"], "callback");
}

#[test]
fn without_a_secret_nothing_is_called_back() {
    let site = Site::start();
    let body = json!({ "session_id": "s", "confirmation": "callback", "callback_url": "http://127.0.0.1:1/" });
    assert_eq!(code_of(site.server.ask("POST", "/api/sessions", Some(&body)), 409), "CONFLICT");
    assert_eq!(site.session("s").status, 404, "nothing was made");
    let by_settings = json!({ "sessions": { "confirmation": "callback" } });
    assert_eq!(site.server.ask("PUT", "/settings", Some(&by_settings)).status, 400);
}
