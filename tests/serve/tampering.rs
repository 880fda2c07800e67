//! `ringwall audit verify` after a change of the database with SQL. Each test first shows that the record is
//! intact.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::server::{Server, command};

struct Verified {
    code: Option<i32>,
    output: String,
}

fn audit(data: &Path, arguments: &[&str]) -> Verified {
    let Output { status, stdout, .. } = command(data).arg("audit").args(arguments).output().unwrap();
    Verified { code: status.code(), output: String::from_utf8(stdout).unwrap() }
}

fn assert_intact(data: &Path) {
    let verified = audit(data, &["verify"]);
    assert_eq!(verified.code, Some(0), "{}", verified.output);
    assert!(verified.output.starts_with("intact: ") && !verified.output.contains("note:"), "{}", verified.output);
}

/// Checks that both the command and the HTTP route report `expected`.
fn assert_reported(server: &Server, expected: &str) {
    let verified = audit(server.data(), &["verify"]);
    assert!(verified.code == Some(1) && verified.output.contains(expected), "{}", verified.output);
    let report = server.ask("POST", "/api/audit/verify", None).expect(200);
    assert_eq!(report["intact"], false, "{report}");
    assert!(report["findings"].to_string().contains(expected), "{report}");
}

/// Runs SQL on a database after it drops the triggers that protect the audit table.
fn change(database: &Path, sql: &str) {
    const SCRIPT: &str = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=30)\n\
        base.executescript('DROP TRIGGER IF EXISTS audit_unchanged; DROP TRIGGER IF EXISTS audit_kept;')\n\
        before = base.total_changes\nbase.executescript(sys.argv[2])\nassert base.total_changes > before";
    let done = Command::new("/usr/bin/python3").args(["-c", SCRIPT]).arg(database).arg(sql).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn change_record(server: &Server, sql: &str) {
    change(&server.data().join("db.sqlite"), sql);
}

#[test]
fn approval_answered_with_sql_is_reported() {
    let server = Server::start();
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
    let command = json!({ "session_id": "s", "command": "cat /srv/ringwall-test/file", "wait": false });
    let exec = server.ask("POST", "/api/sandbox/execute", Some(&command)).expect(202);
    assert_eq!(exec["status"], "AWAITING_APPROVAL");
    assert_intact(server.data());
    change_record(&server, "UPDATE approvals SET status = 'approved', answered_at = 1, answered_by = 'somebody'");
    assert_reported(&server, "or its answer, is not recorded in the chain");
}

/// The planted token has the owner's access, so verification must find it.
#[test]
fn owner_token_planted_with_sql_is_reported() {
    let server = Server::start();
    assert_intact(server.data());
    assert_eq!(server.ask_as("planted", "GET", "/api/tokens", None).status, 401);
    let hash: String = Sha256::digest(b"planted").iter().map(|byte| format!("{byte:02x}")).collect();
    let sql = format!(
        "INSERT INTO tokens (seq, id, hash, role, created_at, created_by) \
         VALUES (1000000, 't_00000000000000ff', x'{hash}', 'owner', 1, 'first_start')"
    );
    change_record(&server, &sql);
    assert_eq!(server.ask_as("planted", "GET", "/api/tokens", None).status, 200);
    assert_reported(&server, "row t_00000000000000ff of tokens is not recorded in the chain");
}

#[test]
fn settings_changed_with_sql_are_reported() {
    let server = Server::start();
    server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 50 } }))).expect(200);
    assert_intact(server.data());
    change_record(&server, "UPDATE settings SET document = replace(document, '50', '51')");
    assert_reported(&server, "row 1 of settings was altered");
}

const CUT: &str = "DELETE FROM audit WHERE seq > (SELECT max(seq) - 2 FROM audit); \
                   UPDATE audit_head SET seq = (SELECT max(seq) FROM audit), \
                   hash = (SELECT hash FROM audit ORDER BY seq DESC LIMIT 1), filed_through = 0; \
                   UPDATE audit SET filed = 0; DELETE FROM sandbox_execs";

#[test]
fn cut_tail_with_head_set_back_is_reported() {
    let server = Server::start();
    server.shell("true");
    let head = audit(server.data(), &["head"]).output;
    assert_eq!(audit(server.data(), &["verify", "--head", head.trim()]).code, Some(0));
    assert_intact(server.data());
    change_record(&server, CUT);
    assert_reported(&server, "not signed with this server's key");
    // Control: in a copy without the key, only a head that was printed before reveals the cut.
    let copy = tempfile::tempdir().unwrap();
    let file = server.data().join("copy.sqlite");
    assert!(command(server.data()).arg("backup").arg(&file).status().unwrap().success());
    std::fs::copy(&file, copy.path().join("db.sqlite")).unwrap();
    let verified = audit(copy.path(), &["verify"]);
    assert!(verified.code == Some(0) && verified.output.contains("was not checked"), "{}", verified.output);
    let verified = audit(copy.path(), &["verify", "--head", head.trim()]);
    assert!(verified.code == Some(1) && verified.output.contains("does not contain entry"), "{}", verified.output);
}

/// The head after the cut is signed again, but the server has recorded that it found another head.
#[test]
fn cut_tail_stays_reported_after_further_entries() {
    let server = Server::start();
    server.shell("true");
    assert_intact(server.data());
    change_record(&server, CUT);
    server.shell("true");
    assert_reported(&server, "found another head than it had signed");
}

#[test]
fn token_made_beside_running_server_keeps_record_intact() {
    let server = Server::start();
    server.make_token(&["--role", "user", "--user", "u"]);
    server.shell("true");
    assert_intact(server.data());
}

#[test]
fn malformed_head_is_refused() {
    let server = Server::start();
    for bad in ["1", "x:00", "1:00"] {
        assert_eq!(audit(server.data(), &["verify", "--head", bad]).code, Some(2), "{bad}");
        assert_eq!(server.ask("POST", &format!("/api/audit/verify?head={bad}"), None).status, 400, "{bad}");
    }
}

/// A copy of the database in a directory without the key stands for a second data directory that uses the
/// same PostgreSQL database.
#[test]
fn token_of_other_data_directory_is_refused_before_it_is_written() {
    let server = Server::start();
    server.make_token(&["--role", "operator"]);
    let listed = server.ask("GET", "/api/tokens", None).expect(200);
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let other = tempfile::TempDir::with_prefix("rw-other-").unwrap();
    let copy = other.path().join("db.sqlite");
    let backup = server.command().arg("backup").arg(&copy).output().unwrap();
    assert!(backup.status.success(), "{}", String::from_utf8_lossy(&backup.stderr));
    for arguments in [&["token", "create", "--role", "operator"][..], &["token", "revoke", &id]] {
        let refused = command(other.path()).args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{arguments:?}: {errors}");
        assert!(errors.contains("is not signed with the key of this data directory"), "{arguments:?}: {errors}");
        assert!(errors.contains("--data DIR"), "{arguments:?}: {errors}");
    }
    // With the key of the first directory the copy is intact and can be changed.
    std::fs::copy(server.data().join("digest.key"), other.path().join("digest.key")).unwrap();
    assert_intact(other.path());
    let made = command(other.path()).args(["token", "create", "--role", "operator"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_intact(other.path());
}
