//! The preview of an approval: the entries that `remember` would store, and their effect on recent
//! commands.

use serde_json::json;

use crate::fixture::{Fixture, deny};

#[test]
fn preview_shows_entries_and_counts_recent_commands() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let mut ask = |command: &str| {
        let run = fixture.spawn_command("s", command);
        let question = socket.next();
        fixture.answer(&question, &deny("no")).expect(200);
        assert_eq!(socket.next()["type"], "permission_resolved");
        run.join().unwrap();
        question
    };
    let other = fixture.path("sibling").display().to_string();
    ask(&format!("ls {}", fixture.blocked_directory()));
    ask(&format!("cat {}/file", fixture.blocked_directory()));
    ask(&format!("cat {}/file {other}/file", fixture.blocked_directory()));
    let last = ask(&format!("cat {}/file", fixture.blocked_directory()));
    fixture.spawn_command("s", "echo free").join().unwrap();
    // Neither code nor a command on the agent's own files counts as a command of a session.
    let code = json!({ "session_id": "s", "language": "python", "code": "print(1)" });
    fixture.server.ask("POST", "/api/run", Some(&code)).expect(200);
    fixture.server.ask("POST", "/v1/default/execute", Some(&json!({ "command": "ls" }))).expect(200);
    let path = format!("/api/approvals/{}/preview", last["requestId"].as_str().unwrap());
    let preview = fixture.server.ask("GET", &path, None).expect(200);
    assert_eq!(preview["entries"].as_array().unwrap().len(), 1, "{preview}");
    assert_eq!(
        (&preview["entries"][0]["path"], &preview["entries"][0]["scope"]),
        (&json!(fixture.blocked_directory()), &json!("global"))
    );
    assert_eq!(preview["execs"], json!({ "looked_at": 5, "would_allow": 3, "would_still_ask": 1 }));
    assert!(fixture.allowed_paths().is_empty(), "the preview stored an entry");
    let stranger = fixture.server.make_token(&["--role", "user", "--user", "bob"]);
    assert_eq!(fixture.server.ask_as(&stranger, "GET", &path, None).status, 404);
}
