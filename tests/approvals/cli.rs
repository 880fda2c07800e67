//! `ringwall approvals` and `ringwall audit tail`, as a person at a terminal uses them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::fixture::{FILE_CONTENT, Fixture, deny};

fn verb(fixture: &Fixture, words: &[&str]) -> Command {
    let mut command = fixture.server.command();
    command.arg("approvals").args(words).args(["--url", &format!("http://{}", fixture.server.address)]);
    command
}

/// The exit code, stdout and stderr.
fn run(fixture: &Fixture, words: &[&str]) -> (Option<i32>, String, String) {
    let output = verb(fixture, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A running `approvals watch`. Dropping it kills the process.
struct WatchProcess(Child);

impl Drop for WatchProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn approvals_are_listed_shown_and_answered() {
    let fixture = Fixture::start();
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    let id = question["requestId"].as_str().unwrap();
    let (code, listed, _) = run(&fixture, &["list", "--status", "pending"]);
    assert!(code == Some(0) && listed.contains(id) && listed.contains("default/default"), "{listed}");
    let shown = run(&fixture, &["show", id]).1;
    assert!(shown.contains(&fixture.blocked_command()) && shown.contains(&fixture.blocked_directory()), "{shown}");
    assert_eq!(run(&fixture, &["answer", id]).0, Some(2), "the verdict is missing");
    assert_eq!(run(&fixture, &["answer", id, "--allow", "--deny"]).0, Some(2));
    let answered = run(&fixture, &["answer", id, "--allow", "--reason", "mine", "--json"]);
    let answered: Value = serde_json::from_str(&answered.1).unwrap();
    assert_eq!((&answered["status"], &answered["reason"]), (&json!("approved"), &json!("mine")));
    assert_eq!(command.response()["stdout"], FILE_CONTENT);
    let (code, _, output) = run(&fixture, &["answer", id, "--deny"]);
    assert!(code == Some(2) && output.contains("CONFLICT"), "{output}");
    let page: Value = serde_json::from_str(&run(&fixture, &["list", "--json"]).1).unwrap();
    assert_eq!(page["approvals"][0]["id"], id);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    let stored = run(&fixture, &["answer", question["requestId"].as_str().unwrap(), "--remember"]).1;
    let [first, .., last] = stored.lines().collect::<Vec<_>>()[..] else { panic!("{stored}") };
    let entry = format!("remember   adds {} for all users", fixture.blocked_directory());
    assert!(first == entry && last.ends_with(" remembered"), "{stored}");
    assert_eq!(command.response()["stdout"], FILE_CONTENT);
}

#[test]
fn audit_tail_prints_the_requested_number_of_entries() {
    let fixture = Fixture::start();
    let tail = |count: &str| {
        let output = fixture.server.command().args(["audit", "tail", "-n", count]).output().unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        lines
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    let all = tail("5000");
    assert!(all.len() > 1 && all[0] == 1, "{all:?}");
    assert_eq!(tail("2"), all[all.len() - 2..]);
    assert!(tail("0").is_empty());
    assert_eq!(fixture.server.ask("GET", "/api/audit?limit=0", None).status, 400);
}

#[test]
fn watch_asks_and_reads_answers() {
    let fixture = Fixture::start();
    let mut child = verb(&fixture, &["watch"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut answers, questions) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut child = WatchProcess(child);
    let mut lines = BufReader::new(questions).lines().map(Result::unwrap);
    let run = fixture.spawn_command("s", &fixture.blocked_command());
    assert!(lines.by_ref().any(|line| line.starts_with("command") && line.ends_with(&fixture.blocked_command())));
    // The entry that `remember` would store is shown before the answer.
    assert!(
        lines.by_ref().any(|line| line == format!("remember   adds {} for all users", fixture.blocked_directory()))
    );
    assert!(lines.by_ref().any(|line| line.contains("1 of the last 1 commands would not ask again")));
    // An unknown answer is asked again.
    writeln!(answers, "\nperhaps\nr it is mine").unwrap();
    assert!(lines.by_ref().any(|line| line.ends_with(" remembered")));
    assert_eq!(run.join().unwrap()["stdout"], FILE_CONTENT);
    let mut socket = fixture.open_socket("s");
    let other = fixture.spawn_command("s", &format!("cat {}/file", fixture.path("sibling").display()));
    let question = socket.next();
    assert!(lines.by_ref().any(|line| line.contains(question["requestId"].as_str().unwrap())));
    // At the end of its input `watch` ends, and the approval stays open.
    drop(answers);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    fixture.answer(&question, &deny("")).expect(200);
    other.join().unwrap();
}

#[test]
fn watch_json_prints_one_object_per_line() {
    let fixture = Fixture::start();
    let user = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    let mut child = verb(&fixture, &["watch", "--json", "--token", &user]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = child.stdout.take().unwrap();
    let _child = WatchProcess(child);
    let mut lines = BufReader::new(lines).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let run = fixture.spawn_command_as(&user, "s", &fixture.blocked_command());
    let question = lines.next().unwrap();
    assert_eq!((&question["type"], &question["approval"]["user"]), (&json!("permission_request"), &json!("ann")));
    fixture.answer_by_id_as(&user, question["approval"]["id"].as_str().unwrap(), &deny("no")).expect(200);
    let resolved = lines.next().unwrap();
    assert_eq!((&resolved["type"], &resolved["approval"]["status"]), (&json!("permission_resolved"), &json!("denied")));
    run.join().unwrap();
}
