//! Files that a command line names: their content is part of what a person approves.
//!
//! The attacker is the agent: it has other commands of the session and the file API, and swaps a
//! file after the question. The verdict is what the approved command printed, and what the approval
//! says.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tests::support::wait::{wait_for, wait_until};

use crate::fixture::{BlockedCommand, FILE_CONTENT, Fixture, allow_once, deny};
use crate::socket::Socket;

pub const SESSION: &str = "s";

pub struct ScriptFixture {
    pub base: Fixture,
    pub socket: Socket,
}

impl ScriptFixture {
    pub fn start() -> Self {
        let base = Fixture::start();
        let socket = base.open_socket(SESSION);
        Self { base, socket }
    }

    /// Runs a command that needs no approval, as the agent could at any time.
    fn shell(&self, command: &str) -> Value {
        self.base.spawn_command(SESSION, command).join().unwrap()
    }

    pub fn write(&self, name: &str, content: &str) {
        let response = self.shell(&format!("printf %s '{content}' > {name}"));
        assert_eq!(response["status"], "SUCCEEDED", "{response}");
    }

    /// Runs a command that also reads a blocked file, until the question comes.
    pub fn ask(&mut self, command: &str) -> BlockedCommand {
        let command = format!("{command}; {}", self.base.blocked_command());
        let command = self.base.run_and_follow(&mut self.socket, SESSION, &command);
        assert_eq!(command.question["type"], "permission_request", "{}", command.question);
        command
    }

    pub fn next(&mut self, kind: &str) -> Value {
        let message = self.socket.next();
        assert_eq!(message["type"], kind, "{message}");
        message
    }

    pub fn answer(&self, question: &Value, answer: &Value) -> u16 {
        self.base.answer(question, answer).status
    }

    pub fn allow(&self, command: BlockedCommand) -> Value {
        assert_eq!(self.answer(&command.question, &allow_once()), 200);
        command.response()
    }

    pub fn deny(&self, command: BlockedCommand) {
        assert_eq!(self.answer(&command.question, &deny("")), 200);
        command.response();
    }

    pub fn work(&self) -> PathBuf {
        self.base.server.data().join("workspaces/default/default/sessions").join(SESSION).join("work")
    }
}

/// Paths and reasons of what a question does not cover.
fn not_covered(question: &Value) -> Vec<(&str, &str)> {
    let all = question["not_covered"].as_array().unwrap().iter();
    all.map(|file| (file["path"].as_str().unwrap(), file["why"].as_str().unwrap())).collect()
}

fn covered(question: &Value) -> Vec<&str> {
    question["covered_files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect()
}

/// The control: without a swap the approved script runs, and a swapped script runs in a command
/// that needs no approval.
#[test]
fn unchanged_script_runs_after_approval() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "echo good");
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.allow(command)["stdout"], format!("good\n{FILE_CONTENT}"));
    fixture.write("x.sh", "echo evil");
    assert_eq!(fixture.shell("bash x.sh")["stdout"], "evil\n");
}

#[test]
fn question_shows_script_with_digest_and_text() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "echo good");
    let command = fixture.ask("bash x.sh");
    let file = &command.question["covered_files"][0];
    assert_eq!((&file["path"], &file["pinned"], &file["size"]), (&json!("/workspace/x.sh"), &json!(true), &json!(9)));
    assert_eq!(file["script"], json!({ "text": "echo good", "is_whole": true }));
    assert_eq!(file["sha256"].as_str().unwrap().len(), 64);
    assert!(!not_covered(&command.question).contains(&("/workspace/x.sh", "not_pinned")), "{}", command.question);
    let listed = fixture.base.approval(&command.question);
    assert_eq!(listed["covered_files"], command.question["covered_files"]);
    assert_eq!(
        not_covered(&listed),
        [("/workspace/x.sh", "opened_by_script"), (&*blocked_file(&fixture), "not_allowed")]
    );
    fixture.deny(command);
}

fn blocked_file(fixture: &ScriptFixture) -> String {
    format!("{}/file", fixture.base.blocked_directory())
}

#[test]
fn script_text_is_cut_at_64_kib() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("head -c 100000 /dev/zero | tr '\\0' '#' > x.sh");
    let command = fixture.ask("bash x.sh");
    let script = &command.question["covered_files"][0]["script"];
    assert_eq!((script["text"].as_str().unwrap().len(), &script["is_whole"]), (64 << 10, &json!(false)));
    fixture.deny(command);
}

/// Swaps a file after the question. Returns the response of the command and the second question.
fn swap_after_question(command: &str, file: &str) -> (Value, Value) {
    let mut fixture = ScriptFixture::start();
    fixture.write(file, "echo good");
    let command = fixture.ask(command);
    fixture.write(file, "echo evil");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 409, "the answer counts for another file");
    assert_eq!(fixture.next("permission_resolved")["status"], "cancelled");
    let second = fixture.next("permission_request");
    assert_eq!(fixture.answer(&second, &deny("")), 200);
    (command.response(), second)
}

#[test]
fn script_swapped_after_question_asks_again() {
    for command in ["bash x.sh", "sh -c \"bash x.sh\"", ". ./x.sh", "source x.sh", "timeout 9 bash < x.sh"] {
        let (response, second) = swap_after_question(command, "x.sh");
        assert_eq!((&response["status"], &response["stdout"]), (&json!("POLICY_DENIED"), &json!("")), "{command}");
        assert_eq!(covered(&second), ["/workspace/x.sh"], "{command}");
    }
}

#[test]
fn input_swapped_after_question_asks_again() {
    let (response, second) = swap_after_question("cat in.txt", "in.txt");
    assert_eq!(response["status"], "POLICY_DENIED");
    assert_eq!(second["covered_files"][0]["script"], Value::Null, "an input is not shown");
}

#[test]
fn script_replaced_by_rename_after_question_asks_again() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "echo good");
    fixture.write("evil.sh", "echo evil");
    let command = fixture.ask("bash x.sh");
    fixture.shell("touch -r x.sh evil.sh; mv evil.sh x.sh");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 409);
    fixture.next("permission_resolved");
    let second = fixture.next("permission_request");
    assert_eq!(second["covered_files"][0]["script"]["text"], "echo evil");
    assert_eq!(fixture.answer(&second, &allow_once()), 200);
    assert_eq!(command.response()["stdout"], format!("evil\n{FILE_CONTENT}"), "the person saw this one");
}

#[test]
fn script_created_after_question_asks_again() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("true");
    let command = fixture.ask("bash x.sh");
    assert!(not_covered(&command.question).contains(&("/workspace/x.sh", "missing")), "{}", command.question);
    fixture.write("x.sh", "echo evil");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 409);
    fixture.next("permission_resolved");
    let second = fixture.next("permission_request");
    assert_eq!(fixture.answer(&second, &deny("")), 200);
    command.response();
}

#[test]
fn file_that_changes_a_fourth_time_denies_exec() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "echo 0");
    let command = fixture.ask("bash x.sh");
    let mut question = command.question.clone();
    for change in 1..=4 {
        fixture.write("x.sh", &format!("echo {change}"));
        assert_eq!(fixture.answer(&question, &allow_once()), 409, "change {change}");
        fixture.next("permission_resolved");
        if change < 4 {
            question = fixture.next("permission_request");
        }
    }
    let response = command.response();
    assert_eq!((&response["status"], &response["stdout"]), (&json!("POLICY_DENIED"), &json!("")));
    assert_eq!(response["error_reason"]["code"], "FILES_CHANGED");
    assert!(response["error_reason"]["message"].as_str().unwrap().contains("/workspace/x.sh"), "{response}");
}

/// Other commands and the file API swap the script while the answer comes and the command starts.
#[test]
fn script_swapped_between_answer_and_start_never_runs() {
    let mut fixture = ScriptFixture::start();
    for round in 0..8 {
        fixture.write("x.sh", "echo good");
        let command = fixture.ask("bash x.sh");
        let is_over = AtomicBool::new(false);
        let (status, response) = std::thread::scope(|scope| {
            let (fixture, is_over) = (&fixture.base, &is_over);
            let swap = |command: &'static str| {
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        fixture.spawn_command(SESSION, command).join().unwrap();
                    }
                })
            };
            let swappers = [
                swap("for i in 1 2 3 4 5 6 7 8; do echo echo evil > y; mv y x.sh; done"),
                swap("for i in 1 2 3 4 5 6 7 8; do echo echo good > x.sh; echo echo evil > x.sh; done"),
            ];
            let answered = fixture.answer(&command.question, &allow_once()).status;
            let response = settle(fixture, command);
            is_over.store(true, Ordering::Relaxed);
            swappers.into_iter().for_each(|swapper| swapper.join().unwrap());
            (answered, response)
        });
        let stdout = response["stdout"].as_str().unwrap();
        assert!(stdout.is_empty() || stdout.starts_with("good\n"), "round {round}, answered {status}: {response}");
        fixture.socket = fixture.base.open_socket(SESSION);
    }
}

/// Denies every further question until the exec has ended.
fn settle(fixture: &Fixture, command: BlockedCommand) -> Value {
    while !command.is_finished() {
        let open = fixture.server.ask("GET", "/api/approvals?status=pending", None).expect(200);
        for question in open["approvals"].as_array().unwrap() {
            fixture.answer_by_id(question["id"].as_str().unwrap(), &deny(""));
        }
        std::thread::yield_now();
    }
    command.response()
}

#[test]
fn other_command_of_session_waits_for_approved_command() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "touch started; until [ -e go ]; do sleep 0.05; done; cat x.sh");
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 200);
    wait_until("the command", || fixture.work().join("started").exists());
    let delete = fixture.base.server.ask("DELETE", "/api/sessions/s/files/x.sh", None);
    assert_eq!(delete.status, 409, "the file API changed an approved file");
    let other = fixture.base.spawn_command(SESSION, "echo echo evil > x.sh; echo later");
    // The approved command waits for this file, so the other one cannot have run before.
    std::fs::write(fixture.work().join("go"), "").unwrap();
    let response = command.response();
    assert!(response["stdout"].as_str().unwrap().starts_with("touch started"), "{response}");
    assert_eq!(other.join().unwrap()["stdout"], "later\n", "it runs afterwards");
    assert_eq!(fixture.base.server.ask("DELETE", "/api/sessions/s/files/x.sh", None).status, 200, "the control");
}

#[test]
fn approved_command_is_denied_while_another_uses_the_session() {
    let mut fixture = ScriptFixture::start();
    fixture.write("x.sh", "echo good");
    let command = fixture.ask("bash x.sh");
    let other = fixture.base.submit_command(SESSION, "touch busy; until [ -e go ]; do sleep 0.1; done");
    wait_until("the other command", || fixture.work().join("busy").exists());
    assert_eq!(fixture.answer(&command.question, &allow_once()), 200);
    let response = command.response();
    assert_eq!(
        (&response["status"], &response["error_reason"]["code"]),
        (&json!("POLICY_DENIED"), &json!("SESSION_BUSY")),
        "{response}"
    );
    fixture.base.server.ask("DELETE", &format!("/sandbox/execs/{other}"), None).expect(202);
}

#[test]
fn seventeenth_file_is_not_covered() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("for i in $(seq 17); do echo $i > f$i; done");
    let names: Vec<String> = (1..=17).map(|number| format!("f{number}")).collect();
    let command = fixture.ask(&format!("cat {}", names.join(" ")));
    assert_eq!(covered(&command.question).len(), 16);
    assert!(not_covered(&command.question).contains(&("/workspace/f17", "too_many")), "{}", command.question);
    fixture.deny(command);
}

#[test]
fn script_is_covered_before_any_number_of_inputs() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("for i in $(seq 17); do echo $i > f$i; done; echo echo good > x.sh");
    let names: Vec<String> = (1..=17).map(|number| format!("f{number}")).collect();
    let command = fixture.ask(&format!("cat {}; bash x.sh", names.join(" ")));
    assert_eq!(covered(&command.question)[0], "/workspace/x.sh");
    fixture.deny(command);
}

#[test]
fn file_beyond_64_mb_is_not_covered() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("truncate -s 65M large; truncate -s 1M small");
    let command = fixture.ask("cat large small > /dev/null");
    assert_eq!(covered(&command.question), ["/workspace/small"]);
    assert!(not_covered(&command.question).contains(&("/workspace/large", "too_large")), "{}", command.question);
    fixture.deny(command);
}

#[test]
fn operands_without_content_are_listed() {
    let mut fixture = ScriptFixture::start();
    fixture.shell("mkfifo fifo; mkdir dir; echo x > target; ln -s target link; echo x > closed; chmod 000 closed");
    let command = fixture.ask("cat fifo dir link closed gl* \"$UNKNOWN\" > out");
    assert_eq!(covered(&command.question), [""; 0]);
    let found = not_covered(&command.question);
    for expected in [
        ("/workspace/fifo", "special"),
        ("/workspace/dir", "directory"),
        ("/workspace/link", "link"),
        ("/workspace/closed", "unreadable"),
        ("/workspace/out", "written"),
        ("/workspace", "unclear"),
    ] {
        assert!(found.contains(&expected), "{expected:?} is not in {found:?}");
    }
    fixture.deny(command);
}

#[test]
fn content_of_blocked_path_is_not_shown() {
    let mut fixture = ScriptFixture::start();
    let command = fixture.ask(&format!("bash {}/file", fixture.base.blocked_directory()));
    assert_eq!(covered(&command.question), [""; 0]);
    assert!(!command.question.to_string().contains(FILE_CONTENT), "{}", command.question);
    fixture.deny(command);
}

#[test]
fn file_in_allowed_path_is_checked_and_not_pinned() {
    let mut fixture = ScriptFixture::start();
    let script = fixture.base.path("sibling").join("x.sh");
    std::fs::write(&script, "echo good").unwrap();
    fixture
        .base
        .server
        .ask("POST", "/api/sandbox/paths", Some(&json!({ "path": fixture.base.path("sibling") })))
        .expect(200);
    let command = fixture.ask(&format!("bash {}", script.display()));
    let file = &command.question["covered_files"][0];
    assert_eq!((&file["path"], &file["pinned"]), (&json!(script), &json!(false)));
    let path = script.to_str().unwrap();
    assert!(not_covered(&command.question).contains(&(path, "not_pinned")), "{}", command.question);
    let shown = fixture.base.server.show_approval(command.question["requestId"].as_str().unwrap());
    let warning = format!(
        "{path}  in an allowed path: compared right before the start, and another program that may write there can \
         change it afterwards"
    );
    assert!(shown.contains(&warning), "{shown}");
    std::fs::write(&script, "echo evil").unwrap();
    assert_eq!(fixture.answer(&command.question, &allow_once()), 409);
    fixture.next("permission_resolved");
    let second = fixture.next("permission_request");
    assert_eq!(fixture.answer(&second, &deny("")), 200);
    command.response();
}

/// As root the server can read everything; the question shows only what the box could read itself.
#[test]
fn file_that_box_may_not_read_is_not_shown() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut fixture = ScriptFixture::start();
    let script = fixture.base.path("sibling").join("x.sh");
    std::fs::write(&script, "secret words").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o000)).unwrap();
    fixture
        .base
        .server
        .ask("POST", "/api/sandbox/paths", Some(&json!({ "path": fixture.base.path("sibling") })))
        .expect(200);
    let command = fixture.ask(&format!("bash {}", script.display()));
    assert!(not_covered(&command.question).contains(&(script.to_str().unwrap(), "unreadable")), "{}", command.question);
    assert!(!command.question.to_string().contains("secret words"));
    fixture.deny(command);
}

/// A background process of the session box keeps swapping the script. The approved command reads
/// the script's size 300 times; the swapped script has another size.
#[test]
fn process_in_session_box_cannot_swap_running_script() {
    const SWAP: &str = "echo echo evil > evil.sh; until [ -e arm ]; do sleep 0.02; done; \
                        while :; do cp evil.sh y; mv y x.sh; done";
    let mut fixture = ScriptFixture::start();
    fixture
        .base
        .server
        .ask("PUT", "/settings", Some(&json!({ "sessions": { "confirmation": "auto-approve" } })))
        .expect(200);
    fixture.write(
        "x.sh",
        "{ stat -c %s x.sh; touch arm; for i in $(seq 300); do stat -c %s x.sh; done; } | sort -u | wc -l",
    );
    fixture.base.server.ask("POST", "/api/sessions/s/processes", Some(&json!({ "command": SWAP }))).expect(202);
    wait_until("the process", || fixture.work().join("evil.sh").exists());
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.allow(command)["stdout"], format!("1\n{FILE_CONTENT}"));
    // The control: it goes on when the approved command has ended, and swaps the script.
    wait_for("the swap", || {
        (std::fs::read_to_string(fixture.work().join("x.sh")).ok()? == "echo evil\n").then_some(())
    });
}

/// Stopping a command of a paused box resumes the box, so that the signal arrives. A process that
/// ignores SIGTERM keeps it running for a second, in which another one could swap the script that
/// an approved command reads.
#[test]
fn cancelled_process_does_not_resume_paused_session_box() {
    const SWAP: &str = "echo echo evil > evil.sh; until [ -e arm ]; do sleep 0.02; done; cp evil.sh y; mv y x.sh";
    const STUBBORN: &str = "trap '' TERM; touch stubborn; while :; do sleep 0.02; done";
    let mut fixture = ScriptFixture::start();
    let server = &fixture.base.server;
    let confirm = json!({ "sessions": { "confirmation": "auto-approve" } });
    server.ask("PUT", "/settings", Some(&confirm)).expect(200);
    fixture.write(
        "x.sh",
        "stat -c %s x.sh > sizes; touch started; until [ -e go ]; do sleep 0.02; done; \
         for i in $(seq 500); do stat -c %s x.sh; done >> sizes; sort -u sizes | wc -l",
    );
    server.ask("POST", "/api/sessions/s/processes", Some(&json!({ "command": SWAP }))).expect(202);
    let stubborn = server.ask("POST", "/api/sessions/s/processes", Some(&json!({ "command": STUBBORN }))).expect(202);
    for file in ["evil.sh", "stubborn"] {
        wait_until("the processes", || fixture.work().join(file).exists());
    }
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 200);
    wait_until("the command", || fixture.work().join("started").exists());
    std::fs::write(fixture.work().join("arm"), "").unwrap();
    let stubborn = stubborn["pid"].as_str().unwrap();
    let cancel = format!("/sandbox/execs/{stubborn}");
    let response = std::thread::scope(|scope| {
        // The answer comes when the process has ended, and so after the approved command.
        let cancelled = scope.spawn(|| fixture.base.server.ask("DELETE", &cancel, None).status);
        std::fs::write(fixture.work().join("go"), "").unwrap();
        let response = command.response();
        assert_eq!(cancelled.join().unwrap(), 202);
        response
    });
    assert_eq!(response["stdout"], format!("1\n{FILE_CONTENT}"), "{response}");
    // The control: the other process goes on when the approved command has ended, and swaps the
    // script.
    wait_for("the swap", || {
        (std::fs::read_to_string(fixture.work().join("x.sh")).ok()? == "echo evil\n").then_some(())
    });
}
