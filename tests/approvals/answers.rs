//! Answers to an approval: what each one allows, and which ones are rejected.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;

use serde_json::json;

use crate::fixture::{BlockedCommand, FILE_CONTENT, Fixture, allow_and_remember, allow_once, deny};
use crate::socket::Socket;

#[test]
fn command_with_blocked_path_awaits_approval() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    assert_eq!(fixture.server.exec(command.exec_id())["status"], "AWAITING_APPROVAL");
}

#[test]
fn allow_once_runs_command() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    let approval = fixture.answer(&command.question, &allow_once()).expect(200);
    assert_eq!(approval["status"], "approved");
    let response = command.response();
    assert_eq!((&response["status"], &response["stdout"]), (&json!("SUCCEEDED"), &json!(FILE_CONTENT)));
}

#[test]
fn allow_once_stores_no_path() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    fixture.answer(&command.question, &allow_once()).expect(200);
    command.response();
    assert!(fixture.allowed_paths().is_empty());
}

#[test]
fn allow_once_does_not_cover_same_command_again() {
    let fixture = Fixture::start();
    let first = fixture.run_blocked_command("s");
    fixture.answer(&first.question, &allow_once()).expect(200);
    first.response();
    let second = fixture.run_blocked_command("s");
    assert_eq!(fixture.server.exec(second.exec_id())["status"], "AWAITING_APPROVAL");
}

#[test]
fn remember_stores_directory_from_question() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    assert_eq!(command.question["requestedPath"], json!(fixture.path("blocked")));
    fixture.answer(&command.question, &allow_and_remember()).expect(200);
    command.response();
    assert_eq!(fixture.allowed_paths(), [fixture.path("blocked")]);
}

#[test]
fn remembered_path_needs_no_approval_in_other_session() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    fixture.answer(&command.question, &allow_and_remember()).expect(200);
    let cat = format!("cat {}/file", fixture.path("blocked").display());
    assert_eq!(fixture.spawn_command("other", &cat).join().unwrap()["stdout"], FILE_CONTENT);
}

#[test]
fn remembered_path_does_not_cover_sibling_directory() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    fixture.answer(&command.question, &allow_and_remember()).expect(200);
    command.response();
    let sibling = fixture.run_until_question("s", &format!("cat {}/file", fixture.path("sibling").display()));
    assert_eq!(sibling.question["requestedPath"], json!(fixture.path("sibling")));
}

#[test]
fn denial_is_reported_with_its_reason() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    let approval = fixture.answer(&command.question, &deny("not on a Friday")).expect(200);
    assert_eq!((&approval["status"], &approval["reason"]), (&json!("denied"), &json!("not on a Friday")));
    let reason = command.response()["error_reason"].clone();
    assert_eq!(reason["code"], "DENIED_BY_PERSON");
    assert!(reason["message"].as_str().unwrap().contains("not on a Friday"), "{reason}");
}

#[test]
fn denied_command_does_not_run() {
    let fixture = Fixture::start();
    let marker = fixture.path("blocked").join("marker");
    let command = fixture.run_until_question("s", &format!("touch {}", marker.display()));
    fixture.answer(&command.question, &deny("")).expect(200);
    command.response();
    assert!(!marker.exists());
}

#[test]
fn second_answer_is_rejected() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    fixture.answer(&command.question, &allow_once()).expect(200);
    for second in [allow_once(), allow_and_remember(), deny("")] {
        assert_eq!(fixture.answer(&command.question, &second).expect(409)["error"]["code"], "CONFLICT", "{second}");
    }
}

#[test]
fn answer_after_exec_ended_is_rejected() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    fixture.answer(&question, &allow_once()).expect(200);
    command.response();
    assert_eq!(fixture.answer(&question, &allow_once()).status, 409);
}

struct Race {
    /// HTTP status of each of the eight answers: allow, deny, allow, …
    statuses: Vec<u16>,
    approval_status: String,
    exec_status: String,
    /// One line for each time the command ran.
    log: String,
}

/// Sends eight contradictory answers to one question at the same time.
fn race_answers() -> Race {
    let fixture = Fixture::start();
    let log = fixture.path("sibling").join("log");
    std::fs::write(&log, "").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o666)).unwrap();
    let command = fixture.run_until_question("s", &format!("echo ran >> {}", log.display()));
    let barrier = Barrier::new(8);
    let statuses = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number: u32| {
                let (fixture, question, barrier) = (&fixture, &command.question, &barrier);
                scope.spawn(move || {
                    let answer = if number.is_multiple_of(2) { allow_once() } else { deny("") };
                    barrier.wait();
                    fixture.answer(question, &answer).status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let approval = fixture.approval(&command.question);
    let response = command.response();
    Race {
        statuses,
        approval_status: approval["status"].as_str().unwrap().to_owned(),
        exec_status: response["status"].as_str().unwrap().to_owned(),
        log: std::fs::read_to_string(&log).unwrap(),
    }
}

#[test]
fn concurrent_answers_accept_exactly_one() {
    let Race { statuses, .. } = race_answers();
    let count = |wanted: u16| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(409)), (1, 7), "{statuses:?}");
}

#[test]
fn concurrent_answers_run_command_only_as_recorded() {
    let Race { approval_status, exec_status, log, .. } = race_answers();
    let expected = if approval_status == "approved" { ("SUCCEEDED", "ran\n") } else { ("POLICY_DENIED", "") };
    assert_eq!((exec_status.as_str(), log.as_str()), expected, "approval {approval_status}");
}

const ONE_SECOND: &[(&str, &str)] = &[("RINGWALL_APPROVALS_TIMEOUT_S", "1")];

#[test]
fn expired_approval_denies_exec() {
    let fixture = Fixture::start_with_env(ONE_SECOND);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    let response = command.response();
    assert_eq!(response["status"], "POLICY_DENIED");
    assert_eq!(response["error_reason"]["code"], "APPROVAL_EXPIRED");
    assert_eq!(fixture.approval(&question)["status"], "expired");
}

#[test]
fn answer_to_expired_approval_is_gone() {
    let fixture = Fixture::start_with_env(ONE_SECOND);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    command.response();
    assert_eq!(fixture.answer(&question, &allow_once()).expect(410)["error"]["code"], "APPROVAL_EXPIRED");
}

/// The deadline is kept on the monotonic clock. Moving the recorded wall-clock time into the past
/// has the same effect as an operator who sets the clock ahead.
#[test]
fn wall_clock_set_ahead_does_not_expire_approval() {
    const MOVE_BACK_ONE_HOUR: &str = "import sqlite3, sys\n\
        database = sqlite3.connect(sys.argv[1], timeout=30)\n\
        database.execute('UPDATE approvals SET expires_at = expires_at - 3600000')\n\
        database.commit()";
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    let database = fixture.server.data().join("db.sqlite");
    let python = std::process::Command::new("python3").args(["-c", MOVE_BACK_ONE_HOUR]).arg(database).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    fixture.answer(&command.question, &allow_once()).expect(200);
    assert_eq!(command.response()["stdout"], FILE_CONTENT);
}

#[test]
fn approved_exec_runs_once_after_caller_disconnects() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let command = format!("cat {}/file; echo ran >> log", fixture.path("blocked").display());
    let body = json!({ "session_id": "s", "command": command }).to_string();
    let mut caller = fixture.server.connect();
    write!(
        caller,
        "POST /api/sandbox/execute HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        fixture.server.address,
        fixture.server.token,
        body.len(),
    )
    .unwrap();
    let question = socket.next();
    fixture.answer(&question, &allow_once()).expect(200);
    drop(caller);
    assert_eq!(fixture.wait_for_exec(question["exec_id"].as_str().unwrap())["status"], "SUCCEEDED");
    assert_eq!(fixture.spawn_command("s", "cat log").join().unwrap()["stdout"], "ran\n");
}

#[test]
fn audit_entry_of_question_names_caller_address() {
    let fixture = Fixture::start();
    let _command = fixture.run_blocked_command("s");
    let audit = fixture.server.ask("GET", "/api/audit?action=approval.opened", None).expect(200);
    let from = &audit["entries"][0]["details"]["from"];
    assert_eq!(from["door"], "http");
    assert!(from["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{from}");
}

/// Runs a command that names both directories, and allows one of them after the question is open.
fn allow_one_of_two_paths(fixture: &Fixture) -> (BlockedCommand, Socket) {
    let mut socket = fixture.open_socket("s");
    let (blocked, sibling) = (fixture.path("blocked"), fixture.path("sibling"));
    let cat = format!("cat {}/file {}/file", blocked.display(), sibling.display());
    let command = fixture.run_and_follow(&mut socket, "s", &cat);
    fixture.allow_path(&blocked);
    (command, socket)
}

#[test]
fn changed_path_list_rejects_answer() {
    let fixture = Fixture::start();
    let (command, _socket) = allow_one_of_two_paths(&fixture);
    assert_eq!(fixture.answer(&command.question, &allow_once()).expect(409)["error"]["code"], "CONFLICT");
}

#[test]
fn changed_path_list_cancels_question() {
    let fixture = Fixture::start();
    let (command, mut socket) = allow_one_of_two_paths(&fixture);
    let resolved = socket.next();
    assert_eq!((&resolved["requestId"], &resolved["status"]), (&command.question["requestId"], &json!("cancelled")));
}

#[test]
fn changed_path_list_asks_again_for_remaining_path() {
    let fixture = Fixture::start();
    let (command, mut socket) = allow_one_of_two_paths(&fixture);
    let _resolved = socket.next();
    let second = socket.next();
    assert_eq!(second["requestedPaths"], json!([fixture.path("sibling")]));
    fixture.answer(&second, &allow_once()).expect(200);
    assert_eq!(command.response()["stdout"], FILE_CONTENT.repeat(2));
}

#[test]
fn cancelled_exec_closes_question() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let exec_id = fixture.submit_command("s", &format!("ls {}", fixture.path("blocked").display()));
    let question = socket.next();
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec_id}"), None).expect(202);
    let resolved = socket.next();
    assert_eq!((&resolved["type"], &resolved["status"]), (&json!("permission_resolved"), &json!("cancelled")));
    assert_eq!(fixture.answer(&question, &allow_once()).status, 409);
}

#[test]
fn malformed_answer_leaves_question_open() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    for malformed in [
        json!({}),
        json!({ "approved": "yes" }),
        json!({ "approved": null }),
        json!({ "remember": true }),
        json!({ "approved": true, "path": "/" }),
        json!({ "approved": true, "reason": "x".repeat(3000) }),
        json!([true]),
    ] {
        let error = fixture.answer(&command.question, &malformed).expect(400);
        assert_eq!(error["error"]["code"], "INVALID_ARGUMENT", "{malformed}");
    }
    assert_eq!(fixture.approval(&command.question)["status"], "pending");
}

#[test]
fn answer_to_unknown_approval_is_not_found() {
    let fixture = Fixture::start();
    for unknown in ["a_0123456789abcdef0123456789abcdef", "x", "%2e%2e"] {
        let error = fixture.answer_by_id(unknown, &allow_once()).expect(404);
        assert_eq!(error["error"]["code"], "NOT_FOUND", "{unknown}");
    }
}

#[test]
fn list_limit_below_one_is_rejected() {
    let fixture = Fixture::start();
    for (limit, status) in [("0", 400), ("-1", 400), ("x", 400), ("1", 200), ("100000", 200)] {
        let response = fixture.server.ask("GET", &format!("/api/approvals?limit={limit}"), None);
        assert_eq!(response.status, status, "limit={limit}");
    }
}
