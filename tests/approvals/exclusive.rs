//! Other commands and session boxes while an approved command has exclusive use of its session.

use serde_json::json;
use tests::support::host;
use tests::support::process::LiveProcess;
use tests::support::wait::{wait_for, wait_until};

use crate::files::{SESSION, ScriptFixture};
use crate::fixture::{BlockedCommand, FILE_CONTENT, allow_once};

/// Runs until the test makes the file `go`.
const UNTIL_GO: &str = "touch started; until [ -e go ]; do sleep 0.02; done; echo good";

fn start_approved_command(fixture: &mut ScriptFixture) -> BlockedCommand {
    fixture.write("x.sh", UNTIL_GO);
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.answer(&command.question, &allow_once()), 200);
    wait_until("the command", || fixture.work().join("started").exists());
    command
}

fn end_approved_command(fixture: &ScriptFixture, command: BlockedCommand) {
    std::fs::write(fixture.work().join("go"), "").unwrap();
    assert_eq!(command.response()["stdout"], format!("good\n{FILE_CONTENT}"));
}

fn set(fixture: &ScriptFixture, settings: &serde_json::Value) {
    fixture.base.server.ask("PUT", "/settings", Some(settings)).expect(200);
}

/// Creates the session box, with one idle interpreter in it.
fn make_session_box(fixture: &ScriptFixture, session: &str) {
    let cell = json!({ "session_id": session, "context_id": "c", "code": "open('mark', 'w').close()" });
    assert_eq!(fixture.base.server.ask("POST", "/api/run", Some(&cell)).expect(200)["success"], true);
    assert_eq!(count_contexts(fixture, session), 1);
}

fn count_contexts(fixture: &ScriptFixture, session: &str) -> usize {
    let listed = fixture.base.server.ask("GET", &format!("/api/contexts/{session}"), None).expect(200);
    listed["contexts"].as_array().unwrap().len()
}

/// Two slots: the approved command has one, and a second command of its session gets the other when
/// it is submitted. It waits for the approved command, so a command of another session runs only if
/// the slot is given back.
#[test]
fn command_waiting_for_approved_one_gives_its_slot_back() {
    let mut fixture = ScriptFixture::start();
    set(&fixture, &json!({ "sandbox": { "max_concurrent_execs": 2, "max_concurrent_execs_per_user": 2 } }));
    let command = start_approved_command(&mut fixture);
    let base = &fixture.base;
    let waiting = base.submit_command(SESSION, "echo later");
    let other = base.submit_command("other", "echo other");
    wait_until("the command of the other session", || base.server.exec(&other)["status"] == "SUCCEEDED");
    assert_eq!(base.server.exec(&waiting)["status"], "RUNNING", "it ran beside the approved command");
    end_approved_command(&fixture, command);
    wait_until("the waiting command", || base.server.exec(&waiting)["status"] == "SUCCEEDED");
}

/// Ending a paused box resumes it, and its processes could change the approved files until they are
/// killed.
#[test]
fn idle_box_of_session_outlives_approved_command() {
    let mut fixture = ScriptFixture::start();
    make_session_box(&fixture, SESSION);
    let command = start_approved_command(&mut fixture);
    make_session_box(&fixture, "control");
    set(&fixture, &json!({ "pool": { "idle_timeout_s": 1 } }));
    // The control was used later, so the box of the session would have ended before it.
    wait_until("the end of the control's box", || count_contexts(&fixture, "control") == 0);
    assert_eq!(count_contexts(&fixture, SESSION), 1, "the session's box was ended");
    end_approved_command(&fixture, command);
    wait_until("the end of the session's box", || count_contexts(&fixture, SESSION) == 0);
}

/// Traces a process: when it is killed, it stays a zombie, and its box is not gone, until the
/// tracer ends.
const TRACE: &str = "import ctypes, sys\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    PTRACE_SEIZE = 0x4206\n\
    assert libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) == 0, ctypes.get_errno()\n\
    print('ready', flush=True)\n\
    sys.stdin.read()";

/// The box is idle and ends; a tracer on the host keeps one of its processes, and so the box, from
/// being gone.
#[test]
fn approved_command_waits_for_box_that_is_being_ended() {
    let mut fixture = ScriptFixture::start();
    make_session_box(&fixture, SESSION);
    let traced = box_process(&fixture);
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(["-I", "-c", TRACE, &traced.to_string()]);
    let mut tracer = LiveProcess::start(command).unwrap();
    assert_eq!(tracer.line().unwrap(), "ready");
    set(&fixture, &json!({ "pool": { "idle_timeout_s": 1 } }));
    wait_until("the end of the box", || count_contexts(&fixture, SESSION) == 0);
    fixture.write("x.sh", "echo good");
    let command = fixture.ask("bash x.sh");
    let response = fixture.allow(command);
    assert_eq!(response["error_reason"]["code"], "SESSION_BUSY", "{response}");
    assert!(response["error_reason"]["message"].as_str().unwrap().contains("is being ended"), "{response}");
    // The control: without the tracer the box is gone, and the command runs.
    tracer.finish().unwrap();
    fixture.socket = fixture.base.open_socket(SESSION);
    let command = fixture.ask("bash x.sh");
    assert_eq!(fixture.allow(command)["stdout"], format!("good\n{FILE_CONTENT}"));
}

/// The interpreter in the session box. Warm boxes also run python, but do not see the session's
/// files.
fn box_process(fixture: &ScriptFixture) -> u32 {
    let server = fixture.base.server.id();
    let is_interpreter = |number: &u32| {
        let process = format!("/proc/{number}");
        std::fs::read_to_string(format!("{process}/comm")).is_ok_and(|name| name.starts_with("python"))
            && std::fs::exists(format!("{process}/root/workspace/mark")).is_ok_and(|exists| exists)
    };
    wait_for("the interpreter", || host::descendants(server).unwrap().into_iter().find(is_interpreter))
}
