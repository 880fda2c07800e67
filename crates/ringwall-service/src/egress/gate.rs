//! Decides for each host whether this exec's box may reach it, and keeps a bounded list of its
//! connections.
//!
//! Processes in a session box may outlive the exec: allowed hosts stay allowed, no person is asked
//! in the exec's name any more, and later connections are passed to `late`.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::{Connection, Fate, Gate, Ruling};
use ringwall_policy::NetHost;
use ringwall_record::ExecNetwork;
use serde_json::json;

use super::ask::{Asking, Questions};
use super::late::Late;
use super::rule::NetRule;
use super::session::OnDuty;
use super::view::ConnectionView;

#[derive(Debug)]
pub(crate) struct ExecGate {
    pub(super) exec: Asking,
    rule: NetRule,
    questions: Questions,
    noted: Mutex<Noted>,
    /// For a session box: receives connections that end after the exec.
    late: Option<Arc<Late>>,
}

#[derive(Debug, Default)]
struct Noted {
    notes: Notes,
    refused: Option<String>,
    is_over: bool,
}

/// Connections and their results.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    kept: Vec<ConnectionView>,
    left_out: u64,
}

impl Notes {
    pub(crate) fn add(&mut self, connection: Connection) {
        if self.kept.len() < ExecNetwork::MAX_CONNECTIONS {
            self.kept.push(connection.into());
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn to_record(&self) -> ExecNetwork {
        ExecNetwork { connections: json!(self.kept), left_out: self.left_out }
    }
}

impl ExecGate {
    pub(crate) fn new(exec: Asking, rule: NetRule, questions: Questions, late: Option<Arc<Late>>) -> Self {
        Self { exec, rule, questions, noted: Mutex::default(), late }
    }

    /// Ends the exec's list and returns it for the record.
    pub(crate) fn close(&self) -> ExecNetwork {
        let mut noted = self.lock();
        noted.is_over = true;
        noted.notes.to_record()
    }

    /// The first host that was refused.
    pub(crate) fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock()
    }
}

impl Gate for ExecGate {
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling> {
        Box::pin(async move {
            match self.rule.judge(&host, port) {
                Some(known) => known,
                None if self.is_over() => {
                    Ruling::Refused("the command in whose name it could be asked about is over".to_owned())
                }
                None => self.questions.ask(&self.exec, host, port).await,
            }
        })
    }

    fn note(&self, connection: Connection) {
        let mut noted = self.lock();
        match (noted.is_over, &self.late) {
            (true, Some(late)) => {
                drop(noted);
                late.add(&self.exec, connection);
            }
            (true, None) => {
                tracing::error!(exec_id = %self.exec.exec_id, ?connection, "a connection of a box that is gone");
            }
            (false, _) => {
                if connection.fate == Fate::Refused && noted.refused.is_none() {
                    noted.refused = Some(format!("{}:{}", connection.host, connection.port));
                }
                noted.notes.add(connection);
            }
        }
    }
}

impl OnDuty for ExecGate {
    fn is_over(&self) -> bool {
        self.lock().is_over
    }
}
