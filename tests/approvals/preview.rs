//! What remembering would store, and what it would have changed.

use serde_json::json;

use crate::site::{Site, deny};

#[test]
fn a_preview_says_what_would_be_stored_and_what_it_would_have_allowed() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let mut ask = |command: &str| {
        let run = site.run(&site.server.token, "s", command);
        let asked = socket.next();
        site.answer(&site.server.token, &asked["requestId"], &deny("no")).expect(200);
        assert_eq!(socket.next()["type"], "permission_resolved");
        run.join().unwrap();
        asked
    };
    let other = site.path("other").display().to_string();
    ask(&format!("ls {}", site.directory()));
    ask(&format!("cat {}/file", site.directory()));
    ask(&format!("cat {}/file {other}/file", site.directory()));
    let last = ask(&format!("cat {}/file", site.directory()));
    site.run(&site.server.token, "s", "echo free").join().unwrap();
    // Neither code nor what runs on an agent's own files is a command of a session.
    let code = json!({ "session_id": "s", "language": "python", "code": "print(1)" });
    site.server.ask("POST", "/api/run", Some(&code)).expect(200);
    site.server.ask("POST", "/v1/default/execute", Some(&json!({ "command": "ls" }))).expect(200);
    let path = format!("/api/approvals/{}/preview", last["requestId"].as_str().unwrap());
    let preview = site.server.ask("GET", &path, None).expect(200);
    assert_eq!(preview["entries"].as_array().unwrap().len(), 1, "{preview}");
    assert_eq!(
        (&preview["entries"][0]["path"], &preview["entries"][0]["scope"]),
        (&json!(site.directory()), &json!("global"))
    );
    assert_eq!(preview["execs"], json!({ "looked_at": 5, "would_allow": 3, "would_still_ask": 1 }));
    let listed = site.control("GET", "", &json!({})).expect(200);
    assert_eq!(listed["paths"], json!([]), "a preview changes nothing");
    let stranger = site.server.make_token(&["--role", "user", "--user", "bob"]);
    assert_eq!(site.server.ask_as(&stranger, "GET", &path, None).status, 404);
}
