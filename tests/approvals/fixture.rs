//! A server with path control on, two host directories that no entry allows, and calls to its API.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Answer, Server};
use crate::socket::Socket;

pub const FILE_CONTENT: &str = "content of the blocked file";

pub struct Fixture {
    pub server: Arc<Server>,
    /// Outside of `/tmp`, because each box has its own `/tmp`.
    host: TempDir,
}

/// A command that waits for an approval.
pub struct BlockedCommand {
    /// As the WebSocket sent it.
    pub question: Value,
    server: Arc<Server>,
    run: Option<JoinHandle<Value>>,
}

impl BlockedCommand {
    pub fn exec_id(&self) -> &str {
        self.question["exec_id"].as_str().unwrap()
    }

    pub fn is_finished(&self) -> bool {
        self.run.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the response of `POST /api/sandbox/execute`.
    pub fn response(mut self) -> Value {
        self.run.take().unwrap().join().unwrap()
    }
}

impl Drop for BlockedCommand {
    /// Cancels a command that the test left waiting. Its thread would keep the server running.
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.server.ask("DELETE", &format!("/sandbox/execs/{}", self.exec_id()), None);
            let _ = run.join();
        }
    }
}

impl Fixture {
    pub fn start() -> Self {
        Self::start_with_env(&[])
    }

    pub fn start_with_env(env: &[(&str, &str)]) -> Self {
        let data = TempDir::with_prefix("rw-approvals-").unwrap();
        Self::with_server(Server::start_under(data, &[], env))
    }

    pub fn with_server(server: Server) -> Self {
        let host = TempDir::with_prefix_in("rw-approvals-", host_root()).unwrap();
        let fixture = Self { server: Arc::new(server), host };
        make_readable(fixture.host.path());
        for name in ["blocked", "sibling"] {
            std::fs::create_dir(fixture.path(name)).unwrap();
            std::fs::write(fixture.path(name).join("file"), FILE_CONTENT).unwrap();
            make_readable(&fixture.path(name));
        }
        fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
        fixture
    }

    /// The server and the host directory, for a test that ends the server.
    pub fn into_parts(self) -> (Arc<Server>, TempDir) {
        (self.server, self.host)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.host.path().join(name)
    }

    /// The directory that `remember` stores for [`Fixture::blocked_command`].
    pub fn blocked_directory(&self) -> String {
        self.path("blocked").to_str().unwrap().to_owned()
    }

    /// A command line that needs an approval.
    pub fn blocked_command(&self) -> String {
        format!("cat {}/file", self.blocked_directory())
    }

    /// Starts [`Fixture::blocked_command`] in a session and waits for its question.
    pub fn run_blocked_command(&self, session: &str) -> BlockedCommand {
        self.run_until_question(session, &self.blocked_command())
    }

    pub fn run_until_question(&self, session: &str, command: &str) -> BlockedCommand {
        self.run_and_follow(&mut self.open_socket(session), session, command)
    }

    /// The same for a test that reads further messages of the session's socket.
    pub fn run_and_follow(&self, socket: &mut Socket, session: &str, command: &str) -> BlockedCommand {
        let run = self.spawn_command(session, command);
        BlockedCommand { question: socket.next(), server: Arc::clone(&self.server), run: Some(run) }
    }

    /// Runs a command on another thread and returns the response body.
    pub fn spawn_command(&self, session: &str, command: &str) -> JoinHandle<Value> {
        self.spawn_command_as(&self.server.token, session, command)
    }

    pub fn spawn_command_as(&self, token: &str, session: &str, command: &str) -> JoinHandle<Value> {
        let (server, token) = (Arc::clone(&self.server), token.to_owned());
        let body = json!({ "session_id": session, "command": command });
        let run = move || server.ask_as(&token, "POST", "/api/sandbox/execute", Some(&body)).expect(200);
        std::thread::spawn(run)
    }

    /// Submits a command with `wait: false` and returns its exec id.
    pub fn submit_command(&self, session: &str, command: &str) -> String {
        self.submit_command_as(&self.server.token, session, command)
    }

    pub fn submit_command_as(&self, token: &str, session: &str, command: &str) -> String {
        let body = json!({ "session_id": session, "command": command, "wait": false });
        let submitted = self.server.ask_as(token, "POST", "/api/sandbox/execute", Some(&body)).expect(202);
        submitted["exec_id"].as_str().unwrap().to_owned()
    }

    /// The questions of a session, as the owner sees them.
    pub fn open_socket(&self, session: &str) -> Socket {
        Socket::open(&self.server, &format!("/ws/sessions/{session}"), &self.server.token)
    }

    pub fn answer(&self, question: &Value, answer: &Value) -> Answer {
        self.answer_as(&self.server.token, question, answer)
    }

    pub fn answer_as(&self, token: &str, question: &Value, answer: &Value) -> Answer {
        self.answer_by_id_as(token, question["requestId"].as_str().unwrap(), answer)
    }

    pub fn answer_by_id(&self, id: &str, answer: &Value) -> Answer {
        self.answer_by_id_as(&self.server.token, id, answer)
    }

    pub fn answer_by_id_as(&self, token: &str, id: &str, answer: &Value) -> Answer {
        self.server.ask_as(token, "POST", &format!("/api/approvals/{id}"), Some(answer))
    }

    pub fn approval(&self, question: &Value) -> Value {
        self.approval_by_id(question["requestId"].as_str().unwrap())
    }

    pub fn approval_by_id(&self, id: &str) -> Value {
        self.server.ask("GET", &format!("/api/approvals/{id}"), None).expect(200)
    }

    pub fn allow_path(&self, path: &Path) {
        self.server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": path }))).expect(200);
    }

    pub fn allowed_paths(&self) -> Vec<PathBuf> {
        let sandbox = self.server.ask("GET", "/api/sandbox", None).expect(200);
        sandbox["paths"].as_array().unwrap().iter().map(|entry| entry["path"].as_str().unwrap().into()).collect()
    }

    /// The exec after its end. Its event stream closes when it has ended.
    pub fn wait_for_exec(&self, exec_id: &str) -> Value {
        self.server.ask("GET", &format!("/sandbox/execs/{exec_id}/events"), None);
        self.server.exec(exec_id)
    }
}

pub fn allow_once() -> Value {
    json!({ "approved": true })
}

pub fn allow_and_remember() -> Value {
    json!({ "approved": true, "remember": true })
}

pub fn deny(reason: &str) -> Value {
    json!({ "approved": false, "reason": reason })
}

/// A directory that this test may write and that no box mounts.
fn host_root() -> PathBuf {
    if rustix::process::geteuid().is_root() { "/srv".into() } else { std::env::home_dir().unwrap() }
}

fn make_readable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
