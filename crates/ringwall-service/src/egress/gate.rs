//! Decides for each host whether this exec's box may reach it, and keeps a bounded list of its
//! connections.
//!
//! Processes in a session box may outlive the exec: allowed hosts stay allowed, no person is asked
//! for the ended exec, and later connections are passed to [`Late`].

use std::os::fd::OwnedFd;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::{Connection, Fate, Gate, Proxy, Ruling};
use ringwall_policy::NetHost;
use ringwall_record::ExecNetwork;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::rule::{NetRule, Questions, Requester};
use super::session::{BoxGate, Late};
use crate::time::{milliseconds, timestamp};

#[derive(Debug)]
pub(crate) struct ExecGate {
    pub(super) exec: Requester,
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
    pub(crate) fn new(exec: Requester, rule: NetRule, questions: Questions, late: Option<Arc<Late>>) -> Self {
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
                    Ruling::Refused("nobody is asked about it, because the command that would ask has ended".to_owned())
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
                tracing::error!(exec_id = %self.exec.exec_id, ?connection, "a connection was reported after its box had ended");
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

impl BoxGate for ExecGate {
    fn is_over(&self) -> bool {
        self.lock().is_over
    }
}

/// The proxy of a box that serves one exec.
#[derive(Debug)]
pub(crate) struct Egress {
    pub(crate) gate: Arc<ExecGate>,
    pub(crate) proxy: Proxy,
    pub(crate) listener: OwnedFd,
}

impl Egress {
    /// Serves until the box has ended and returns the gate with its connections.
    pub(crate) async fn serve(self, over: impl Future<Output = ()>) -> Arc<ExecGate> {
        if let Err(error) = self.proxy.serve(self.listener, over).await {
            // Without the proxy the box has no network.
            tracing::warn!(exec_id = %self.gate.exec.exec_id, %error, "could not serve the egress proxy of a box");
        }
        self.gate
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = ExecNetwork)]
pub struct NetworkView {
    /// In the order in which they ended
    pub connections: Vec<ConnectionView>,
    /// Number of connections beyond those that are kept
    pub left_out: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = ExecConnection)]
pub struct ConnectionView {
    /// Time of the request in milliseconds since 1970
    pub at: i64,
    pub duration_ms: u64,
    pub host: String,
    pub port: u16,
    /// The address of the peer; null if there was no connection
    pub address: Option<String>,
    /// `allowed`, `refused`, or `failed` if the peer could not be reached
    pub outcome: String,
    /// The rule that allowed it, or why it was refused or failed
    pub reason: String,
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

impl From<Connection> for ConnectionView {
    fn from(connection: Connection) -> Self {
        Self {
            at: timestamp(connection.at).milliseconds(),
            duration_ms: milliseconds(connection.duration),
            host: connection.host,
            port: connection.port,
            address: connection.address.map(|address| address.to_string()),
            outcome: match connection.fate {
                Fate::Allowed => "allowed",
                Fate::Refused => "refused",
                Fate::Failed => "failed",
            }
            .to_owned(),
            reason: connection.reason,
            bytes_sent: connection.bytes_sent,
            bytes_received: connection.bytes_received,
        }
    }
}
