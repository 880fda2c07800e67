//! A server on a free port and a client for it. Dropping it kills the server and removes the data directory.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed assumption is a failed test")]

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

use super::actor::Identity;
use super::boxed::binary;
use super::scratch::give;

/// The user who starts the server, and the binary.
#[derive(Debug, Clone)]
pub struct Starter {
    pub identity: Identity,
    pub binary: PathBuf,
}

impl Starter {
    /// The tester, with the binary under test.
    fn tester() -> Self {
        Self { identity: Identity::Tester, binary: binary().unwrap() }
    }

    /// A command of the binary with a data directory and only `PATH` in the environment.
    pub fn command(&self, data: &Path) -> Command {
        let mut command = self.identity.command(&self.binary);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).arg("--data").arg(data);
        command
    }
}

const LOG_SHOWN: usize = 20;

/// A server that is ready.
#[derive(Debug)]
pub struct Server {
    process: Child,
    starter: Starter,
    pub address: String,
    /// The printed link that logs the owner in once.
    pub link: String,
    data: Option<TempDir>,
    pub token: String,
    backend: Option<&'static str>,
}

/// A response with its complete body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// Asserts the status and returns the body.
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.bytes));
        self.json()
    }

    /// Asserts the status and returns the error code of a contract route.
    pub fn refused(self, status: u16) -> String {
        let body = self.expect(status);
        assert!(body["detail"]["message"].is_string(), "{body}");
        body["detail"]["code"].as_str().unwrap().to_owned()
    }
}

impl Server {
    pub fn start() -> Self {
        Self::start_in(TempDir::with_prefix("rw-serve-").unwrap(), &[])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        Self::start_in(TempDir::with_prefix("rw-serve-").unwrap(), flags)
    }

    pub fn start_in(data: TempDir, flags: &[&str]) -> Self {
        Self::start_under(data, flags, &[])
    }

    /// Starts a server with these variables in its environment.
    pub fn start_under(data: TempDir, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::launch(Starter::tester(), data, flags, environment)
    }

    /// Starts a server as another user, who becomes the owner of the data directory.
    pub fn start_as(starter: &Starter, data: TempDir, flags: &[&str]) -> Self {
        Self::start_as_under(starter, data, flags, &[])
    }

    /// As `start_as`, with these variables in its environment.
    pub fn start_as_under(starter: &Starter, data: TempDir, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        give(data.path(), starter.identity).unwrap();
        Self::launch(starter.clone(), data, flags, environment)
    }

    fn launch(starter: Starter, data: TempDir, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = starter
            .command(data.path())
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(flags)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(data.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let (mut first, mut second) = (String::new(), String::new());
        // The server prints them when it is ready. An empty line means that it has ended.
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut first).unwrap();
        said.read_line(&mut second).unwrap();
        let Some((_, address)) = first.trim().split_once("http://") else {
            let _ = process.wait();
            panic!("the server did not start: {}", fs::read_to_string(data.path().join("log")).unwrap());
        };
        let token = fs::read_to_string(data.path().join("owner.token")).unwrap_or_default().trim().to_owned();
        let link = second.trim().rsplit_once(' ').map_or("", |(_, link)| link).to_owned();
        Self { address: address.to_owned(), link, process, starter, token, data: Some(data), backend: None }
    }

    /// Execs name this backend from now on; `None` leaves the choice to the server.
    #[must_use]
    pub fn on(mut self, backend: Option<&'static str>) -> Self {
        self.backend = backend;
        self
    }

    /// The server's PID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn data(&self) -> &Path {
        self.data.as_ref().unwrap().path()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.data().join("log")).unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits until the server has ended.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    pub fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// Waits until the server has ended and returns its data directory.
    pub fn leave(mut self) -> TempDir {
        let _ = self.process.wait();
        self.data.take().unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request as the owner.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_with(method, path, &[("authorization", &format!("Bearer {}", self.token))], body)
    }

    pub fn ask_as(&self, token: &str, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_with(method, path, &[("authorization", &format!("Bearer {token}"))], body)
    }

    /// Sends a request with these headers only.
    pub fn ask_with(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Answer {
        let response = self.send(method, path, headers, body);
        let (parts, body) = response.into_parts();
        let bytes = body.into_with_config().limit(64 << 20).read_to_vec().unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, bytes }
    }

    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Response<Body> {
        let agent: Agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .allow_non_standard_methods(true)
            .timeout_global(Some(Duration::from_secs(120)))
            .build()
            .into();
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        match body {
            Some(body) => {
                agent.run(request.header("content-type", "application/json").body(body.to_string()).unwrap()).unwrap()
            }
            None => agent.run(request.body(()).unwrap()).unwrap(),
        }
    }

    /// Runs a shell script as an exec of the owner and waits for its end.
    pub fn shell(&self, script: &str) -> Value {
        self.run(&self.request(script))
    }

    /// The body of a request for a shell script on this server's backend.
    pub fn request(&self, script: &str) -> Value {
        let mut body = shell(script);
        if let Some(backend) = self.backend {
            body["backend"] = backend.into();
        }
        body
    }

    /// Runs an exec of the owner and waits for its end.
    pub fn run(&self, body: &Value) -> Value {
        self.ask("POST", "/sandbox/execs", Some(body)).expect(200)
    }

    /// The view of an exec.
    pub fn exec(&self, id: &str) -> Value {
        self.ask("GET", &format!("/sandbox/execs/{id}"), None).expect(200)
    }

    /// An exec's standard output.
    pub fn stdout(&self, exec: &Value) -> String {
        let path = format!("/sandbox/execs/{}/stdout", exec["exec_id"].as_str().unwrap());
        self.ask("GET", &path, None).expect(200)["content"].as_str().unwrap().to_owned()
    }

    /// Starts a shell script as an exec of the owner and returns its id.
    pub fn begin(&self, script: &str) -> String {
        let authorization = format!("Bearer {}", self.token);
        let headers = [("authorization", authorization.as_str()), ("prefer", "respond-async")];
        let answer = self.ask_with("POST", "/sandbox/execs", &headers, Some(&self.request(script))).expect(202);
        answer["exec_id"].as_str().unwrap().to_owned()
    }

    /// Waits until an exec has written something to its standard output.
    pub fn wait_for_output(&self, id: &str) {
        let authorization = format!("Bearer {}", self.token);
        let path = format!("/sandbox/execs/{id}/events");
        let response = self.send("GET", &path, &[("authorization", &authorization)], None);
        let mut lines = BufReader::new(response.into_body().into_reader()).lines();
        assert!(lines.any(|line| line.unwrap() == "event: stdout"), "{id} ended without output");
    }

    /// The binary with this server's data directory, run as the server's user.
    pub fn command(&self) -> Command {
        self.starter.command(self.data())
    }

    /// The output of `ringwall approvals show`.
    pub fn show_approval(&self, id: &str) -> String {
        let url = format!("http://{}", self.address);
        let output = self.command().args(["approvals", "show", id, "--url", &url]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes a token with `ringwall token create`.
    pub fn make_token(&self, words: &[&str]) -> String {
        let output = self.command().args(["token", "create"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Printed on failure, because the server's directory is removed.
        if std::thread::panicking()
            && let Some(log) = self.data.as_ref().and_then(|data| fs::read_to_string(data.path().join("log")).ok())
        {
            let mut last: Vec<&str> = log.lines().rev().take(LOG_SHOWN).collect();
            last.reverse();
            let _ = writeln!(io::stderr(), "the log of the server ends with:\n{}", last.join("\n"));
        }
    }
}

/// As [`Starter::command`], for the tester.
pub fn command(data: &Path) -> Command {
    Starter::tester().command(data)
}

/// The body of a request for a shell script.
pub fn shell(script: &str) -> Value {
    json!({ "project_id": "p", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] } })
}
