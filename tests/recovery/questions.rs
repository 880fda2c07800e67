//! Somebody who answers questions, and remembers what they allow, until nobody answers any more: afterwards each answer and
//! what it put into the list are both there, or neither is.

use std::sync::mpsc::Sender;

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::load::Client;

/// One question, and what is known of the answer to it.
#[derive(Debug)]
pub(crate) struct Answered {
    id: String,
    path: String,
    /// Whether it was said that it counts.
    is_acknowledged: bool,
}

/// From now on commands ask.
pub(crate) fn control_paths(server: &Server) {
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
}

/// Asks, and answers itself, until the server is gone. Tells of each answer that counts.
pub(crate) fn answer_until_nobody_asks(client: &Client, life: usize, acknowledged: &Sender<()>) -> Vec<Answered> {
    let mut answered = Vec::new();
    loop {
        let path = format!("/srv/rw-recovery-{life}-{}", answered.len());
        let Some(id) = ask(client, &path) else { return answered };
        let reply =
            client.send("POST", &format!("/api/approvals/{id}"), Some(&json!({ "approved": true, "remember": true })));
        if let Some(reply) = &reply {
            assert_eq!(reply.status, 200, "{path}: {}", reply.body);
            // Mostly nobody waits for it.
            let _ = acknowledged.send(());
        }
        answered.push(Answered { id, path, is_acknowledged: reply.is_some() });
        if reply.is_none() {
            return answered;
        }
    }
}

/// The question that comes of a command which names this path; nothing when the server is gone.
fn ask(client: &Client, path: &str) -> Option<String> {
    let body = json!({ "session_id": "s", "command": format!("ls {path}"), "wait": false });
    let begun = client.send("POST", "/api/sandbox/execute", Some(&body))?;
    assert_eq!((begun.status, &begun.body["status"]), (202, &json!("AWAITING_APPROVAL")), "{path}: {}", begun.body);
    let pending = client.send("GET", "/api/approvals?status=pending&limit=1000", None)?.body;
    let mut pending = pending["approvals"].as_array().into_iter().flatten();
    let question = pending.find(|question| question["exec_id"] == begun.body["exec_id"]);
    Some(question.unwrap_or_else(|| panic!("{path} is asked about nowhere"))["id"].as_str().unwrap().to_owned())
}

/// After a restart: nothing that was acknowledged is lost, nothing is half there, and nothing waits for anybody.
pub(crate) fn check(server: &Server, answered: &[Answered]) -> usize {
    let listed = server.ask("GET", "/api/sandbox", None).expect(200);
    assert_eq!(listed["enabled"], true);
    let listed: Vec<&Value> = listed["paths"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    let mut remembered = 0;
    for Answered { id, path, is_acknowledged } in answered {
        let status = server.ask("GET", &format!("/api/approvals/{id}"), None).expect(200)["status"].clone();
        let is_remembered = status == "remembered";
        assert_eq!(is_remembered, listed.contains(&&json!(path)), "{path} is half there: the answer is {status}");
        assert!(is_remembered || !is_acknowledged, "{path} was acknowledged and is {status}");
        remembered += usize::from(is_remembered);
    }
    assert_eq!(listed.len(), remembered, "nobody remembered these: {listed:?}");
    for path in &listed {
        let path = path.as_str().unwrap();
        server.ask("DELETE", &format!("/api/sandbox/paths?path={path}"), None).expect(200);
    }
    let pending = server.ask("GET", "/api/approvals?status=pending", None).expect(200);
    assert_eq!(pending["approvals"], json!([]), "nobody waits for these");
    remembered
}
