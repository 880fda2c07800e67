//! Sessions: whose they are, how they are made and removed, and what goes with them.

use serde_json::{Value, json};

use crate::site::{RISKY, Site, code_of};

#[test]
fn a_session_is_made_seen_and_removed() {
    let site = Site::start();
    let ask = |method: &str, path: &str, body: Option<&Value>| site.server.ask(method, path, body);
    let made = ask("POST", "/api/sessions", Some(&json!({ "session_id": "a.b-c_1" }))).expect(201);
    assert_eq!((&made["session_id"], &made["agent_id"]), (&json!("a.b-c_1"), &json!("default")));
    assert_eq!(made["expires_at"].as_i64().unwrap() - made["last_used_at"].as_i64().unwrap(), 24 * 3600 * 1000);
    assert_eq!(code_of(ask("POST", "/api/sessions", Some(&json!({ "session_id": "a.b-c_1" }))), 409), "CONFLICT");
    let own = ask("POST", "/api/sessions", None).expect(201);
    assert!(own["session_id"].as_str().unwrap().starts_with("s_"), "{own}");
    site.python("print(1)");
    let listed = ask("GET", "/api/sessions", None).expect(200);
    let ids: Vec<_> = listed["sessions"].as_array().unwrap().iter().map(|one| one["session_id"].clone()).collect();
    assert!(ids.len() == 3 && ids.contains(&json!("s")), "a run makes one too: {ids:?}");
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = ask("GET", &format!("/api/sessions?limit=1{cursor}"), None).expect(200);
        assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
        paged.push(page["sessions"][0]["session_id"].clone());
        cursor = page["next_cursor"].as_str().map_or_else(String::new, |next| format!("&cursor={next}"));
    }
    assert_eq!((paged, cursor.as_str()), (ids, ""), "page by page as in one");
    for words in ["limit=0", "cursor=1~a"] {
        assert_eq!(ask("GET", &format!("/api/sessions?{words}"), None).status, 400, "{words}");
    }
    ask("PUT", "/api/sessions/s/files/data/x", None);
    assert_eq!(site.session("s").expect(200)["security_mode"], "strict");
    assert_eq!(ask("DELETE", "/api/sessions/s", None).expect(200), json!({ "session_id": "s", "deleted": true }));
    let gone = site.server.data().join("workspaces/default/default/sessions/s");
    assert!(!gone.exists());
    for (method, path) in [("GET", ""), ("DELETE", ""), ("GET", "/files"), ("GET", "/files/x"), ("DELETE", "/files/x")]
    {
        assert_eq!(code_of(ask(method, &format!("/api/sessions/s{path}"), None), 404), "NOT_FOUND", "{method} {path}");
    }
    let rules = json!({ "confirmation": "websocket" });
    assert_eq!(site.rule(&site.server.token.clone(), "s", &rules).status, 404);
    for bad in ["..", "-a", "a..b", "ä", "", "x y"] {
        let body = json!({ "session_id": bad });
        assert_eq!(ask("POST", "/api/sessions", Some(&body)).status, 400, "{bad:?}");
    }
    for body in [json!({ "confirmation": "sometimes" }), json!({ "security_mode": "lax" }), json!({ "other": 1 })] {
        assert_eq!(site.rule(&site.server.token.clone(), "a.b-c_1", &body).status, 400, "{body}");
    }
}

#[test]
fn another_users_session_is_another_session() {
    let site = Site::start();
    let (ann, bob, bot) = (site.user("ann"), site.user("bob"), site.agent("ann", "bot"));
    let write = |token: &str, text: &str| {
        let code = format!("open('data/x', 'w').write('{text}')");
        site.run_as(token, &json!({ "session_id": "s", "code": code, "language": "python" })).expect(200)
    };
    write(&ann, "of ann");
    assert_eq!(site.server.ask_as(&bob, "GET", "/api/sessions/s", None).status, 404);
    assert_eq!(site.server.ask_as(&bob, "GET", "/api/sessions/s/files/data/x", None).status, 404);
    assert_eq!(site.server.ask_as(&bob, "DELETE", "/api/sessions/s", None).status, 404);
    for words in ["?user_id=ann", "?user_id=ann&agent_id=default"] {
        assert_eq!(site.server.ask_as(&bob, "GET", &format!("/api/sessions/s{words}"), None).status, 404);
    }
    write(&bob, "of bob");
    write(&bot, "of bot");
    let read = |token: &str, words: &str| {
        let path = format!("/api/sessions/s/files/data/x{words}");
        String::from_utf8(site.server.ask_as(token, "GET", &path, None).bytes).unwrap()
    };
    assert_eq!((read(&ann, ""), read(&bob, "")), ("of ann".to_owned(), "of bob".to_owned()));
    assert_eq!(read(&ann, "?agent_id=bot"), "of bot", "a user sees all of their agents");
    assert_eq!(read(&bot, ""), "of bot");
    assert_eq!(site.server.ask_as(&bot, "GET", "/api/sessions/s?agent_id=default", None).status, 404);
    assert_eq!(read(&site.server.token, "?user_id=bob"), "of bob");
    let count = |token: &str, words: &str| {
        let listed = site.server.ask_as(token, "GET", &format!("/api/sessions{words}"), None).expect(200);
        listed["sessions"].as_array().unwrap().len()
    };
    assert_eq!([count(&ann, ""), count(&bob, ""), count(&bot, ""), count(&bob, "?user_id=ann")], [2, 1, 1, 0]);
    assert_eq!([count(&site.server.token, ""), count(&site.server.token, "?user_id=ann")], [3, 2]);
    assert_eq!(count(&bot, "?agent_id=default"), 0);
}

#[test]
fn removing_a_session_ends_what_runs_and_waits_in_it() {
    let site = Site::start();
    let waiting = site.asked(json!({ "session_id": "s", "code": RISKY, "language": "python" }));
    let body = json!({ "session_id": "s", "code": "print('up', flush=True)\nwhile True: pass", "language": "python", "wait": false });
    let begun = site.run(&body).expect(202);
    site.server.wait_for_output(begun["exec_id"].as_str().unwrap());
    site.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    let ended = site.server.exec(begun["exec_id"].as_str().unwrap());
    assert_eq!(ended["status"], "CANCELLED");
    assert_eq!(waiting.0.join().unwrap()["error"], "it was cancelled");
    assert_eq!(site.approvals("")[0]["status"], "cancelled");
}

#[test]
fn an_idle_session_goes_with_what_was_said_about_it() {
    let site = Site::start();
    site.server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "security_mode": "permissive" })))
        .expect(201);
    site.server.ask("POST", "/api/sessions", Some(&json!({ "session_id": "t" }))).expect(201);
    let used = site.server.data().join("workspaces/default/default/sessions/s/.used");
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(30 * 3600);
    std::fs::File::open(&used).unwrap().set_modified(long_ago).unwrap();
    std::fs::File::open(used.parent().unwrap()).unwrap().set_modified(long_ago).unwrap();
    site.set(&json!({ "sessions": { "retention_hours": 48 } }));
    site.server.ask("POST", "/api/gc", None).expect(200);
    assert_eq!(site.session("s").status, 200, "its time is not over");
    site.set(&json!({ "sessions": { "retention_hours": 24 } }));
    assert_eq!(site.server.ask("POST", "/api/gc", None).expect(200)["sessions"], 1);
    assert_eq!((site.session("s").status, site.session("t").status), (404, 200));
    site.python("1");
    assert_eq!(site.session("s").expect(200)["security_mode"], "strict", "another session of the same id");
    let rows = site.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(rows["sessions"]["retention_hours"], 24);
}

#[test]
fn a_session_whose_files_were_taken_away_has_nothing_of_what_was_said() {
    let site = Site::start();
    site.server
        .ask("POST", "/api/sessions", Some(&json!({ "session_id": "s", "confirmation": "auto-approve" })))
        .expect(201);
    std::fs::remove_dir_all(site.server.data().join("workspaces/default/default/sessions/s")).unwrap();
    let (run, question) = site.asked(json!({ "session_id": "s", "code": RISKY, "language": "python" }));
    site.answer(&question, &json!({ "approved": false })).expect(200);
    run.join().unwrap();
}
