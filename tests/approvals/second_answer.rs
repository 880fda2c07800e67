//! An exec that asks twice: the first answer is valid only for the files as they were then.

use serde_json::{Value, json};
use tests::support::wait::wait_until;

use crate::files::ScriptFixture;
use crate::fixture::{BlockedCommand, FILE_CONTENT, allow_once, deny};

/// A command names a script and two directories, of which one is allowed. The other one is approved
/// while the only slot is taken. Before the command gets the slot, the first directory is no longer
/// allowed, so the command asks again.
fn ask_twice(fixture: &mut ScriptFixture) -> BlockedCommand {
    fixture.write("x.sh", "echo good");
    let other = fixture.base.path("sibling");
    let server = fixture.base.server.clone();
    let one = json!({ "sandbox": { "max_concurrent_execs": 1, "max_concurrent_execs_per_user": 1 } });
    server.ask("PUT", "/settings", Some(&one)).expect(200);
    fixture.base.server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": other }))).expect(200);
    // The content of a directory is not covered, so it does not matter for the first answer that it
    // is blocked later.
    let mut first = fixture.ask(&format!("bash x.sh; ls {}", other.display()));
    assert_eq!(first.question["requestedPaths"], json!([fixture.base.path("blocked")]));
    let busy =
        fixture.base.submit_command_as(&server.token, "busy", "touch busy; until [ -e go ]; do sleep 0.02; done");
    let work = server.data().join("workspaces/default/default/sessions/busy/work");
    wait_until("the busy command", || work.join("busy").exists());
    assert_eq!(fixture.answer(&first.question, &allow_once()), 200);
    fixture.next("permission_resolved");
    server.ask("DELETE", &format!("/api/sandbox/paths?path={}", other.display()), None).expect(200);
    std::fs::write(work.join("go"), "").unwrap();
    let question = fixture.next("permission_request");
    assert_eq!(question["requestedPaths"], json!([other]), "the first answer is no longer valid");
    wait_until("the end of the busy command", || server.exec(&busy)["status"] == "SUCCEEDED");
    first.question = question;
    first
}

#[test]
fn second_answer_runs_command_with_unchanged_script() {
    let mut fixture = ScriptFixture::start();
    let second = ask_twice(&mut fixture);
    assert_eq!(fixture.allow(second)["stdout"], format!("good\nfile\n{FILE_CONTENT}"));
}

#[test]
fn script_changed_before_second_answer_voids_the_first() {
    let mut fixture = ScriptFixture::start();
    let second = ask_twice(&mut fixture);
    fixture.write("x.sh", "echo evil");
    assert_eq!(fixture.answer(&second.question, &allow_once()), 409);
    fixture.next("permission_resolved");
    let third = fixture.next("permission_request");
    let mut paths: Vec<&Value> = third["requestedPaths"].as_array().unwrap().iter().collect();
    paths.sort_by_key(|path| path.to_string());
    let (command, other) = (json!(fixture.base.path("blocked")), json!(fixture.base.path("sibling")));
    assert_eq!(paths, [&command, &other], "a path that was approved with the old script is not asked for again");
    assert_eq!(fixture.answer(&third, &deny("")), 200);
    assert_eq!(second.response()["stdout"], "");
}
