//! A server, somebody who runs code on it, and somebody who answers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::server::{Answer, Server};
use tests::support::wait::wait_for;

/// Deserves a person's word, and leaves a trace where it runs.
pub const RISKY: &str = "import os\nos.system('echo ran')";

/// For what is brought in pieces.
const TIMEOUT: Duration = Duration::from_secs(60);

pub struct Site {
    pub server: Arc<Server>,
}

impl Site {
    pub fn start() -> Self {
        Self::start_under(&[])
    }

    pub fn start_under(environment: &[(&str, &str)]) -> Self {
        let data = TempDir::with_prefix("rw-code-").unwrap();
        Self { server: Arc::new(Server::start_under(data, &[], environment)) }
    }

    pub fn user(&self, name: &str) -> String {
        self.server.make_token(&["--role", "user", "--user", name])
    }

    pub fn agent(&self, user: &str, agent: &str) -> String {
        self.server.make_token(&["--role", "agent", "--user", user, "--agent", agent])
    }

    /// Python in the session `s`, to its end.
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

    /// The same, waited for on another thread.
    pub fn begin(&self, body: Value) -> JoinHandle<Value> {
        let server = self.server.clone();
        std::thread::spawn(move || server.ask("POST", "/api/run", Some(&body)).expect(200))
    }

    /// Code that asks: its run, and the question.
    pub fn asked(&self, body: Value) -> (JoinHandle<Value>, Value) {
        let before: Vec<Value> = self.pending().iter().map(|one| one["id"].clone()).collect();
        let run = self.begin(body);
        (run, self.next_question(&before))
    }

    /// The first question that is not one of these.
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

    pub fn rule(&self, token: &str, id: &str, body: &Value) -> Answer {
        self.server.ask_as(token, "PUT", &format!("/api/sessions/{id}"), Some(body))
    }

    /// A request with bytes.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Answer {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
        let request = agent
            .put(format!("http://{}{path}", self.server.address))
            .header("authorization", format!("Bearer {}", self.server.token));
        let (parts, body) = request.send(bytes).unwrap().into_parts();
        let bytes = body.into_with_config().limit(1 << 20).read_to_vec().unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub fn set(&self, settings: &Value) {
        self.server.ask("PUT", "/settings", Some(settings)).expect(200);
    }
}

/// The code of an error of our own routes.
pub fn code_of(answer: Answer, status: u16) -> String {
    answer.expect(status)["error"]["code"].as_str().unwrap().to_owned()
}

/// What was brought to a callback, and was taken there.
pub struct Delivery {
    /// Lower case.
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
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "it ends in its headers: {:?}", delivery.headers);
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
