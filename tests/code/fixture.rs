//! A server, and calls to run code, to answer approvals and to change sessions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::server::{Answer, Server};
use tests::support::wait::wait_for;

/// Code of critical risk, which needs an approval. It prints `ran`.
pub const RISKY: &str = "import os\nos.system('echo ran')";

/// For one read of a webhook delivery.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Fixture {
    pub server: Arc<Server>,
}

impl Fixture {
    pub fn start() -> Self {
        Self::start_with_env(&[])
    }

    pub fn start_with_env(env: &[(&str, &str)]) -> Self {
        let data = TempDir::with_prefix("rw-code-").unwrap();
        Self { server: Arc::new(Server::start_under(data, &[], env)) }
    }

    pub fn user_token(&self, name: &str) -> String {
        self.server.make_token(&["--role", "user", "--user", name])
    }

    pub fn agent_token(&self, user: &str, agent: &str) -> String {
        self.server.make_token(&["--role", "agent", "--user", user, "--agent", agent])
    }

    /// Runs Python in the session `s` and returns the response.
    pub fn python(&self, code: &str) -> Value {
        self.run(&json!({ "session_id": "s", "code": code, "language": "python" })).expect(200)
    }

    pub fn shell(&self, code: &str) -> Value {
        self.run(&json!({ "session_id": "s", "code": code, "language": "shell" })).expect(200)
    }

    pub fn run(&self, body: &Value) -> Answer {
        self.run_as(&self.server.token, body)
    }

    pub fn run_as(&self, token: &str, body: &Value) -> Answer {
        self.server.ask_as(token, "POST", "/api/run", Some(body))
    }

    /// Runs code on another thread.
    pub fn spawn_run(&self, body: Value) -> JoinHandle<Value> {
        let server = self.server.clone();
        std::thread::spawn(move || server.ask("POST", "/api/run", Some(&body)).expect(200))
    }

    /// Runs code that needs an approval. Returns the run and the approval.
    pub fn run_until_question(&self, body: Value) -> (JoinHandle<Value>, Value) {
        let before: Vec<Value> = self.pending().iter().map(|one| one["id"].clone()).collect();
        let run = self.spawn_run(body);
        (run, self.next_question(&before))
    }

    /// Waits for an open approval whose id is not in `before`.
    pub fn next_question(&self, before: &[Value]) -> Value {
        wait_for("a question", || self.pending().into_iter().find(|one| !before.contains(&one["id"])))
    }

    pub fn pending(&self) -> Vec<Value> {
        self.approvals("?status=pending")
    }

    pub fn approvals(&self, filter: &str) -> Vec<Value> {
        let listed = self.server.ask("GET", &format!("/api/approvals{filter}"), None).expect(200);
        listed["approvals"].as_array().unwrap().clone()
    }

    pub fn answer(&self, question: &Value, body: &Value) -> Answer {
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        self.server.ask("POST", &path, Some(body))
    }

    pub fn session(&self, id: &str) -> Answer {
        self.server.ask("GET", &format!("/api/sessions/{id}"), None)
    }

    pub fn change_session_as(&self, token: &str, id: &str, body: &Value) -> Answer {
        self.server.ask_as(token, "PUT", &format!("/api/sessions/{id}"), Some(body))
    }

    /// A PUT request with a body of bytes.
    pub fn put_bytes(&self, path: &str, bytes: &[u8]) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let request = agent
            .put(format!("http://{}{path}", self.server.address))
            .header("authorization", format!("Bearer {}", self.server.token));
        let (parts, body) = request.send(bytes).unwrap().into_parts();
        let bytes = body.into_with_config().limit(1 << 20).read_to_vec().unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub fn change_settings(&self, settings: &Value) {
        self.server.ask("PUT", "/settings", Some(settings)).expect(200);
    }
}

/// Asserts the status and returns the code of the error.
pub fn code_of(answer: Answer, status: u16) -> String {
    answer.expect(status)["error"]["code"].as_str().unwrap().to_owned()
}

/// A webhook delivery, answered with 204.
pub struct Delivery {
    /// Header lines in lower case.
    headers: Vec<String>,
    pub bytes: Vec<u8>,
}

impl Delivery {
    pub fn next(listener: &TcpListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let (connection, _) = wait_for("a delivery", || listener.accept().ok());
        connection.set_nonblocking(false).unwrap();
        connection.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut reader = BufReader::new(connection);
        let mut delivery = Self { headers: Vec::new(), bytes: Vec::new() };
        loop {
            let mut line = String::new();
            assert_ne!(
                reader.read_line(&mut line).unwrap(),
                0,
                "the delivery ended within its headers: {:?}",
                delivery.headers
            );
            match line.trim() {
                "" => break,
                line => delivery.headers.push(line.to_ascii_lowercase()),
            }
        }
        delivery.bytes = vec![0; delivery.header("content-length").parse().unwrap()];
        reader.read_exact(&mut delivery.bytes).unwrap();
        write!(reader.into_inner(), "HTTP/1.1 204 x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        delivery
    }

    pub fn header(&self, name: &str) -> String {
        let found = self.headers.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("no {name}: {:?}", self.headers)).to_owned()
    }
}
