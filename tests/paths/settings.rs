//! The path list and the switch of path control, over HTTP.

use serde_json::{Value, json};
use std::process::Command;

use crate::fixture::{Fixture, TestServer, encode, link};

fn put(fixture: &Fixture, path: &str) -> tests::support::server::Answer {
    fixture.server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": path })))
}

pub(crate) fn path_routes_follow_contract(test_server: &TestServer) {
    let mut fixture = Fixture::uncontrolled(test_server);
    let ask = |fixture: &Fixture, method: &str, path: &str, body: Option<Value>| {
        fixture.server.ask(method, path, body.as_ref())
    };
    assert_eq!(ask(&fixture, "GET", "/api/sandbox", None).expect(200), json!({ "enabled": false, "paths": [] }));
    assert_eq!(ask(&fixture, "GET", "/healthz", None).expect(200)["path_control"], "off");
    assert!(fixture.server.log().contains("path control is off"));
    fixture.switch(true);
    assert_eq!(ask(&fixture, "GET", "/healthz", None).expect(200)["path_control"], "on");
    let documents = json!({ "path": "C:\\Users\\Documents", "description": "文档目录" });
    let added = ask(&fixture, "POST", "/api/sandbox/paths", Some(documents.clone())).expect(200);
    let entry = &added["paths"][0];
    assert_eq!((&entry["path"], &entry["description"]), (&documents["path"], &documents["description"]));
    assert_eq!((&entry["enabled"], &added["warnings"]), (&json!(true), &json!([])));
    let id = entry["id"].as_i64().unwrap();
    // The same path in another spelling changes nothing.
    let again = ask(&fixture, "POST", "/api/sandbox/paths", Some(json!({ "path": "c:/users/documents" }))).expect(200);
    assert_eq!(again["paths"], added["paths"]);
    put(&fixture, "/home/u").expect(200);
    for blank in [json!({}), json!({ "path": "" }), json!({ "path": " \t" }), json!({ "path": null })] {
        let refused = ask(&fixture, "POST", "/api/sandbox/paths", Some(blank)).expect(400);
        assert_eq!(refused, json!({ "error": "path is required" }));
    }
    for malformed in [json!({ "path": 7 }), json!([]), json!({ "path": "/a", "x": 1 })] {
        assert!(ask(&fixture, "POST", "/api/sandbox/paths", Some(malformed)).expect(400)["error"].is_string());
    }

    let by_path = format!("/api/sandbox/paths/{}", encode("C:\\Users\\Documents"));
    let changed = ask(&fixture, "PATCH", &by_path, Some(json!({ "enabled": false }))).expect(200);
    assert_eq!((&changed["id"], &changed["enabled"]), (&json!(id), &json!(false)));
    let by_id = format!("/api/sandbox/paths/{id}");
    let changed = ask(&fixture, "PATCH", &by_id, Some(json!({ "description": "d" }))).expect(200);
    assert_eq!((&changed["description"], &changed["enabled"]), (&json!("d"), &json!(false)));
    assert!(ask(&fixture, "PATCH", "/api/sandbox/paths/999", Some(json!({}))).expect(404)["error"].is_string());

    // A restart keeps everything.
    let before = ask(&fixture, "GET", "/api/sandbox", None).expect(200);
    fixture.server.signal(rustix::process::Signal::TERM);
    fixture.server.ended();
    let Fixture { server, host } = fixture;
    fixture = Fixture::start_in(test_server, server.leave(), host);
    assert_eq!(ask(&fixture, "GET", "/api/sandbox", None).expect(200), before);
    assert_eq!(before["enabled"], true);

    let removed = json!({ "message": "Path removed" });
    assert_eq!(ask(&fixture, "DELETE", &by_path, None).expect(200), removed);
    assert!(ask(&fixture, "DELETE", &by_path, None).expect(404)["error"].is_string());
    assert_eq!(ask(&fixture, "DELETE", "/api/sandbox/paths/%2Fhome%2Fu", None).expect(200), removed);
    put(&fixture, "/home/u/a b").expect(200);
    assert_eq!(ask(&fixture, "DELETE", "/api/sandbox/paths?path=%2Fhome%2Fu%2Fa%20b", None).expect(200), removed);
    assert_eq!(ask(&fixture, "DELETE", "/api/sandbox/paths", None).expect(400), json!({ "error": "path is required" }));
    assert!(fixture.listed().is_empty());
    let audit = ask(&fixture, "GET", "/api/audit?limit=100", None).expect(200).to_string();
    for action in ["sandbox.enabled", "sandbox.path.added", "sandbox.path.changed", "sandbox.path.removed"] {
        assert!(audit.contains(action), "{action}");
    }
}

pub(crate) fn added_path_is_stored_in_normal_form(test_server: &TestServer) {
    let (fixture, home) = Fixture::at_home(test_server, &[]);
    let (home, docs) = (home.display().to_string(), home.join("docs").display().to_string());
    for (given, kept) in [
        ("/home/u/./docs/", "/home/u/docs"),
        ("/home/u/x/../y", "/home/u/y"),
        ("  /srv/spaced  ", "/srv/spaced"),
        ("d:/Projects/../Work", "D:\\Work"),
        ("/", "/"),
        ("~", &home),
        ("~/docs", &docs),
        ("~/a/../docs/", &docs),
        // `~` inside a path is a plain name.
        ("/srv/~/docs", "/srv/~/docs"),
        // A relative path starts at the server's working directory, which is `/` in this suite.
        ("docs", "/docs"),
        ("./docs/x/..", "/docs"),
    ] {
        put(&fixture, given).expect(200);
        assert_eq!(fixture.listed(), [kept], "{given}");
        let path = format!("/api/sandbox/paths/{}", encode(kept));
        fixture.server.ask("DELETE", &path, None).expect(200);
    }
}

pub(crate) fn relative_path_is_stored_absolute_with_a_warning(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let here = std::fs::read_link(format!("/proc/{}/cwd", fixture.server.id())).unwrap();
    let stored = here.join("rel/docs").display().to_string();
    for given in ["rel/docs", "./rel/docs/"] {
        let added = put(&fixture, given).expect(200);
        assert_eq!(added["paths"][0]["path"], json!(stored), "{given}");
        let warning = added["warnings"][0].as_str().unwrap();
        let names = format!("working directory {}", here.display());
        assert!(warning.contains(&stored) && warning.contains(&names), "{warning}");
    }
    assert_eq!(put(&fixture, &stored).expect(200)["warnings"], json!([]), "an absolute path needs no warning");
    assert_eq!(fixture.listed(), [stored]);
}

pub(crate) fn pattern_or_empty_segment_is_refused(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let template = |path: &str| {
        let body = json!({ "enabled": true, "paths": [{ "path": "/srv/good" }, { "path": path }] });
        fixture.server.ask("PUT", "/api/sandbox", Some(&body))
    };
    for (path, why) in [
        ("*", "is a pattern"),
        ("/srv/*", "is a pattern"),
        ("/srv/**/x", "is a pattern"),
        ("C:\\Users\\*", "is a pattern"),
        ("/srv//x", "empty segment"),
        ("//srv", "empty segment"),
    ] {
        for answer in [put(&fixture, path), template(path)] {
            let refused = answer.expect(400);
            assert!(refused["error"].as_str().unwrap().contains(why), "{path}: {refused}");
        }
        assert!(fixture.listed().is_empty(), "{path} left an entry");
    }
}

pub(crate) fn template_adds_missing_paths_and_sets_switch(test_server: &TestServer) {
    let fixture = Fixture::uncontrolled(test_server);
    put(&fixture, "/srv/a").expect(200);
    let paths = json!([{ "path": "/srv/a/", "description": "other" }, { "path": "/srv/b", "description": "B" }, { "path": "c" }]);
    let answer =
        fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true, "paths": paths }))).expect(200);
    let shown = fixture.server.ask("GET", "/api/sandbox", None).expect(200);
    assert_eq!((&answer["enabled"], &answer["paths"]), (&json!(true), &shown["paths"]));
    assert_eq!(fixture.listed(), ["/srv/a", "/srv/b", "/c"]);
    assert_eq!((&shown["paths"][0]["description"], &shown["paths"][1]["description"]), (&json!(""), &json!("B")));
    assert!(answer["warnings"][0].as_str().unwrap().contains("relative path"), "{answer}");
    let off = fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    assert_eq!(
        (&off["enabled"], off.get("paths")),
        (&json!(false), None),
        "without paths the answer has no list: {off}"
    );
}

/// A quoted star is a file name, which may be allowed once. As an entry it would look like a pattern.
pub(crate) fn pattern_is_not_remembered(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let star = fixture.directory("*");
    let (exec, question) = fixture.ask(&format!("ls '{}'", star.display()));
    let remember = json!({ "approved": true, "remember": true });
    let refused = fixture.answer(&fixture.server.token, &question, &remember);
    assert_eq!(refused.status, 400, "{}", String::from_utf8_lossy(&refused.bytes));
    assert!(fixture.listed().is_empty());
    fixture.approve(&question, false);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
}

pub(crate) fn path_list_is_readable_for_all_and_writable_for_operators(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    fixture.allow("/opt/everybodys");
    let token = |words: &[&str]| fixture.server.make_token(words);
    let operator = token(&["--role", "operator"]);
    let user = token(&["--role", "user", "--user", "u"]);
    let agent = token(&["--role", "agent", "--user", "u", "--agent", "a"]);
    for (token, status) in [(&operator, 200), (&user, 403), (&agent, 403)] {
        let ask = |method: &str, path: &str, body: Value| fixture.server.ask_as(token, method, path, Some(&body));
        let shown = ask("GET", "/api/sandbox", Value::Null).expect(200);
        assert_eq!(shown["paths"][0]["path"], "/opt/everybodys");
        let answers = [
            ask("PUT", "/api/sandbox", json!({ "enabled": true })),
            ask("POST", "/api/sandbox/paths", json!({ "path": "/opt/new" })),
            ask("PATCH", "/api/sandbox/paths/%2Fopt%2Feverybodys", json!({ "enabled": true })),
            ask("DELETE", "/api/sandbox/paths/%2Fopt%2Fnew", Value::Null),
            // A caller who may not change paths gets the same answer for missing ones.
            ask("DELETE", "/api/sandbox/paths/%2Fnone", Value::Null),
        ];
        for (number, answer) in answers.into_iter().enumerate() {
            let expected = if number == 4 && status == 200 { 404 } else { status };
            let body = answer.expect(expected);
            assert!(expected == 200 || body["error"].is_string(), "{body}");
        }
    }
    for (method, path) in [("GET", "/api/sandbox"), ("POST", "/api/sandbox/execute")] {
        let refused = fixture.server.ask_with(method, path, &[], Some(&json!({}))).expect(401);
        assert!(refused["error"].is_string(), "{refused}");
    }
    assert_eq!(fixture.listed(), ["/opt/everybodys"]);
}

pub(crate) fn own_directories_cannot_be_added(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let data = fixture.server.data().to_owned();
    let (to_data, into_data, dangling) =
        (fixture.host.join("to"), fixture.host.join("into"), fixture.host.join("dangling"));
    link(&data, &to_data);
    link(data.join("workspaces"), &into_data);
    link(data.join("not/there"), &dangling);
    let shown = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for path in [
        shown(&data),
        format!("{}/", data.display()),
        format!("{}/workspaces/u", data.display()),
        format!("{}/x/../owner.token", data.display()),
        shown(&to_data),
        format!("{}/db.sqlite", to_data.display()),
        shown(&into_data),
        shown(&dangling),
    ] {
        assert!(put(&fixture, &path).expect(400)["error"].as_str().unwrap().contains("Ringwall"), "{path}");
    }
    assert!(fixture.listed().is_empty());
    let beside = format!("{}x", data.display());
    put(&fixture, &beside).expect(200);
}

pub(crate) fn risky_path_gets_warning(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    for sensitive in ["/", "/etc", "/root", "/proc", "/sys", "/var/log", "C:\\Windows", "C:\\"] {
        let added = put(&fixture, sensitive).expect(200);
        assert!(!added["warnings"].as_array().unwrap().is_empty(), "{sensitive}");
        assert_eq!(added["paths"].as_array().unwrap().last().unwrap()["warning"], added["warnings"][0], "{sensitive}");
    }
    for plain in ["/home/u/work", "/opt/app", "/var/log/app", "D:\\Projects", "/not/there/yet"] {
        let added = put(&fixture, plain).expect(200);
        assert_eq!(added["warnings"], json!([]), "{plain}");
        assert_eq!(added["paths"].as_array().unwrap().last().unwrap()["warning"], Value::Null, "{plain}");
    }
    // Warnings follow Accept-Language.
    let authorization = format!("Bearer {}", fixture.server.token);
    let headers = [("authorization", authorization.as_str()), ("accept-language", "zh-CN,zh;q=0.9")];
    let chinese = fixture.server.ask_with("GET", "/api/sandbox", &headers, None).expect(200);
    let etc = chinese["paths"].as_array().unwrap().iter().find(|entry| entry["path"] == "/etc").unwrap();
    assert!(etc["warning"].as_str().unwrap().contains("密钥"), "{etc}");
    let (target, name) = (fixture.directory("target"), fixture.host.join("name"));
    fixture.server.ask("DELETE", "/api/sandbox/paths/%2F", None).expect(200);
    link(&target, &name);
    let warned = fixture.allow(&name)["warnings"].to_string();
    assert!(warned.contains(target.to_str().unwrap()), "{warned}");
    fixture.allow(&target);
    assert_eq!(fixture.allow(&name)["warnings"], json!([]), "no warning if the target is allowed");
}

/// The SQL statement of docs/guides/paths.md, while the server runs.
pub(crate) fn row_inserted_with_sql_takes_effect_at_once(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (docs, more) = (fixture.directory("docs"), fixture.directory("more"));
    fixture.file("docs/a", "found");
    let insert = format!(
        "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=30)\n\
         base.execute('''INSERT INTO sandbox_paths (path, description, enabled) VALUES\n\
         ('{0}//./', '项目目录', 1), ('{0}', 'again', 1), ('{1}', 'off', 0), ('', 'none', 1)''')\nbase.commit()",
        docs.display(),
        more.display()
    );
    let database = fixture.server.data().join("db.sqlite");
    let done = Command::new("python3").arg("-c").arg(&insert).arg(&database).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(fixture.listed(), [docs.to_str().unwrap(), more.to_str().unwrap()], "each once, in its normal form");
    assert_eq!(fixture.output(&format!("cat {}/a", docs.display())), "found");
    fixture.ask(&format!("ls {}", more.display()));
    let by_path = format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap()));
    fixture.server.ask("DELETE", &by_path, None).expect(200);
    assert_eq!(fixture.listed(), [more.to_str().unwrap()], "both rows are gone");
}

pub(crate) fn users_entry_is_visible_to_user_and_operators_only(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.server.make_token(&["--role", "user", "--user", user]));
    let (exec, question) = fixture.ask_as(&ann, "s", &format!("ls {}", docs.display()));
    fixture.answer(&ann, &question, &json!({ "approved": true, "remember": true })).expect(200);
    assert_eq!(fixture.ended(&exec)["status"], "SUCCEEDED");
    let paths = |token: &str| fixture.server.ask_as(token, "GET", "/api/sandbox", None).expect(200)["paths"].clone();
    assert_eq!(paths(&ann)[0]["scope"], "user:ann");
    assert_eq!(paths(&ann)[0]["path"], docs.to_str().unwrap());
    assert_eq!(paths(&bob), json!([]));
    assert_eq!(paths(&fixture.server.token)[0]["scope"], "user:ann", "operators see the entries of all users");
    let by_path = format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap()));
    fixture.server.ask_as(&bob, "DELETE", &by_path, None).expect(403);
    fixture.server.ask_as(&ann, "DELETE", &by_path, None).expect(200);
    assert_eq!(paths(&ann), json!([]));
}
