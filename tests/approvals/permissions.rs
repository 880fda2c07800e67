//! Permissions: users see and answer approvals of their own agents, operators of all, agents answer
//! none.

use serde_json::{Value, json};

use crate::fixture::{FILE_CONTENT, Fixture, allow_and_remember, allow_once, deny};
use crate::socket::Socket;

#[test]
fn user_answers_for_own_agents_only_and_agent_never() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let token = |words: &[&str]| server.make_token(words);
    let ann = token(&["--role", "user", "--user", "ann"]);
    let bob = token(&["--role", "user", "--user", "bob"]);
    let agent = token(&["--role", "agent", "--user", "ann", "--agent", "default"]);
    let operator = token(&["--role", "operator"]);
    let mut socket = Socket::open(server, "/ws/sessions/s", &agent);
    // One socket for all sessions of the user's own agents.
    let mut own = Socket::open(server, "/ws/approvals/own", &ann);
    let mut bobs = Socket::open(server, "/ws/approvals/own", &bob);
    let run = fixture.spawn_command_as(&agent, "s", &fixture.blocked_command());
    let question = socket.next();
    let id = &question["requestId"];
    assert_eq!(own.next(), question);
    bobs.assert_silent();
    bobs.say(&json!({ "type": "permission_response", "requestId": id, "approved": true }));
    assert_eq!(bobs.next()["code"], "NOT_FOUND");
    assert_eq!((&question["user"], &question["agent"]), (&json!("ann"), &json!("default")));
    // The agent sees its approval and cannot answer it, neither over HTTP nor over the WebSocket.
    assert_eq!(fixture.answer_as(&agent, &question, &allow_once()).expect(403)["error"]["code"], "FORBIDDEN");
    socket.say(&json!({ "type": "permission_response", "requestId": id, "approved": true }));
    assert_eq!(socket.next()["code"], "FORBIDDEN");
    // For another user it does not exist.
    let list = |token: &str| server.ask_as(token, "GET", "/api/approvals?status=pending", None).expect(200);
    let ids =
        |page: &Value| page["approvals"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&list(&bob)), Vec::<Value>::new());
    for answer in [allow_once(), deny("")] {
        assert_eq!(fixture.answer_as(&bob, &question, &answer).status, 404);
    }
    let path = format!("/api/approvals/{}", id.as_str().unwrap());
    assert_eq!(server.ask_as(&bob, "GET", &path, None).status, 404);
    let mut foreign = Socket::open(server, "/ws/sessions/s", &bob);
    foreign.assert_silent();
    foreign.say(&json!({ "type": "permission_response", "requestId": id, "approved": true }));
    let told = foreign.next();
    assert_eq!((&told["type"], &told["code"]), (&json!("error"), &json!("NOT_FOUND")));
    let of_exec = |token: &str, exec: &str| {
        server.ask_as(token, "GET", &format!("/api/approvals?exec_id={exec}"), None).expect(200)
    };
    let exec = question["exec_id"].as_str().unwrap();
    for token in [&ann, &agent, &operator, &server.token] {
        assert_eq!(&ids(&list(token)), std::slice::from_ref(id));
        assert_eq!(&ids(&of_exec(token, exec)), std::slice::from_ref(id));
        assert_eq!(ids(&of_exec(token, "e_0123456789abcdef")), Vec::<Value>::new());
    }
    assert_eq!(ids(&of_exec(&bob, exec)), Vec::<Value>::new());
    assert_eq!(server.ask("GET", "/api/approvals?exec_id=no+id", None).status, 400);
    // The user can answer, and the remembered entry belongs to that user only.
    own.say(&json!({ "type": "permission_response", "requestId": id, "approved": true, "remember": true }));
    assert_eq!(own.next()["status"], "remembered");
    assert_eq!(run.join().unwrap()["stdout"], FILE_CONTENT);
    let entries = |token: &str| server.ask_as(token, "GET", "/api/sandbox", None).expect(200)["paths"].clone();
    assert_eq!(entries(&ann)[0]["scope"], "user:ann");
    assert_eq!(entries(&bob), json!([]));
    let audit = |token: &str| {
        let path = format!("/api/audit?request_id={}", id.as_str().unwrap());
        server.ask_as(token, "GET", &path, None).expect(200)["entries"].as_array().unwrap().clone()
    };
    assert_eq!(audit(&bob), Vec::<Value>::new());
    let entries = audit(&ann);
    let actions: Vec<&str> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["sandbox.path.added", "approval.remembered", "approval.opened"]);
    for entry in &entries {
        assert_eq!(&entry["request_id"], id);
    }
    let (answered, opened) = (&entries[1], &entries[2]);
    assert_eq!((&answered["exec_id"], &opened["exec_id"]), (&question["exec_id"], &question["exec_id"]));
    let from = &answered["details"]["from"];
    assert_eq!((&from["door"], &from["role"]), (&json!("websocket"), &json!("user")));
    assert!(from["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{from}");
    assert!(opened["details"]["command"].as_str().unwrap().contains("cat "));
    assert_eq!(server.ask("POST", "/api/audit/verify", None).expect(200)["intact"], true);
}

#[test]
fn user_cannot_remember_sensitive_path() {
    let fixture = Fixture::start();
    let ann = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    let mut socket = Socket::open(&fixture.server, "/ws/sessions/s", &ann);
    let run = fixture.spawn_command_as(&ann, "s", "ls /var/log");
    let question = socket.next();
    let refused = fixture.answer_as(&ann, &question, &allow_and_remember());
    assert_eq!(refused.expect(403)["error"]["code"], "FORBIDDEN");
    assert_eq!(fixture.approval(&question)["status"], "pending", "the approval stays open");
    fixture.answer(&question, &deny("no")).expect(200);
    run.join().unwrap();
}
