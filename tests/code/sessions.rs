//! Sessions: creation, listing, ownership, deletion and retention.

use serde_json::{Value, json};

use crate::fixture::{Fixture, RISKY, code_of};

#[test]
fn session_is_created_listed_and_deleted() {
    let fixture = Fixture::start();
    let ask = |method: &str, path: &str, body: Option<&Value>| fixture.server.ask(method, path, body);
    let made = ask("POST", "/api/sessions", Some(&json!({ "session_id": "a.b-c_1" }))).expect(201);
    assert_eq!((&made["session_id"], &made["agent_id"]), (&json!("a.b-c_1"), &json!("default")));
    assert_eq!(made["expires_at"].as_i64().unwrap() - made["last_used_at"].as_i64().unwrap(), 24 * 3600 * 1000);
    assert_eq!(code_of(ask("POST", "/api/sessions", Some(&json!({ "session_id": "a.b-c_1" }))), 409), "CONFLICT");
    let own = ask("POST", "/api/sessions", None).expect(201);
    assert!(own["session_id"].as_str().unwrap().starts_with("s_"), "{own}");
    fixture.python("print(1)");
    let listed = ask("GET", "/api/sessions", None).expect(200);
    let ids: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].clone()).collect();
    assert!(ids.len() == 3 && ids.contains(&json!("s")), "a run creates its session: {ids:?}");
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = ask("GET", &format!("/api/sessions?limit=1{cursor}"), None).expect(200);
        assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
        paged.push(page["sessions"][0]["session_id"].clone());
        cursor = page["next_cursor"].as_str().map_or_else(String::new, |next| format!("&cursor={next}"));
    }
    assert_eq!((paged, cursor.as_str()), (ids, ""), "the pages differ from the whole list");
    for words in ["limit=0", "cursor=1~a"] {
        assert_eq!(ask("GET", &format!("/api/sessions?{words}"), None).status, 400, "{words}");
    }
    ask("PUT", "/api/sessions/s/files/data/x", None);
    assert_eq!(fixture.session("s").expect(200)["security_mode"], "strict");
    assert_eq!(ask("DELETE", "/api/sessions/s", None).expect(200), json!({ "session_id": "s", "deleted": true }));
    let gone = fixture.server.data().join("workspaces/default/default/sessions/s");
    assert!(!gone.exists());
    for (method, path) in [("GET", ""), ("DELETE", ""), ("GET", "/files"), ("GET", "/files/x"), ("DELETE", "/files/x")]
    {
        assert_eq!(code_of(ask(method, &format!("/api/sessions/s{path}"), None), 404), "NOT_FOUND", "{method} {path}");
    }
    let rules = json!({ "confirmation": "websocket" });
    assert_eq!(fixture.change_session_as(&fixture.server.token.clone(), "s", &rules).status, 404);
    for expect_failure in ["..", "-a", "a..b", "ä", "", "x y"] {
        let body = json!({ "session_id": expect_failure });
        assert_eq!(ask("POST", "/api/sessions", Some(&body)).status, 400, "{expect_failure:?}");
    }
    for body in [json!({ "confirmation": "sometimes" }), json!({ "security_mode": "lax" }), json!({ "other": 1 })] {
        assert_eq!(fixture.change_session_as(&fixture.server.token.clone(), "a.b-c_1", &body).status, 400, "{body}");
    }
}

#[test]
fn sessions_of_two_users_with_one_id_are_separate() {
    let fixture = Fixture::start();
    let (ann, bob, bot) = (fixture.user_token("ann"), fixture.user_token("bob"), fixture.agent_token("ann", "bot"));
    let write = |token: &str, text: &str| {
        let code = format!("open('data/x', 'w').write('{text}')");
        fixture.run_as(token, &json!({ "session_id": "s", "code": code, "language": "python" })).expect(200)
    };
    write(&ann, "of ann");
    assert_eq!(fixture.server.ask_as(&bob, "GET", "/api/sessions/s", None).status, 404);
    assert_eq!(fixture.server.ask_as(&bob, "GET", "/api/sessions/s/files/data/x", None).status, 404);
    assert_eq!(fixture.server.ask_as(&bob, "DELETE", "/api/sessions/s", None).status, 404);
    for words in ["?user_id=ann", "?user_id=ann&agent_id=default"] {
        assert_eq!(fixture.server.ask_as(&bob, "GET", &format!("/api/sessions/s{words}"), None).status, 404);
    }
    write(&bob, "of bob");
    write(&bot, "of bot");
    let read = |token: &str, words: &str| {
        let path = format!("/api/sessions/s/files/data/x{words}");
        String::from_utf8(fixture.server.ask_as(token, "GET", &path, None).bytes).unwrap()
    };
    assert_eq!((read(&ann, ""), read(&bob, "")), ("of ann".to_owned(), "of bob".to_owned()));
    assert_eq!(read(&ann, "?agent_id=bot"), "of bot", "a user sees all of their agents");
    assert_eq!(read(&bot, ""), "of bot");
    assert_eq!(fixture.server.ask_as(&bot, "GET", "/api/sessions/s?agent_id=default", None).status, 404);
    assert_eq!(read(&fixture.server.token, "?user_id=bob"), "of bob");
    let count = |token: &str, words: &str| {
        let listed = fixture.server.ask_as(token, "GET", &format!("/api/sessions{words}"), None).expect(200);
        listed["sessions"].as_array().unwrap().len()
    };
    assert_eq!([count(&ann, ""), count(&bob, ""), count(&bot, ""), count(&bob, "?user_id=ann")], [2, 1, 1, 0]);
    assert_eq!([count(&fixture.server.token, ""), count(&fixture.server.token, "?user_id=ann")], [3, 2]);
    assert_eq!(count(&bot, "?agent_id=default"), 0);
}

#[test]
fn deleting_session_cancels_its_execs_and_approvals() {
    let fixture = Fixture::start();
    let waiting = fixture.run_until_question(json!({ "session_id": "s", "code": RISKY, "language": "python" }));
    let body = json!({ "session_id": "s", "code": "print('up', flush=True)\nwhile True: pass", "language": "python", "wait": false });
    let begun = fixture.run(&body).expect(202);
    fixture.server.wait_for_output(begun["exec_id"].as_str().unwrap());
    fixture.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    let ended = fixture.server.exec(begun["exec_id"].as_str().unwrap());
    assert_eq!(ended["status"], "CANCELLED");
    assert_eq!(waiting.0.join().unwrap()["error"], "the exec was cancelled");
    assert_eq!(fixture.approvals("")[0]["status"], "cancelled");
}

#[test]
fn expired_session_is_removed_with_its_rules() {
    let fixture = Fixture::start();
    fixture
        .server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "security_mode": "permissive" })))
        .expect(201);
    fixture.server.ask("POST", "/api/sessions", Some(&json!({ "session_id": "t" }))).expect(201);
    let used = fixture.server.data().join("workspaces/default/default/sessions/s/.used");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 3600);
    std::fs::File::open(&used).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::open(used.parent().unwrap()).unwrap().set_modified(long_ago).unwrap();
    fixture.change_settings(&json!({ "sessions": { "retention_hours": 48 } }));
    fixture.server.ask("POST", "/api/gc", None).expect(200);
    assert_eq!(fixture.session("s").status, 200, "the session was removed too early");
    fixture.change_settings(&json!({ "sessions": { "retention_hours": 24 } }));
    assert_eq!(fixture.server.ask("POST", "/api/gc", None).expect(200)["sessions"], 1);
    assert_eq!((fixture.session("s").status, fixture.session("t").status), (404, 200));
    fixture.python("1");
    assert_eq!(fixture.session("s").expect(200)["security_mode"], "strict", "another session of the same id");
    let rows = fixture.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(rows["sessions"]["retention_hours"], 24);
}

#[test]
fn session_whose_directory_was_removed_loses_its_rules() {
    let fixture = Fixture::start();
    fixture
        .server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "confirmation": "auto-approve" })))
        .expect(201);
    std::fs::remove_dir_all(fixture.server.data().join("workspaces/default/default/sessions/s")).unwrap();
    let (run, question) = fixture.run_until_question(json!({ "session_id": "s", "code": RISKY, "language": "python" }));
    fixture.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}
