//! The record on every database: lists, audit chain, tokens and settings, over restarts and kills.

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::postgres_cluster::Cluster;
use tests::support::server::{Server, command};

use crate::fixture::{Fixture, create_database};

/// The output of a command on the server's data directory.
fn run_command(server: &Server, args: &[&str]) -> String {
    let output = command(server.data()).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn lists_are_newest_first_in_pages(fixture: &Fixture) {
    let server = fixture.start();
    let ids: Vec<Value> = (0..3).map(|_| server.shell("true")["exec_id"].clone()).collect();
    let first = server.ask("GET", "/sandbox/execs?limit=2", None);
    let next = first.headers.get("x-next-cursor").unwrap().to_str().unwrap().to_owned();
    let first = first.expect(200);
    assert_eq!([&first[0]["exec_id"], &first[1]["exec_id"]], [&ids[2], &ids[1]]);
    // New execs do not shift the next page.
    server.shell("true");
    let last = server.ask("GET", &format!("/sandbox/execs?limit=2&cursor={next}"), None);
    assert!(last.headers.get("x-next-cursor").is_none());
    let last = last.expect(200);
    assert_eq!((last.as_array().unwrap().len(), &last[0]["exec_id"]), (1, &ids[0]));
    for bad in ["status=odd", "cursor=zzz", "limit=-1", "surprise=1"] {
        assert_eq!(server.ask("GET", &format!("/sandbox/execs?{bad}"), None).refused(400), "INVALID_ARGUMENT", "{bad}");
    }
}

pub(crate) fn lists_are_filtered(fixture: &Fixture) {
    let server = fixture.start();
    let run = |project: &str, task: &str, script: &str| {
        let mut body = server.request(script);
        body["project_id"] = project.into();
        body["task_ref"] = json!({ "task_id": task });
        server.run(&body)["exec_id"].clone()
    };
    let (first, second, third) = (run("p", "t1", "true"), run("q", "t1", "exit 1"), run("q", "t2", "true"));
    for (query, expected) in [
        ("project_id=q", vec![&third, &second]),
        ("task_id=t1", vec![&second, &first]),
        ("status=SUCCEEDED", vec![&third, &first]),
        ("status=SUCCEEDED&project_id=q", vec![&third]),
        ("task_id=t1&project_id=q&status=FAILED&limit=1", vec![&second]),
        ("status=LOST", vec![]),
        ("task_id=%27%20OR%201%3D1--", vec![]),
    ] {
        let found = server.ask("GET", &format!("/sandbox/execs?{query}"), None).expect(200);
        let found: Vec<&Value> = found.as_array().unwrap().iter().map(|exec| &exec["exec_id"]).collect();
        assert_eq!(found, expected, "{query}");
    }
}

pub(crate) fn audit_chain_is_intact_after_kill(fixture: &Fixture) {
    let mut server = fixture.start();
    let done = server.shell("echo kept");
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    server.signal(Signal::KILL);
    server.ended();
    let server = fixture.start_in(server.leave());
    assert_eq!(server.exec(&id)["status"], "LOST");
    assert_eq!(server.exec(done["exec_id"].as_str().unwrap())["status"], "SUCCEEDED");
    assert!(run_command(&server, &["audit", "verify"]).starts_with("intact: "));
    let report: Value = serde_json::from_str(&run_command(&server, &["audit", "verify", "--json"])).unwrap();
    assert_eq!((&report["intact"], &report["findings"]), (&json!(true), &json!([])), "{report}");
    assert_eq!(server.ask("POST", "/api/audit/verify", None).expect(200)["intact"], true);
    let exported = run_command(&server, &["audit", "export"]);
    assert_eq!(exported.as_bytes(), server.ask("GET", "/api/audit/export", None).bytes);
    let entries: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |action: &str, subject: &str| {
        entries.iter().filter(|entry| entry["action"] == action && entry["subject"] == subject).count()
    };
    for (subject, action) in [(id.as_str(), "exec.lost"), (done["exec_id"].as_str().unwrap(), "exec.outcome")] {
        let outcomes = of("exec.outcome", subject) + of("exec.lost", subject);
        assert_eq!((of("exec.intent", subject), of(action, subject), outcomes), (1, 1, 1), "{subject}: {exported}");
    }
    assert_eq!(Some(run_command(&server, &["audit", "tail", "-n", "1"]).trim_end()), exported.lines().last());
    let listed = server.ask("GET", "/api/audit?action=exec.lost", None).expect(200);
    assert_eq!((listed["entries"].as_array().unwrap().len(), &listed["entries"][0]["subject"]), (1, &json!(id)));
}

pub(crate) fn idempotency_key_survives_restart(fixture: &Fixture) {
    let mut server = fixture.start();
    let key = [("authorization", format!("Bearer {}", server.token)), ("idempotency-key", "again".to_owned())];
    let ask = |server: &Server| {
        let headers = key.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.ask_with("POST", "/sandbox/execs", &headers, Some(&server.request("echo once"))).expect(200)
    };
    let first = ask(&server);
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
    let server = fixture.start_in(server.leave());
    assert_eq!(ask(&server), first);
    assert_eq!(server.ask("GET", "/sandbox/execs", None).expect(200).as_array().unwrap().len(), 1);
}

pub(crate) fn tokens_work_until_revoked(fixture: &Fixture) {
    let mut server = fixture.start();
    let by_command = server.make_token(&["--role", "user", "--user", "ann"]);
    let asked = json!({ "role": "agent", "user_id": "ann", "agent_id": "a", "label": "l" });
    let by_http = server.ask("POST", "/api/tokens", Some(&asked)).expect(201);
    let agent = by_http["token"].as_str().unwrap();
    let may = |server: &Server, token: &str| server.ask_as(token, "GET", "/sandbox/execs", None).status;
    assert_eq!((may(&server, &by_command), may(&server, agent)), (200, 200));
    server.signal(Signal::TERM);
    server.ended();
    let server = fixture.start_in(server.leave());
    assert_eq!((may(&server, &by_command), may(&server, agent)), (200, 200), "over a restart");
    assert_eq!(server.ask("GET", "/sandbox/execs", None).status, 200, "the owner's token");
    let listed: Value = serde_json::from_str(&run_command(&server, &["token", "list", "--json"])).unwrap();
    let found =
        listed.as_array().unwrap().iter().find(|token| token["user_id"] == "ann" && token["agent_id"].is_null());
    run_command(&server, &["token", "revoke", found.unwrap()["id"].as_str().unwrap()]);
    assert_eq!((may(&server, &by_command), may(&server, agent)), (401, 200), "revoked beside a running server");
    let path = format!("/api/tokens/{}", by_http["id"].as_str().unwrap());
    assert_eq!(server.ask("DELETE", &path, None).status, 204);
    assert_eq!(may(&server, agent), 401);
    let exported = run_command(&server, &["audit", "export"]);
    assert!(!exported.contains(agent) && !exported.contains(&by_command), "the audit chain contains a token");
    assert!(run_command(&server, &["audit", "verify"]).starts_with("intact: "));
}

pub(crate) fn settings_survive_kill(fixture: &Fixture) {
    let mut server = fixture.start();
    let patch = json!({ "sandbox": { "limits": { "timeout_ms": 1234 } } });
    let after = server.ask("PUT", "/settings", Some(&patch)).expect(200);
    assert_eq!(after["sandbox"]["limits"]["timeout_ms"], 1234, "{after}");
    server.signal(Signal::KILL);
    server.ended();
    let server = fixture.start_in(server.leave());
    assert_eq!(server.ask("GET", "/settings", None).expect(200), after);
    let id = server.shell("true")["exec_id"].as_str().unwrap().to_owned();
    assert_eq!(server.exec(&id)["policy_snapshot"]["layers"]["timeout_ms"], "settings");
}

/// `--database` for the server and for commands. The data directory then contains no database.
pub(crate) fn database_flag_is_used_by_server_and_commands() {
    let cluster = Cluster::start().unwrap_or_else(|reason| panic!("{reason}"));
    let url = create_database(&cluster);
    let server = Server::start_in(TempDir::with_prefix("rw-serve-").unwrap(), &["--database", &url]);
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
    assert!(!server.data().join("db.sqlite").exists());
    assert!(run_command(&server, &["audit", "verify", "--database", &url]).starts_with("intact: "));
    let token = run_command(&server, &["token", "create", "--role", "operator", "--database", &url]);
    assert_eq!(server.ask_as(token.trim(), "GET", "/settings", None).status, 200);
    let nowhere = url.replace("ringwall-pg-", "nowhere-");
    let refused = command(server.data()).args(["audit", "verify", "--database", &nowhere]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    // Without the database nothing runs; when it is back, execs work again.
    cluster.halt();
    let body = server.request("touch ran");
    let away = server.ask("POST", "/sandbox/execs", Some(&body));
    assert!(matches!(away.status, 500 | 503), "{away:?}");
    cluster.launch();
    assert_eq!(server.shell("test ! -e ran")["status"], "SUCCEEDED");
}
