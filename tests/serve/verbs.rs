//! The commands `exec`, `token`, `audit` and `backup` beside a running server, and starts that are refused.

use std::path::Path;
use std::process::{Command, Output};

use crate::server::{Server, command};

fn run_ringwall(data: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(data).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn exec_prints_output_and_exits_with_its_code() {
    let server = Server::start();
    let url = format!("http://{}", server.address);
    let exec = |arguments: &[&str]| run_ringwall(server.data(), &[&["exec", "--url", &url][..], arguments].concat());
    let (code, out, err) = exec(&["--", "echo out; echo err >&2; exit 5"]);
    assert_eq!((code, out.as_str(), err.as_str()), (Some(5), "out\n", "err\n"));
    assert_eq!(exec(&["--kind", "python", "--project", "q", "--", "print(1)"]).1, "1\n");
    let (code, out, _) = exec(&["--json", "--", "exit 6"]);
    let object: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &object["exit_code"], &object["status"]), (Some(6), &6.into(), &"FAILED".into()));
    let (code, out, err) = exec(&["--token", "wrong", "--", "true"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("token") && err.contains("hint"), "{err}");
    let nobody = run_ringwall(server.data(), &["exec", "--url", "http://127.0.0.1:1", "--", "true"]);
    assert!(nobody.0 == Some(125) && nobody.2.contains("ringwall serve"), "{nobody:?}");
}

#[test]
fn token_commands_work_beside_a_running_server() {
    let server = Server::start();
    let (code, out, err) =
        run_ringwall(server.data(), &["token", "create", "--role", "user", "--user", "u", "--expires", "1h"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().count(), 1);
    let token = out.trim();
    assert_eq!(server.ask_as(token, "GET", "/sandbox/execs", None).status, 200);
    let listed: serde_json::Value =
        serde_json::from_str(&run_ringwall(server.data(), &["token", "list", "--json"]).1).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    assert_eq!(listed[0]["user_id"], "u");
    assert_eq!(run_ringwall(server.data(), &["token", "revoke", id]).0, Some(0));
    assert_eq!(server.ask_as(token, "GET", "/sandbox/execs", None).status, 401);
    for bad in [
        &["--role", "user"][..],
        &["--role", "agent", "--user", "u"],
        &["--role", "owner", "--user", "u"],
        &["--role", "user", "--user", "../x"],
    ] {
        assert_eq!(run_ringwall(server.data(), &[&["token", "create"], bad].concat()).0, Some(2), "{bad:?}");
    }
}

#[test]
fn record_is_verified_exported_and_backed_up() {
    let server = Server::start();
    server.shell("true");
    let (code, out, _) = run_ringwall(server.data(), &["audit", "verify"]);
    assert!(code == Some(0) && out.starts_with("intact: "), "{out}");
    let report: serde_json::Value =
        serde_json::from_str(&run_ringwall(server.data(), &["audit", "verify", "--json"]).1).unwrap();
    assert_eq!(report["intact"], true);
    assert_eq!(server.ask("POST", "/api/audit/verify", None).expect(200)["intact"], true);
    let exported = run_ringwall(server.data(), &["audit", "export"]).1;
    let over_http = server.ask("GET", "/api/audit/export", None);
    assert_eq!(exported.as_bytes(), over_http.bytes);
    assert!(exported.lines().count() >= 3 && exported.contains("exec.intent") && exported.contains("exec.outcome"));
    let last = run_ringwall(server.data(), &["audit", "tail", "-n", "1"]).1;
    assert_eq!(Some(last.trim_end()), exported.lines().last());
    let listed = server.ask("GET", "/api/audit?action=exec.outcome", None).expect(200);
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &listed["next_cursor"]), (1, &serde_json::Value::Null));
    let id = entries[0]["exec_id"].as_str().unwrap();
    assert_eq!(entries[0]["details"]["status"], "SUCCEEDED");
    let of_exec = server.ask("GET", &format!("/api/audit?exec_id={id}&limit=1"), None).expect(200);
    assert_eq!(of_exec["entries"][0], entries[0]);
    let cursor = of_exec["next_cursor"].as_str().unwrap();
    let rest = server.ask("GET", &format!("/api/audit?exec_id={id}&cursor={cursor}"), None).expect(200);
    let intent = &rest["entries"][0];
    assert_eq!((&intent["action"], &intent["hash"]), (&"exec.intent".into(), &entries[0]["previous"]));
    // Entries of another actor are listed separately.
    let other = server.make_token(&["--role", "operator"]);
    server
        .ask_as(&other, "PUT", "/settings", Some(&serde_json::json!({ "approvals": { "timeout_s": 50 } })))
        .expect(200);
    let other = server.ask_as(&other, "GET", "/api/me", None).expect(200)["token_id"].clone();
    let of = |actor: &serde_json::Value| {
        let found = server.ask("GET", &format!("/api/audit?actor={}", actor.as_str().unwrap()), None).expect(200);
        let entries = found["entries"].as_array().unwrap().clone();
        assert!(entries.iter().all(|entry| entry["actor"] == *actor), "{found}");
        entries.into_iter().map(|entry| entry["action"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of(&other), ["settings.changed"]);
    let own = of(&intent["actor"]);
    assert!(own.contains(&"exec.intent".to_owned()) && !own.contains(&"settings.changed".to_owned()), "{own:?}");
    let none = server.ask("GET", "/api/audit?request_id=a_0123456789abcdef", None).expect(200);
    assert_eq!(none["entries"], serde_json::json!([]));
    let copy = server.data().join("copy.sqlite");
    let arguments = ["backup", copy.to_str().unwrap()];
    assert_eq!(run_ringwall(server.data(), &arguments).0, Some(0));
    assert_eq!(run_ringwall(server.data(), &arguments).0, Some(2), "an existing file was replaced");
    let elsewhere = tempfile::tempdir().unwrap();
    std::fs::copy(&copy, elsewhere.path().join("db.sqlite")).unwrap();
    let verified = run_ringwall(elsewhere.path(), &["audit", "verify"]);
    assert_eq!(verified.0, Some(0), "{verified:?}");
    let nothing = tempfile::tempdir().unwrap();
    assert_eq!(run_ringwall(nothing.path(), &["audit", "verify"]).0, Some(2));
}

/// The change drops the trigger that protects entries, as an attacker with access to the database can.
#[test]
fn changed_entry_is_reported_by_cli_and_http() {
    const CHANGE: &str = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=30)\n\
        base.execute('DROP TRIGGER audit_unchanged')\n\
        changed = base.execute(\"UPDATE audit SET detail = replace(detail, 'SUCCEEDED', 'FAILED') WHERE action = 'exec.outcome'\")\n\
        assert changed.rowcount == 1\nbase.commit()";
    let server = Server::start();
    server.shell("true");
    let verify = || server.ask("POST", "/api/audit/verify", None).expect(200);
    assert_eq!(verify()["intact"], true);
    let database = server.data().join("db.sqlite");
    let done = Command::new("python3").args(["-c", CHANGE]).arg(database).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report = verify();
    assert_eq!(report["intact"], false, "{report}");
    assert!(!report["findings"].as_array().unwrap().is_empty(), "{report}");
    let (code, out, _) = run_ringwall(server.data(), &["audit", "verify", "--json"]);
    let printed: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &printed["intact"], &printed["findings"]), (Some(1), &report["intact"], &report["findings"]));
}

#[test]
fn misspelt_key_or_port_in_use_prevents_the_start() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("ringwall.toml"), "[server]\nlistne = '127.0.0.1:0'\n").unwrap();
    let (code, _, err) = run_ringwall(data.path(), &["serve"]);
    assert!(code == Some(2) && err.contains("listne") && err.contains("line 2"), "{err}");
    let server = Server::start();
    let other = tempfile::tempdir().unwrap();
    let (code, _, err) = run_ringwall(other.path(), &["serve", "--listen", &server.address]);
    assert!(code == Some(2) && err.contains("--listen"), "{err}");
}
