//! Fixture: a server, a directory of the host, and a caller that runs commands in a session.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::{Identity, Mode, tester_is_root};
use tests::support::scratch::{Scratch, give};
use tests::support::server::{Answer, Server, Starter};
use tests::support::wait::wait_for;

/// The user who runs the server, and the binary.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) mode: Mode,
    pub(crate) binary: PathBuf,
}

impl TestServer {
    pub(crate) fn starter(&self) -> Starter {
        Starter { identity: self.mode.identity(), binary: self.binary.clone() }
    }
}

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) server: Server,
    /// A host directory of the server's user. No box sees it by default.
    pub(crate) host: Scratch,
}

impl Fixture {
    /// Path control is on and nothing is allowed.
    pub(crate) fn new(test_server: &TestServer) -> Self {
        Self::controlled(test_server, &[])
    }

    /// As `new`, with these variables in the server's environment.
    pub(crate) fn controlled(test_server: &TestServer, environment: &[(&str, &str)]) -> Self {
        let fixture = Self::off(test_server, scratch(test_server), &[], environment);
        // Limits the wait if a command asks unexpectedly.
        fixture.server.ask("PUT", "/settings", Some(&json!({ "approvals": { "timeout_s": 60 } }))).expect(200);
        fixture.switch(true);
        fixture
    }

    /// A server with the default settings: path control is off.
    pub(crate) fn uncontrolled(test_server: &TestServer) -> Self {
        Self::start_in(test_server, TempDir::with_prefix("rw-paths-").unwrap(), scratch(test_server))
    }

    pub(crate) fn start_in(test_server: &TestServer, data: TempDir, host: Scratch) -> Self {
        Self::start(test_server, data, host, &[], &[])
    }

    /// With a home directory of the server that contains these files, readable for all users.
    pub(crate) fn at_home(test_server: &TestServer, files: &[&str]) -> (Self, PathBuf) {
        let host = scratch(test_server);
        let home = host.directory("home").unwrap();
        for file in files {
            let mut place = "home".to_owned();
            let (directories, name) = file.rsplit_once('/').unwrap();
            for directory in directories.split('/') {
                place = format!("{place}/{directory}");
                if !host.join(&place).exists() {
                    host.directory(&place).unwrap();
                }
            }
            host.file(&format!("{place}/{name}"), b"of the home", 0o644).unwrap();
        }
        let data = TempDir::with_prefix("rw-paths-").unwrap();
        let fixture = Self::start(test_server, data, host, &[], &[("HOME", home.to_str().unwrap())]);
        (fixture, home)
    }

    /// A new server whose path control is off, with these flags and variables.
    pub(crate) fn off(test_server: &TestServer, host: Scratch, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::start(test_server, TempDir::with_prefix("rw-paths-").unwrap(), host, flags, environment)
    }

    fn start(
        test_server: &TestServer,
        data: TempDir,
        host: Scratch,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        Self { server: Server::start_as_under(&test_server.starter(), data, flags, environment), host }
    }

    pub(crate) fn switch(&self, enabled: bool) {
        let answer = self.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": enabled }))).expect(200);
        assert_eq!((&answer["enabled"], answer["message"].is_string()), (&json!(enabled), !enabled), "{answer}");
    }

    pub(crate) fn allow(&self, path: impl AsRef<Path>) -> Value {
        let body = json!({ "path": path.as_ref() });
        self.server.ask("POST", "/api/sandbox/paths", Some(&body)).expect(200)
    }

    /// The paths of the list.
    pub(crate) fn listed(&self) -> Vec<String> {
        let shown = self.server.ask("GET", "/api/sandbox", None).expect(200);
        let paths = shown["paths"].as_array().unwrap().iter();
        paths.map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        self.host.directory(name).unwrap()
    }

    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        self.host.file(name, content.as_bytes(), 0o644).unwrap()
    }

    /// Runs an allowed command to its end.
    pub(crate) fn run(&self, command: &str) -> Value {
        self.execute(&self.server.token, &json!({ "session_id": "s", "command": command })).expect(200)
    }

    /// The output of a command that must succeed.
    pub(crate) fn output(&self, command: &str) -> String {
        let told = self.run(command);
        assert_eq!(told["status"], "SUCCEEDED", "{command}: {told}");
        told["stdout"].as_str().unwrap().to_owned()
    }

    pub(crate) fn execute(&self, token: &str, body: &Value) -> Answer {
        self.server.ask_as(token, "POST", "/api/sandbox/execute", Some(body))
    }

    /// Starts a command that must ask. Returns the exec's id and the question.
    pub(crate) fn ask(&self, command: &str) -> (String, Value) {
        self.ask_as(&self.server.token, "s", command)
    }

    pub(crate) fn ask_as(&self, token: &str, session: &str, command: &str) -> (String, Value) {
        let body = json!({ "session_id": session, "command": command, "wait": false });
        let begun = self.execute(token, &body).expect(202);
        assert_eq!(begun["status"], "AWAITING_APPROVAL", "{command}: {begun}");
        let exec = begun["exec_id"].as_str().unwrap().to_owned();
        let pending = self.pending();
        let question = pending.iter().find(|approval| approval["exec_id"] == exec);
        (exec, question.unwrap_or_else(|| panic!("{command} is not among {pending:?}")).clone())
    }

    pub(crate) fn pending(&self) -> Vec<Value> {
        let listed = self.server.ask("GET", "/api/approvals?status=pending", None).expect(200);
        listed["approvals"].as_array().unwrap().clone()
    }

    /// Waits for a question of the exec other than `before`.
    pub(crate) fn next_question(&self, exec: &str, before: &Value) -> Value {
        wait_for(&format!("a question of {exec}"), || {
            self.pending().into_iter().find(|next| next["exec_id"] == exec && next["id"] != before["id"])
        })
    }

    /// Limits the server to one exec at a time and starts one that runs until it is cancelled.
    pub(crate) fn block(&self) -> String {
        self.server.ask("PUT", "/settings", Some(&json!({ "sandbox": { "max_concurrent_execs": 1 } }))).expect(200);
        let exec = self.server.begin("echo begun; sleep 600");
        self.server.wait_for_output(&exec);
        exec
    }

    pub(crate) fn cancel(&self, exec: &str) {
        self.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
    }

    pub(crate) fn answer(&self, token: &str, question: &Value, body: &Value) -> Answer {
        let path = format!("/api/approvals/{}", question["id"].as_str().unwrap());
        self.server.ask_as(token, "POST", &path, Some(body))
    }

    pub(crate) fn approve(&self, question: &Value, remember: bool) {
        let body = json!({ "approved": true, "remember": remember });
        self.answer(&self.server.token, question, &body).expect(200);
    }

    /// Waits until an exec has ended. Returns its view with its output.
    pub(crate) fn ended(&self, exec: &str) -> Value {
        let authorization = format!("Bearer {}", self.server.token);
        let path = format!("/sandbox/execs/{exec}/events");
        let response = self.server.send("GET", &path, &[("authorization", &authorization)], None);
        let mut events = String::new();
        response.into_body().into_reader().read_to_string(&mut events).unwrap();
        let mut view = self.server.exec(exec);
        if view["started_at"].is_number() {
            view["stdout"] = self.server.stdout(&view).into();
        }
        view
    }
}

/// A host directory outside of `/tmp`, because a box has its own `/tmp`.
pub(crate) fn scratch(test_server: &TestServer) -> Scratch {
    let parent = if tester_is_root() { "/srv" } else { env!("CARGO_TARGET_TMPDIR") };
    Scratch::inside(Path::new(parent), test_server.mode.identity()).unwrap()
}

/// Makes a directory writable for all users, and so for boxes.
pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Makes a symbolic link that belongs to the test's user.
pub(crate) fn link(target: impl AsRef<Path>, at: &Path) {
    std::os::unix::fs::symlink(target, at).unwrap();
    give(at, Identity::Tester).unwrap();
}

/// Percent-encodes a path for a route.
pub(crate) fn encode(path: &str) -> String {
    path.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
