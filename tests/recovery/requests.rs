//! Compares the answers that clients got with the state after a restart.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tests::support::server::Server;

use crate::load::{Client, MARKS, Mode, Reply};

/// One request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) mark: String,
    pub(crate) user: String,
    pub(crate) key: Option<String>,
    pub(crate) body: Value,
    /// The answer, if one arrived.
    pub(crate) answered: Option<Answered>,
    /// The server confirmed the cancellation.
    pub(crate) cancelled: bool,
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) exec_id: String,
    pub(crate) status: String,
}

impl Answered {
    pub(crate) fn read(reply: &Reply) -> Self {
        let text = |key: &str| reply.body[key].as_str().unwrap_or_else(|| panic!("{}", reply.body)).to_owned();
        Self { exec_id: text("exec_id"), status: text("status") }
    }

    fn is_final(&self) -> bool {
        !["QUEUED", "RUNNING"].contains(&self.status.as_str())
    }
}

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    entries: Vec<Entry>,
    /// The number of entries that were checked after their server's end.
    checked: usize,
    /// Number of acknowledged execs per status after the restart.
    outcomes: BTreeMap<String, u32>,
}

impl RequestLog {
    pub(crate) fn add(&mut self, entries: Vec<Entry>) {
        self.entries.extend(entries);
    }

    pub(crate) fn summary(&self) -> String {
        format!("{} requests, {:?}", self.entries.len(), self.outcomes)
    }

    /// After a restart: every acknowledged exec has ended; if the client got a final status, with
    /// that one.
    pub(crate) fn check_new(&mut self, server: &Server) {
        for status in ["RUNNING", "QUEUED"] {
            let left = server.ask("GET", &format!("/sandbox/execs?status={status}"), None).expect(200);
            assert_eq!(left.as_array().unwrap().len(), 0, "{status} right after the start: {left}");
        }
        let client = Client::new(server);
        for entry in &mut self.entries[self.checked..] {
            if let Some(answered) = &entry.answered {
                let view = server.exec(&answered.exec_id);
                let status = view["status"].as_str().unwrap();
                *self.outcomes.entry(status.to_owned()).or_default() += 1;
                let is_expected = match () {
                    () if answered.is_final() => status == answered.status,
                    () if entry.cancelled => status == "CANCELLED",
                    // The answer to a cancellation may have been lost with the connection.
                    () => ["SUCCEEDED", "LOST", "CANCELLED"].contains(&status),
                };
                assert!(is_expected, "{entry:?} became {view}");
            }
            entry.submit_again(&client);
        }
        self.checked = self.entries.len();
    }

    /// At the end, when nothing runs: every mark occurs at most once, and that of a succeeded exec
    /// once.
    pub(crate) fn check_marks(&self, server: &Server) {
        let users: BTreeSet<&str> = self.entries.iter().map(|entry| entry.user.as_str()).collect();
        let mut marks: BTreeMap<String, u32> = BTreeMap::new();
        for user in users {
            let path = server.data().join("workspaces").join(user).join("default/projects/p/work").join(MARKS);
            for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
                *marks.entry(line.to_owned()).or_default() += 1;
            }
        }
        for entry in &self.entries {
            let count = marks.remove(&entry.mark).unwrap_or(0);
            assert!(count <= 1, "ran {count} times: {entry:?}");
            if let Some(answered) = &entry.answered
                && server.exec(&answered.exec_id)["status"] == "SUCCEEDED"
            {
                assert_eq!(count, 1, "succeeded, but left no mark: {entry:?}");
            }
        }
        assert!(marks.is_empty(), "marks without a request: {marks:?}");
    }
}

impl Entry {
    /// Repeats the request with its key twice. Both answers name the same exec, and the one that
    /// the client knew, if any.
    fn submit_again(&mut self, client: &Client) {
        let Some(key) = self.key.as_deref() else { return };
        for _ in 0..2 {
            let reply = client.submit(&self.body, Some(key), Mode::Async);
            let reply = reply.unwrap_or_else(|| panic!("no answer to {key} after a restart"));
            assert_eq!(reply.status, 202, "{key}: {}", reply.body);
            let again = Answered::read(&reply);
            match &self.answered {
                Some(before) => assert_eq!(again.exec_id, before.exec_id, "{key} became another exec"),
                None => self.answered = Some(again),
            }
        }
    }
}
