//! `ringwall approvals`, as a person at a terminal has it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::site::{Site, TEXT, deny};

fn verb(site: &Site, words: &[&str]) -> Command {
    let mut command = site.server.command();
    command.arg("approvals").args(words).args(["--url", &format!("http://{}", site.server.address)]);
    command
}

/// The exit code and what was printed.
fn say(site: &Site, words: &[&str]) -> (Option<i32>, String, String) {
    let output = verb(site, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Killed with its value.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn questions_are_listed_shown_and_answered() {
    let site = Site::start();
    let (run, asked) = site.asked("s");
    let id = asked["requestId"].as_str().unwrap();
    let (code, listed, _) = say(&site, &["list", "--status", "pending"]);
    assert!(code == Some(0) && listed.contains(id) && listed.contains("default/default"), "{listed}");
    let shown = say(&site, &["show", id]).1;
    assert!(shown.contains(&site.command()) && shown.contains(&site.directory()), "{shown}");
    assert_eq!(say(&site, &["answer", id]).0, Some(2), "an answer says which");
    assert_eq!(say(&site, &["answer", id, "--allow", "--deny"]).0, Some(2));
    let answered = say(&site, &["answer", id, "--allow", "--reason", "mine", "--json"]);
    let answered: Value = serde_json::from_str(&answered.1).unwrap();
    assert_eq!((&answered["status"], &answered["reason"]), (&json!("approved"), &json!("mine")));
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let (code, _, told) = say(&site, &["answer", id, "--deny"]);
    assert!(code == Some(2) && told.contains("CONFLICT"), "{told}");
    let page: Value = serde_json::from_str(&say(&site, &["list", "--json"]).1).unwrap();
    assert_eq!(page["approvals"][0]["id"], id);
    let (run, asked) = site.asked("s");
    let stored = say(&site, &["answer", asked["requestId"].as_str().unwrap(), "--remember"]).1;
    let [first, .., last] = stored.lines().collect::<Vec<_>>()[..] else { panic!("{stored}") };
    let entry = format!("remember   adds {} for all users", site.directory());
    assert!(first == entry && last.ends_with(" remembered"), "{stored}");
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
}

#[test]
fn the_chains_end_is_as_long_as_it_was_asked_for() {
    let site = Site::start();
    let tail = |count: &str| {
        let output = site.server.command().args(["audit", "tail", "-n", count]).output().unwrap();
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
    assert_eq!(site.server.ask("GET", "/api/audit?limit=0", None).status, 400);
}

#[test]
fn a_watcher_is_asked_and_answers() {
    let site = Site::start();
    let mut child = verb(&site, &["watch"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut answers, questions) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut child = Watching(child);
    let mut lines = BufReader::new(questions).lines().map(Result::unwrap);
    let run = site.run(&site.server.token, "s", &site.command());
    assert!(lines.by_ref().any(|line| line.starts_with("command") && line.ends_with(&site.command())));
    // What would be stored is seen before anybody says so.
    assert!(lines.by_ref().any(|line| line == format!("remember   adds {} for all users", site.directory())));
    assert!(lines.by_ref().any(|line| line.contains("1 of the last 1 commands would not ask again")));
    // What is no clear word is asked again.
    writeln!(answers, "\nperhaps\nr it is mine").unwrap();
    assert!(lines.by_ref().any(|line| line.ends_with(" remembered")));
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    let mut socket = site.follow("s");
    let other = site.run(&site.server.token, "s", &format!("cat {}/file", site.path("other").display()));
    let asked = socket.next();
    assert!(lines.by_ref().any(|line| line.contains(asked["requestId"].as_str().unwrap())));
    // Nobody is there any more: it ends, and what is open stays so.
    drop(answers);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    site.answer(&site.server.token, &asked["requestId"], &deny("")).expect(200);
    other.join().unwrap();
}

#[test]
fn a_program_that_watches_gets_lines() {
    let site = Site::start();
    let user = site.server.make_token(&["--role", "user", "--user", "ann"]);
    let mut child = verb(&site, &["watch", "--json", "--token", &user]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = child.stdout.take().unwrap();
    let _child = Watching(child);
    let mut lines = BufReader::new(lines).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let run = site.run(&user, "s", &site.command());
    let asked = lines.next().unwrap();
    assert_eq!((&asked["type"], &asked["approval"]["user"]), (&json!("permission_request"), &json!("ann")));
    site.answer(&user, &asked["approval"]["id"], &deny("no")).expect(200);
    let resolved = lines.next().unwrap();
    assert_eq!((&resolved["type"], &resolved["approval"]["status"]), (&json!("permission_resolved"), &json!("denied")));
    run.join().unwrap();
}
