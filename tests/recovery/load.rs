//! Clients that submit execs of every kind until the server is gone.
//!
//! Each exec appends a mark of its own to a file of its project each time it runs.

use std::time::Duration;

use serde_json::{Value, json};
use tests::support::server::{Server, shell};
use ureq::Agent;

use crate::random::Random;
use crate::requests::{Answered, Entry};

pub(crate) const CLIENTS: u64 = 6;
const USERS: u64 = 3;
/// The file of marks, in the working directory of the project.
pub(crate) const MARKS: &str = "marks";

/// An HTTP client of one server.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    address: String,
    token: String,
}

/// A complete answer. An incomplete one counts as none.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).proxy(None);
        let agent = config.timeout_global(Some(Duration::from_secs(120))).build().into();
        Self { agent, address: server.address.clone(), token: server.token.clone() }
    }

    pub(crate) fn submit(&self, body: &Value, key: Option<&str>, mode: Mode) -> Option<Reply> {
        let mut request = self.agent.post(format!("http://{}/sandbox/execs", self.address));
        request = request.header("authorization", format!("Bearer {}", self.token));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if mode == Mode::Async {
            request = request.header("prefer", "respond-async");
        }
        read(request.send(body.to_string()))
    }

    /// `None` if no complete answer arrived.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Reply> {
        let request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let request = request.header("authorization", format!("Bearer {}", self.token));
        read(match body {
            Some(body) => self.agent.run(request.body(body.to_string()).unwrap()),
            None => self.agent.run(request.body(()).unwrap()),
        })
    }

    fn cancel(&self, id: &str) -> Option<Reply> {
        let request = self.agent.delete(format!("http://{}/sandbox/execs/{id}", self.address));
        read(request.header("authorization", format!("Bearer {}", self.token)).call())
    }
}

fn read(response: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Option<Reply> {
    let mut response = response.ok()?;
    let text = response.body_mut().read_to_string().ok()?;
    Some(Reply { status: response.status().as_u16(), body: serde_json::from_str(&text).ok()? })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Sync,
    Async,
}

/// Submits execs until the server is gone. Returns all requests, answered or not.
pub(crate) fn submit_until_server_is_gone(
    client: &Client,
    name: &str,
    mut random: Random,
    backend: Option<&str>,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    loop {
        let mark = format!("{name}-{}", entries.len());
        let user = format!("user{}", random.below(USERS));
        let key = (!random.one_in(2)).then(|| format!("key-{mark}"));
        let mode = if random.one_in(2) { Mode::Sync } else { Mode::Async };
        let mut body = shell(&script(&mark, &mut random));
        body["user_id"] = user.as_str().into();
        if random.one_in(4) {
            body["inputs"] = json!([{ "path": format!("of-{mark}"), "content": mark }]);
        }
        // With a container backend, half of the execs still run in native boxes.
        if let Some(backend) = backend.filter(|_| random.one_in(2)) {
            body["backend"] = backend.into();
        }
        let reply = client.submit(&body, key.as_deref(), mode);
        let is_gone = reply.is_none();
        let mut entry = Entry { mark, user, key, body, answered: None, cancelled: false };
        if let Some(reply) = reply {
            match reply.status {
                200 | 202 => entry.answered = Some(Answered::read(&reply)),
                // The exec was not admitted.
                429 => {}
                other => panic!("{}: {other} {}", entry.mark, reply.body),
            }
        }
        if let Some(answered) = entry.answered.as_ref().filter(|_| mode == Mode::Async && random.one_in(6)) {
            // An exec that has ended is not cancelled.
            entry.cancelled = client.cancel(&answered.exec_id).is_some_and(|reply| reply.status == 202);
        }
        entries.push(entry);
        if is_gone {
            return entries;
        }
    }
}

/// A short, longer or endless command, one with artifacts, or one with much output.
fn script(mark: &str, random: &mut Random) -> String {
    let rest = match random.below(20) {
        0..10 => String::new(),
        10..13 => format!("sleep 0.{}", random.below(4)),
        13 => "sleep 600 & sleep 600".to_owned(),
        14..18 => format!("for one in 1 2 3; do echo {mark} > ../artifacts/file$one; done"),
        _ => "head -c 200000 /dev/zero".to_owned(),
    };
    format!("echo {mark} >> {MARKS}; {rest}")
}
