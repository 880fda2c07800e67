//! Approval sockets: their messages, and the permission to open one.

use serde_json::{Value, json};

use crate::fixture::{FILE_CONTENT, Fixture, deny};
use crate::socket::Socket;

fn response(id: &Value, approved: bool) -> Value {
    json!({ "type": "permission_response", "requestId": id, "approved": approved, "remember": false })
}

#[test]
fn request_and_resolution_are_sent_to_all_sockets_of_the_session() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let mut session = fixture.open_socket("s.1");
    let mut chat = Socket::open(server, "/ws/chat/s.1", &server.token);
    let mut all = Socket::open(server, "/ws/approvals", &server.token);
    let mut elsewhere = fixture.open_socket("other");
    let run = fixture.spawn_command("s.1", &fixture.blocked_command());
    let question = session.next();
    assert_eq!(question["type"], "permission_request");
    assert_eq!(question["requestId"], question["request_id"]);
    assert_eq!((&question["session_id"], &question["kind"]), (&json!("s.1"), &json!("path")));
    assert_eq!(question["command"], json!(fixture.blocked_command()));
    assert_eq!(question["requestedPath"], json!(fixture.blocked_directory()));
    assert_eq!(question["blocked_paths"], json!([format!("{}/file", fixture.blocked_directory())]));
    assert!(question["exec_id"].is_string() && question["risk_level"].is_string(), "{question}");
    let approval = fixture.approval(&question);
    assert_eq!(approval["expires_at"], question["expires_at"]);
    let lasts = approval["expires_at"].as_i64().unwrap() - approval["created_at"].as_i64().unwrap();
    assert_eq!(lasts, 120_000);
    assert_eq!((&chat.next(), &all.next()), (&question, &question));
    // A later client gets the open approvals.
    let mut late = fixture.open_socket("s.1");
    assert_eq!(late.next(), question);
    elsewhere.assert_silent();
    // In the socket of another session the approval does not exist.
    elsewhere.say(&response(&question["requestId"], true));
    assert_eq!(elsewhere.next()["code"], "NOT_FOUND");
    chat.say(&response(&question["requestId"], true));
    assert_eq!(run.join().unwrap()["stdout"], FILE_CONTENT);
    for socket in [&mut session, &mut chat, &mut all, &mut late] {
        let resolved = socket.next();
        assert_eq!(resolved["type"], "permission_resolved");
        assert_eq!((&resolved["request_id"], &resolved["status"]), (&question["requestId"], &json!("approved")));
        assert_eq!((&resolved["approved"], &resolved["remember"]), (&json!(true), &json!(false)));
    }
    session.say(&response(&question["requestId"], false));
    assert_eq!(session.next()["code"], "CONFLICT", "replayed");
    let mut later = fixture.open_socket("s.1");
    later.assert_silent();
}

#[test]
fn malformed_message_gets_an_error_and_keeps_the_socket() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    for bad in ["", "{", "null", "[]", r#"{"type":"x"}"#, r#"{"type":"permission_response","approved":true}"#] {
        socket.0.send(tungstenite::Message::text(bad)).unwrap();
        let told = socket.next();
        assert_eq!(told["type"], "error", "{bad}");
        assert!(told["message"].is_string(), "{told}");
    }
    socket.0.send(tungstenite::Message::binary(vec![0, 159, 146, 150])).unwrap();
    assert_eq!(socket.next()["type"], "error");
    socket.say(&response(&json!("a_0123456789abcdef"), true));
    let unknown = socket.next();
    assert_eq!((&unknown["code"], &unknown["requestId"]), (&json!("NOT_FOUND"), &json!("a_0123456789abcdef")));
    let run = fixture.spawn_command("s", &fixture.blocked_command());
    let question = socket.next();
    socket.say(
        &json!({ "type": "permission_response", "request_id": question["request_id"], "approved": false, "reason": "r" }),
    );
    assert_eq!(socket.next()["reason"], "r");
    assert_eq!(run.join().unwrap()["error_reason"]["code"], "DENIED_BY_PERSON");
}

#[test]
fn opening_a_socket_requires_token_role_host_and_origin() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let owner = format!("Bearer {}", server.token);
    let open = |path: &str, headers: &[(&str, &str)]| Socket::try_open(server, path, headers).map(drop);
    for path in ["/ws/sessions/s", "/ws/chat/s", "/ws/approvals", "/ws/approvals/own"] {
        assert_eq!(open(path, &[]), Err(401));
        assert_eq!(open(path, &[("authorization", "Bearer wrong")]), Err(401));
        for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
            assert_eq!(open(path, &[("authorization", &owner), ("origin", origin)]), Err(403), "{origin}");
        }
        assert_eq!(open(path, &[("authorization", &owner), ("host", "evil.example")]), Err(421));
        let own = format!("http://{}", server.address);
        assert_eq!(open(path, &[("authorization", &owner), ("origin", &own)]), Ok(()));
        // An ordinary request is no handshake.
        assert_eq!(server.ask("GET", path, None).expect(426)["error"]["code"], "UPGRADE_REQUIRED");
    }
    for words in [&["--role", "user", "--user", "u"][..], &["--role", "agent", "--user", "u", "--agent", "a"]] {
        let token = format!("Bearer {}", server.make_token(words));
        assert_eq!(open("/ws/approvals", &[("authorization", &token)]), Err(403));
        assert_eq!(open("/ws/sessions/s", &[("authorization", &token)]), Ok(()));
        // Only users and operators have this socket: an agent cannot answer.
        let own = if words.contains(&"agent") { Err(403) } else { Ok(()) };
        assert_eq!(open("/ws/approvals/own", &[("authorization", &token)]), own);
    }
    let operator = format!("Bearer {}", server.make_token(&["--role", "operator"]));
    assert_eq!(open("/ws/approvals", &[("authorization", &operator)]), Ok(()));
}

#[test]
fn ticket_opens_one_socket_with_the_rights_of_its_token() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let ann = server.make_token(&["--role", "user", "--user", "ann"]);
    let ticket = |token: &str| {
        let made = server.ask_as(token, "POST", "/api/tickets", None).expect(201);
        made["ticket"].as_str().unwrap().to_owned()
    };
    let open = |path: &str, ticket: &str| Socket::try_open(server, &format!("{path}?ticket={ticket}"), &[]);
    let own = ticket(&ann);
    assert_eq!(server.ask_with("GET", &format!("/api/approvals?ticket={own}"), &[], None).status, 401);
    let mut socket = open("/ws/sessions/s", &own).unwrap();
    assert_eq!(open("/ws/sessions/s", &own).map(drop), Err(401), "used");
    assert_eq!(open("/ws/sessions/s", "rwt_00").map(drop), Err(401));
    assert_eq!(open("/ws/approvals", &ticket(&ann)).map(drop), Err(403));
    assert_eq!(open("/ws/approvals/own", &ticket(&ann)).map(drop), Ok(()));
    let run = fixture.spawn_command_as(&ann, "s", &fixture.blocked_command());
    let question = socket.next();
    assert_eq!(question["user"], "ann");
    socket.say(&response(&question["requestId"], true));
    assert_eq!(run.join().unwrap()["stdout"], FILE_CONTENT);
    // A ticket of a revoked token is invalid.
    let revoked = ticket(&ann);
    let tokens = server.ask("GET", "/api/tokens", None).expect(200);
    let id = tokens.as_array().unwrap().iter().find(|token| token["role"] == "user").unwrap()["id"].clone();
    assert_eq!(server.ask("DELETE", &format!("/api/tokens/{}", id.as_str().unwrap()), None).status, 204);
    assert_eq!(open("/ws/sessions/s", &revoked).map(drop), Err(401));
    assert!(!server.log().contains("rwt_"), "a ticket is in the log");
    // A socket that was opened before cannot answer any more.
    let (run, question) = {
        let mut owners = fixture.open_socket("s");
        let run = fixture.spawn_command("s", &fixture.blocked_command());
        (run, owners.next())
    };
    socket.next();
    socket.say(&response(&question["requestId"], true));
    assert_eq!(socket.next()["code"], "UNAUTHENTICATED");
    fixture.answer(&question, &deny("")).expect(200);
    run.join().unwrap();
}

#[test]
fn socket_of_malformed_session_id_is_rejected() {
    let fixture = Fixture::start();
    let owner = format!("Bearer {}", fixture.server.token);
    for id in ["..", "a..b", "-a", ".a", "a%20b", "a%2Fb", "%C3%A4", &"a".repeat(129)] {
        for route in ["sessions", "chat"] {
            let opened = Socket::try_open(&fixture.server, &format!("/ws/{route}/{id}"), &[("authorization", &owner)]);
            assert_eq!(opened.map(drop), Err(400), "{route} {id}");
        }
    }
}

/// Also a socket opened with a ticket of that login. Other logins of the same token keep their
/// sockets.
#[test]
fn logout_closes_sockets_of_the_login() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let origin = format!("http://{}", server.address);
    let log_in = || {
        let answer = server.ask_with("POST", "/api/login", &[], Some(&json!({ "token": server.token })));
        answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
    };
    let (leaving, staying) = (log_in(), log_in());
    let open =
        |cookie: &str| Socket::try_open(server, "/ws/approvals", &[("cookie", cookie), ("origin", &origin)]).unwrap();
    let ticket = || {
        let headers = [("cookie", leaving.as_str()), ("origin", origin.as_str())];
        let made = server.ask_with("POST", "/api/tickets", &headers, None).expect(201);
        format!("/ws/approvals?ticket={}", made["ticket"].as_str().unwrap())
    };
    let (mut left, mut stays) = (open(&leaving), open(&staying));
    let mut by_ticket = Socket::try_open(server, &ticket(), &[]).unwrap();
    let unused = ticket();
    for socket in [&mut left, &mut stays, &mut by_ticket] {
        socket.assert_silent();
    }
    let over = server.ask_with("POST", "/api/logout", &[("cookie", &leaving), ("origin", &origin)], None);
    assert_eq!(over.status, 204);
    assert_eq!((left.read(), by_ticket.read()), (None, None));
    assert_eq!(Socket::try_open(server, &unused, &[]).map(drop), Err(401));
    stays.assert_silent();
}

#[test]
fn socket_that_does_not_answer_ping_is_closed() {
    let fixture = Fixture::start();
    let mut socket = fixture.open_socket("s");
    let alive = std::time::Instant::now();
    // Reads from the TCP stream itself, so that no pong is sent.
    let stream = socket.0.get_mut();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(stream, &mut rest).unwrap();
    assert!(rest.starts_with(&[0x89, 0]), "no ping came: {rest:?}");
    assert!(alive.elapsed().as_secs() < 60);
}
