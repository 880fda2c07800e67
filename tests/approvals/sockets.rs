//! The messages of the sockets, and who may open one.

use serde_json::{Value, json};

use crate::site::{Site, TEXT, deny};
use crate::socket::Socket;

fn response(id: &Value, approved: bool) -> Value {
    json!({ "type": "permission_response", "requestId": id, "approved": approved, "remember": false })
}

#[test]
fn a_request_says_all_and_everybody_is_told_what_became_of_it() {
    let site = Site::start();
    let server = &site.server;
    let mut session = site.follow("s.1");
    let mut chat = Socket::open(server, "/ws/chat/s.1", &server.token);
    let mut all = Socket::open(server, "/ws/approvals", &server.token);
    let mut elsewhere = site.follow("other");
    let run = site.run(&server.token, "s.1", &site.command());
    let asked = session.next();
    assert_eq!(asked["type"], "permission_request");
    assert_eq!(asked["requestId"], asked["request_id"]);
    assert_eq!((&asked["session_id"], &asked["kind"]), (&json!("s.1"), &json!("path")));
    assert_eq!(asked["command"], json!(site.command()));
    assert_eq!(asked["requestedPath"], json!(site.directory()));
    assert_eq!(asked["blocked_paths"], json!([format!("{}/file", site.directory())]));
    assert!(asked["exec_id"].is_string() && asked["risk_level"].is_string(), "{asked}");
    let approval = site.approval(&asked["requestId"]);
    assert_eq!(approval["expires_at"], asked["expires_at"]);
    let lasts = approval["expires_at"].as_i64().unwrap() - approval["created_at"].as_i64().unwrap();
    assert_eq!(lasts, 120_000);
    assert_eq!((&chat.next(), &all.next()), (&asked, &asked));
    // Who comes late sees what is open.
    let mut late = site.follow("s.1");
    assert_eq!(late.next(), asked);
    elsewhere.assert_silent();
    // From another session it is not there.
    elsewhere.say(&response(&asked["requestId"], true));
    assert_eq!(elsewhere.next()["code"], "NOT_FOUND");
    chat.say(&response(&asked["requestId"], true));
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    for socket in [&mut session, &mut chat, &mut all, &mut late] {
        let resolved = socket.next();
        assert_eq!(resolved["type"], "permission_resolved");
        assert_eq!((&resolved["request_id"], &resolved["status"]), (&asked["requestId"], &json!("approved")));
        assert_eq!((&resolved["approved"], &resolved["remember"]), (&json!(true), &json!(false)));
    }
    session.say(&response(&asked["requestId"], false));
    assert_eq!(session.next()["code"], "CONFLICT", "replayed");
    let mut later = site.follow("s.1");
    later.assert_silent();
}

#[test]
fn a_bad_message_is_answered_and_the_socket_lives() {
    let site = Site::start();
    let mut socket = site.follow("s");
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
    let run = site.run(&site.server.token, "s", &site.command());
    let asked = socket.next();
    socket.say(
        &json!({ "type": "permission_response", "request_id": asked["request_id"], "approved": false, "reason": "r" }),
    );
    assert_eq!(socket.next()["reason"], "r");
    assert_eq!(run.join().unwrap()["error_reason"]["code"], "DENIED_BY_PERSON");
}

#[test]
fn only_those_who_may_open_a_socket_do() {
    let site = Site::start();
    let server = &site.server;
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
        // As a page it is nothing.
        assert_eq!(server.ask("GET", path, None).expect(426)["error"]["code"], "UPGRADE_REQUIRED");
    }
    for words in [&["--role", "user", "--user", "u"][..], &["--role", "agent", "--user", "u", "--agent", "a"]] {
        let token = format!("Bearer {}", server.make_token(words));
        assert_eq!(open("/ws/approvals", &[("authorization", &token)]), Err(403));
        assert_eq!(open("/ws/sessions/s", &[("authorization", &token)]), Ok(()));
        // An agent never answers, and follows its own sessions alone.
        let own = if words.contains(&"agent") { Err(403) } else { Ok(()) };
        assert_eq!(open("/ws/approvals/own", &[("authorization", &token)]), own);
    }
    let operator = format!("Bearer {}", server.make_token(&["--role", "operator"]));
    assert_eq!(open("/ws/approvals", &[("authorization", &operator)]), Ok(()));
}

#[test]
fn a_ticket_opens_one_socket_as_whoever_asked_for_it() {
    let site = Site::start();
    let server = &site.server;
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
    let run = site.run(&ann, "s", &site.command());
    let asked = socket.next();
    assert_eq!(asked["user"], "ann");
    socket.say(&response(&asked["requestId"], true));
    assert_eq!(run.join().unwrap()["stdout"], TEXT);
    // A ticket is worth no more than its token.
    let revoked = ticket(&ann);
    let tokens = server.ask("GET", "/api/tokens", None).expect(200);
    let id = tokens.as_array().unwrap().iter().find(|token| token["role"] == "user").unwrap()["id"].clone();
    assert_eq!(server.ask("DELETE", &format!("/api/tokens/{}", id.as_str().unwrap()), None).status, 204);
    assert_eq!(open("/ws/sessions/s", &revoked).map(drop), Err(401));
    assert!(!server.log().contains("rwt_"), "a ticket is in the log");
    // Neither is a socket that was open before.
    let (run, asked) = {
        let mut owners = site.follow("s");
        let run = site.run(&server.token, "s", &site.command());
        (run, owners.next())
    };
    socket.next();
    socket.say(&response(&asked["requestId"], true));
    assert_eq!(socket.next()["code"], "UNAUTHENTICATED");
    site.answer(&server.token, &asked["requestId"], &deny("")).expect(200);
    run.join().unwrap();
}

#[test]
fn a_session_that_cannot_be_one_has_no_socket() {
    let site = Site::start();
    let owner = format!("Bearer {}", site.server.token);
    for id in ["..", "a..b", "-a", ".a", "a%20b", "a%2Fb", "%C3%A4", &"a".repeat(129)] {
        for route in ["sessions", "chat"] {
            let opened = Socket::try_open(&site.server, &format!("/ws/{route}/{id}"), &[("authorization", &owner)]);
            assert_eq!(opened.map(drop), Err(400), "{route} {id}");
        }
    }
}

/// A browser's socket, and one by a ticket that the browser asked for; other logins of the same token go on.
#[test]
fn a_socket_ends_with_the_login_that_opened_it() {
    let site = Site::start();
    let server = &site.server;
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

/// Whoever does not answer a sign of life is gone, and makes room.
#[test]
fn silence_ends_a_socket() {
    let site = Site::start();
    let mut socket = site.follow("s");
    let alive = std::time::Instant::now();
    // Pings are read from the stream itself, so that nobody answers them.
    let stream = socket.0.get_mut();
    let mut rest = Vec::new();
    std::io::Read::read_to_end(stream, &mut rest).unwrap();
    assert!(rest.starts_with(&[0x89, 0]), "no ping came: {rest:?}");
    assert!(alive.elapsed().as_secs() < 60);
}
