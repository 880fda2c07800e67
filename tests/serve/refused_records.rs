//! The record keeps an excerpt of large refused requests, and requests that ran in full.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::server::{Server, command};

const LARGE: usize = 900_000;

/// Bytes of all execs, approvals and audit entries in the database.
fn recorded_bytes(data: &Path) -> usize {
    const SCRIPT: &str = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1], timeout=30)\n\
        rows = [row for table in ('sandbox_execs', 'approvals', 'audit') for row in base.execute('SELECT * FROM ' + table)]\n\
        print(sum(len(value) if isinstance(value, (str, bytes)) else 8 for row in rows for value in row))";
    let done = Command::new("/usr/bin/python3").args(["-c", SCRIPT]).arg(data.join("db.sqlite")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

fn refused_command(code: &str) -> Value {
    json!({ "project_id": "p", "exec": { "kind": "python", "command": "python", "args": ["-x", code] } })
}

/// The newest denied exec, as GET shows it.
fn denied_exec(server: &Server) -> Value {
    let listed = server.ask("GET", "/sandbox/execs?status=POLICY_DENIED&limit=1", None).expect(200);
    server.ask("GET", &format!("/sandbox/execs/{}", listed[0]["exec_id"].as_str().unwrap()), None).expect(200)
}

fn digest(words: &[&str]) -> (usize, String) {
    let whole: String = words.iter().map(|word| format!("{word}\0")).collect();
    (whole.len(), Sha256::digest(whole.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect())
}

#[test]
fn refused_requests_leave_excerpts() {
    let server = Server::start();
    let before = recorded_bytes(server.data());
    for number in 0..12 {
        let code = format!("# {number}\n{}", "x".repeat(LARGE));
        server.ask("POST", "/sandbox/execs", Some(&refused_command(&code))).expect(403);
    }
    let grown = recorded_bytes(server.data()) - before;
    assert!(grown < 12 * 10_000, "12 refused requests left {grown} bytes");
    assert!(command(server.data()).args(["audit", "verify"]).status().unwrap().success());
}

#[test]
fn refused_exec_shows_excerpt_with_size_and_digest() {
    let server = Server::start();
    let code = format!("print(1)\n{}", "#".repeat(LARGE));
    server.ask("POST", "/sandbox/execs", Some(&refused_command(&code))).expect(403);
    let exec = denied_exec(&server);
    let excerpt = exec["args"][1].as_str().unwrap();
    assert!(code.starts_with(excerpt) && (2_000..=4_096).contains(&excerpt.len()), "{}", excerpt.len());
    let (size, sha256) = digest(&["python", "-x", &code]);
    let request = json!({ "truncated": true, "size": size, "sha256": sha256 });
    assert_eq!(exec["policy_snapshot"]["denied"]["request"], request);
}

/// Large code is passed to the interpreter as input, so the record contains only its digest.
#[test]
fn refused_code_leaves_its_digest() {
    let server = Server::start();
    let before = recorded_bytes(server.data());
    let code = format!("rm -rf /\n# {}", "x".repeat(LARGE));
    let run = json!({ "session_id": "s", "language": "shell", "code": code });
    let answer = server.ask("POST", "/api/run", Some(&run)).expect(200);
    assert_eq!((&answer["success"], &answer["exit_code"]), (&json!(false), &json!(-1)), "{answer}");
    let grown = recorded_bytes(server.data()) - before;
    assert!(grown < 10_000, "a refused run left {grown} bytes");
    assert_eq!(denied_exec(&server)["policy_snapshot"]["code"]["bytes"], code.len());
}

/// Commands that ran are recorded in full, so they count against the workspace's disk quota.
#[test]
fn large_commands_on_record_count_against_the_quota() {
    let server = Server::start();
    server.ask("PUT", "/settings", Some(&json!({ "workspace": { "quota_mb": 1 } }))).expect(200);
    let request = |number: usize| {
        let script = format!("true # {number} {}", "x".repeat(100_000));
        json!({ "project_id": "p", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] } })
    };
    let statuses: Vec<u16> =
        (0..12).map(|number| server.ask("POST", "/sandbox/execs", Some(&request(number))).status).collect();
    // Ten commands of 100 KB fit into 1 MiB.
    assert_eq!(statuses, [[200; 10].as_slice(), &[413; 2]].concat());
    let refused = server.ask("POST", "/sandbox/execs", Some(&request(12))).expect(413);
    assert_eq!(refused["detail"]["code"], "DISK_QUOTA", "{refused}");
    assert!(refused["detail"]["message"].as_str().unwrap().contains("retention.execs_days"), "{refused}");
    // Control: a small command still runs.
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

/// The control of this file: small refused requests and executed ones are recorded in full.
#[test]
fn small_refused_request_and_executed_one_stay_whole() {
    let server = Server::start();
    server.ask("POST", "/sandbox/execs", Some(&refused_command("print(1)"))).expect(403);
    let exec = denied_exec(&server);
    assert_eq!(
        (&exec["args"], &exec["policy_snapshot"]["denied"]["request"]),
        (&json!(["-x", "print(1)"]), &Value::Null)
    );
    let script = format!("true # {}", "x".repeat(100_000));
    let ran = server.shell(&script);
    let exec = server.ask("GET", &format!("/sandbox/execs/{}", ran["exec_id"].as_str().unwrap()), None).expect(200);
    assert_eq!(exec["args"], json!(["-lc", script]));
}
