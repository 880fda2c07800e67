//! A server that controls paths, a file of the host that a command can ask for, and ways to ask.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Answer, Server};
use crate::socket::Socket;

pub const TEXT: &str = "what the file says";

pub struct Site {
    pub server: Arc<Server>,
    /// Not below `/tmp`, which every box has for itself.
    place: TempDir,
}

impl Site {
    pub fn start() -> Self {
        Self::start_under(&[])
    }

    pub fn start_under(environment: &[(&str, &str)]) -> Self {
        let data = TempDir::with_prefix("rw-approvals-").unwrap();
        Self::of(Server::start_under(data, &[], environment))
    }

    pub fn of(server: Server) -> Self {
        let place = TempDir::with_prefix_in("rw-approvals-", outside()).unwrap();
        let site = Self { server: Arc::new(server), place };
        for name in ["asked", "other"] {
            std::fs::create_dir(site.path(name)).unwrap();
            std::fs::write(site.path(name).join("file"), TEXT).unwrap();
            open_to_all(&site.path(name));
        }
        open_to_all(site.place.path());
        site.control("PUT", "", &json!({ "enabled": true })).expect(200);
        site
    }

    /// The server and what lies beside it, each to be ended by itself.
    pub fn part(self) -> (Arc<Server>, TempDir) {
        (self.server, self.place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// The directory that "remember" would store.
    pub fn directory(&self) -> String {
        self.path("asked").to_str().unwrap().to_owned()
    }

    pub fn command(&self) -> String {
        format!("cat {}/file", self.directory())
    }

    pub fn control(&self, method: &str, rest: &str, body: &Value) -> Answer {
        self.server.ask(method, &format!("/api/sandbox{rest}"), Some(body))
    }

    /// A command of a session, begun and not waited for; gives the exec's id.
    pub fn begin(&self, token: &str, session: &str, command: &str) -> String {
        let body = json!({ "session_id": session, "command": command, "wait": false });
        let begun = self.server.ask_as(token, "POST", "/api/sandbox/execute", Some(&body)).expect(202);
        begun["exec_id"].as_str().unwrap().to_owned()
    }

    /// The same, waited for on another thread.
    pub fn run(&self, token: &str, session: &str, command: &str) -> JoinHandle<Value> {
        let (server, token) = (self.server.clone(), token.to_owned());
        let body = json!({ "session_id": session, "command": command });
        let run = move || server.ask_as(&token, "POST", "/api/sandbox/execute", Some(&body)).expect(200);
        std::thread::spawn(run)
    }

    /// The owner's command, and the question that comes of it.
    pub fn asked(&self, session: &str) -> (JoinHandle<Value>, Value) {
        let mut socket = self.follow(session);
        let run = self.run(&self.server.token, session, &self.command());
        (run, socket.next())
    }

    /// A socket of the owner's for a session.
    pub fn follow(&self, session: &str) -> Socket {
        Socket::open(&self.server, &format!("/ws/sessions/{session}"), &self.server.token)
    }

    pub fn answer(&self, token: &str, id: &Value, body: &Value) -> Answer {
        let path = format!("/api/approvals/{}", id.as_str().unwrap());
        self.server.ask_as(token, "POST", &path, Some(body))
    }

    pub fn approval(&self, id: &Value) -> Value {
        self.server.ask("GET", &format!("/api/approvals/{}", id.as_str().unwrap()), None).expect(200)
    }

    /// The exec as it ended.
    pub fn ended(&self, exec: &Value) -> Value {
        let path = format!("/sandbox/execs/{}/events", exec.as_str().unwrap());
        let authorization = format!("Bearer {}", self.server.token);
        // The stream of its events ends with it.
        self.server.ask_with("GET", &path, &[("authorization", &authorization)], None);
        self.server.exec(exec.as_str().unwrap())
    }
}

pub fn allow() -> Value {
    json!({ "approved": true })
}

pub fn remember() -> Value {
    json!({ "approved": true, "remember": true })
}

pub fn deny(reason: &str) -> Value {
    json!({ "approved": false, "remember": false, "reason": reason })
}

/// Where this tester may make directories that no box has by itself.
fn outside() -> PathBuf {
    if rustix::process::geteuid().is_root() { "/srv".into() } else { std::env::home_dir().unwrap() }
}

fn open_to_all(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
