//! A client that causes and answers approvals until the server is gone. After the restart each
//! answer and the path that it remembers are both stored, or neither.

use std::sync::mpsc::Sender;

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::load::Client;

/// An approval that the client answered.
#[derive(Debug)]
pub(crate) struct AnsweredApproval {
    id: String,
    path: String,
    /// The server confirmed the answer.
    is_acknowledged: bool,
}

/// Switches path control on, so that commands with other paths need an approval.
pub(crate) fn control_paths(server: &Server) {
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
}

/// Causes and answers approvals until the server is gone. Sends a message for each confirmed
/// answer.
pub(crate) fn answer_until_server_is_gone(
    client: &Client,
    server_number: usize,
    acknowledged: &Sender<()>,
) -> Vec<AnsweredApproval> {
    let mut answered = Vec::new();
    loop {
        let path = format!("/srv/rw-recovery-{server_number}-{}", answered.len());
        let Some(id) = ask(client, &path) else { return answered };
        let reply =
            client.send("POST", &format!("/api/approvals/{id}"), Some(&json!({ "approved": true, "remember": true })));
        if let Some(reply) = &reply {
            assert_eq!(reply.status, 200, "{path}: {}", reply.body);
            // Only the first run of a server waits for it.
            let _ = acknowledged.send(());
        }
        answered.push(AnsweredApproval { id, path, is_acknowledged: reply.is_some() });
        if reply.is_none() {
            return answered;
        }
    }
}

/// Runs a command that names this path and returns the id of its approval; `None` if the server is
/// gone.
fn ask(client: &Client, path: &str) -> Option<String> {
    let body = json!({ "session_id": "s", "command": format!("ls {path}"), "wait": false });
    let begun = client.send("POST", "/api/sandbox/execute", Some(&body))?;
    assert_eq!((begun.status, &begun.body["status"]), (202, &json!("AWAITING_APPROVAL")), "{path}: {}", begun.body);
    let pending = client.send("GET", "/api/approvals?status=pending&limit=1000", None)?.body;
    let mut pending = pending["approvals"].as_array().into_iter().flatten();
    let question = pending.find(|question| question["exec_id"] == begun.body["exec_id"]);
    Some(question.unwrap_or_else(|| panic!("no pending approval for {path}"))["id"].as_str().unwrap().to_owned())
}

/// After a restart: every confirmed answer is stored, each answer with its path, and no approval is
/// pending.
pub(crate) fn check(server: &Server, answered: &[AnsweredApproval]) -> usize {
    let listed = server.ask("GET", "/api/sandbox", None).expect(200);
    assert_eq!(listed["enabled"], true);
    let listed: Vec<&Value> = listed["paths"].as_array().unwrap().iter().map(|entry| &entry["path"]).collect();
    let mut remembered = 0;
    for AnsweredApproval { id, path, is_acknowledged } in answered {
        let status = server.ask("GET", &format!("/api/approvals/{id}"), None).expect(200)["status"].clone();
        let is_remembered = status == "remembered";
        assert_eq!(
            is_remembered,
            listed.contains(&&json!(path)),
            "{path}: only one of answer and path is stored; the answer is {status}"
        );
        assert!(is_remembered || !is_acknowledged, "{path} was acknowledged and is {status}");
        remembered += usize::from(is_remembered);
    }
    assert_eq!(listed.len(), remembered, "paths without an answer: {listed:?}");
    for path in &listed {
        let path = path.as_str().unwrap();
        server.ask("DELETE", &format!("/api/sandbox/paths?path={path}"), None).expect(200);
    }
    let pending = server.ask("GET", "/api/approvals?status=pending", None).expect(200);
    assert_eq!(pending["approvals"], json!([]), "approvals pending after the restart");
    remembered
}
