//! A real server, started for the measurement, and a client that costs next to nothing.
//!
//! The client writes one prepared request on a kept connection and reads the whole answer. More work in the client
//! would count as the server's.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::Error;
use crate::throughput::CONCURRENCY;

/// The backend on which an exec runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Native,
    Docker,
}

#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    address: String,
    token: String,
    data: Option<TempDir>,
}

/// Resources of one server process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holdings {
    pub(crate) resident_kb: u64,
    pub(crate) descriptors: usize,
}

impl Server {
    /// Ready, and with as many places as the measurement uses.
    pub(crate) fn start(ringwall: &Path, docker: Option<&Path>) -> Result<Self, Error> {
        // On a disk, as a server's data are: what is in /tmp may never have to reach one.
        let data = TempDir::with_prefix_in("ringwall-bench-server-", "/var/tmp").map_err(Error::Scratch)?;
        let mut command = Command::new(ringwall);
        command.arg("--data").arg(data.path()).args(["serve", "--listen", "127.0.0.1:0"]);
        if let Some(client) = docker {
            command.arg("--docker-cli-path").arg(client);
        }
        let log = std::fs::File::create(data.path().join("log")).map_err(Error::Scratch)?;
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn();
        let mut process = started.map_err(|source| Error::Start { program: "ringwall serve".to_owned(), source })?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(Error::Speaking)?;
        }
        let address = line.trim().split_once("http://").map(|(_, address)| address.to_owned());
        let token = std::fs::read_to_string(data.path().join("owner.token")).map_err(Error::Scratch)?;
        let address = address.ok_or(Error::ServerSilent(line))?;
        let server = Server { process, address, token: token.trim().to_owned(), data: Some(data) };
        let places = json!({ "sandbox": {
            "max_concurrent_execs": CONCURRENCY, "max_concurrent_execs_per_user": CONCURRENCY,
        } });
        server.connect()?.exchange(&server.request("PUT", "/settings", &places))?;
        Ok(server)
    }

    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        Connection::to(&self.address)
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The request of an agent for an exec that runs `true`, ready to be sent any number of times.
    pub(crate) fn exec(&self, agent: usize, backend: Backend) -> Vec<u8> {
        self.request("POST", "/sandbox/execs", &exec(agent, backend, "true"))
    }

    /// The request that has a line of Python run in a session.
    pub(crate) fn python(&self, session: usize, code: &str) -> Vec<u8> {
        let body = json!({ "session_id": format!("session-{session}"), "language": "python", "code": code });
        self.request("POST", "/api/run", &body)
    }

    /// Starts an exec and does not wait for it.
    pub(crate) fn begin(&self, script: &str) -> Result<(), Error> {
        let request = self.request("POST", "/sandbox/execs", &exec(0, Backend::Native, script));
        let request = String::from_utf8_lossy(&request).replacen("\r\n", "\r\nPrefer: respond-async\r\n", 1);
        self.connect()?.exchange(request.as_bytes()).map(drop)
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &Value) -> Vec<u8> {
        self.request_of(method, path, "application/json", body.to_string().as_bytes())
    }

    pub(crate) fn request_of(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len();
        let fields = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
        [self.head(method, path, &fields).as_bytes(), body].concat()
    }

    pub(crate) fn request_without_body(&self, method: &str, path: &str) -> Vec<u8> {
        self.head(method, path, "").into_bytes()
    }

    fn head(&self, method: &str, path: &str, fields: &str) -> String {
        let Server { address, token, .. } = self;
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{fields}\r\n")
    }

    /// The directory of an agent's files.
    pub(crate) fn workspace(&self, agent: &str) -> PathBuf {
        self.data.as_ref().map_or(Path::new("/"), TempDir::path).join("workspaces/default").join(agent)
    }

    pub(crate) fn holdings(&self) -> Result<Holdings, Error> {
        let process = self.id();
        let failed = |what| Error::Process { process, what };
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).map_err(|_| failed("the status"))?;
        let resident =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).map_err(|_| failed("the descriptors"))?;
        Ok(Holdings { resident_kb: resident.ok_or(failed("the memory"))?, descriptors: descriptors.count() })
    }
}

fn exec(agent: usize, backend: Backend, script: &str) -> Value {
    json!({
        "agent_id": format!("agent-{agent}"),
        "project_id": "bench",
        "backend": match backend { Backend::Native => "native", Backend::Docker => "docker" },
        "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] },
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.process.wait();
        LEFT.lock().extend(self.data.take());
    }
}

/// Data of ended servers, removed at the end: ext4 creates files slowly for minutes after many were
/// removed.
static LEFT: Mutex<Vec<TempDir>> = Mutex::new(Vec::new());

pub(crate) fn remove_what_is_left() {
    LEFT.lock().clear();
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn to(address: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(address).map_err(Error::Speaking)?;
        stream.set_nodelay(true).map_err(Error::Speaking)?;
        let reader = BufReader::new(stream.try_clone().map_err(Error::Speaking)?);
        Ok(Connection { stream, reader })
    }

    /// How long an exec took, from its request to the end of its answer, which must say that it succeeded.
    pub(crate) fn run(&mut self, exec: &[u8]) -> Result<Duration, Error> {
        let began = Instant::now();
        let answer = self.exchange(exec)?;
        let total = began.elapsed();
        if answer["status"] == "SUCCEEDED" || answer["success"] == true {
            Ok(total)
        } else {
            Err(Error::ExecEnded(answer.to_string()))
        }
    }

    pub(crate) fn exchange(&mut self, request: &[u8]) -> Result<Value, Error> {
        serde_json::from_slice(&self.fetch(request)?).map_err(|error| Error::Speaking(error.into()))
    }

    /// The body of the answer.
    pub(crate) fn fetch(&mut self, request: &[u8]) -> Result<Vec<u8>, Error> {
        self.stream.write_all(request).map_err(Error::Speaking)?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).map_err(Error::Speaking)? == 0 {
                return Err(Error::Speaking(std::io::ErrorKind::UnexpectedEof.into()));
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body).map_err(Error::Speaking)?;
        Ok(body)
    }
}
