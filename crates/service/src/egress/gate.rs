//! Says of each host whether this exec's box may reach it, and keeps what became of its connections, up to a number.
//!
//! In a box that stays, what an exec left behind may go on when the exec is over: what is allowed stays so, nobody is asked
//! any more in its name, and what became of a connection is handed to the keeper of the box.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use executor::egress::{Connection, Fate, Gate, Ruling};
use futures::future::BoxFuture;
use policy::{NetHost, NetList, Unknown, special_use};
use record::{AgentId, Author, ExecId, ExecNetwork, UserId};
use serde_json::json;
use tokio::sync::OnceCell;

use super::late::Late;
use super::view::ConnectionView;
use crate::service::{Inner, Service};

pub(crate) struct ExecGate {
    /// Not held: a box that stays has a gate for longer than there may be a server.
    service: Weak<Inner>,
    pub(super) exec: Asking,
    allow: NetList,
    unknown: Unknown,
    /// Hosts that may lead to any address.
    lifted: NetList,
    /// One answer for each host, also where many connections wait for it.
    pub(super) answers: Mutex<HashMap<(NetHost, u16), SharedAnswer>>,
    noted: Mutex<Noted>,
    /// Where a box stays: who takes what comes when the exec is over.
    late: Option<Arc<Late>>,
}

/// Given once, to everybody who waits for it.
type SharedAnswer = Arc<OnceCell<Ruling>>;

/// Whose box it is, and what a person is shown of it.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) author: Author,
    pub(crate) policy_version: String,
}

#[derive(Debug, Default)]
struct Noted {
    notes: Notes,
    refused: Option<String>,
    is_over: bool,
}

/// What became of connections.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    kept: Vec<ConnectionView>,
    left_out: u64,
}

impl Notes {
    pub(crate) fn add(&mut self, connection: Connection) {
        if self.kept.len() < ExecNetwork::KEPT {
            self.kept.push(connection.into());
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn to_record(&self) -> ExecNetwork {
        ExecNetwork { connections: json!(self.kept), left_out: self.left_out }
    }
}

impl std::fmt::Debug for ExecGate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExecGate").field("exec", &self.exec).finish_non_exhaustive()
    }
}

impl ExecGate {
    pub(crate) fn new(
        service: &Service,
        exec: Asking,
        (allow, unknown): (NetList, Unknown),
        lifted: NetList,
        late: Option<Arc<Late>>,
    ) -> Self {
        let (answers, noted) = Default::default();
        Self { service: Arc::downgrade(&service.inner), exec, allow, unknown, lifted, answers, noted, late }
    }

    pub(super) fn service(&self) -> Option<Service> {
        self.service.upgrade().map(|inner| Service { inner })
    }

    /// The exec is over: what is kept of its connections up to now.
    pub(super) fn close(&self) -> ExecNetwork {
        let mut noted = self.lock();
        noted.is_over = true;
        noted.notes.to_record()
    }

    /// The first host that was refused.
    pub(super) fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate for ExecGate {
    fn judge(&self, host: NetHost, port: u16) -> BoxFuture<'_, Ruling> {
        Box::pin(async move {
            if let Some(entry) = self.allow.find(&host, port) {
                return Ruling::Allowed(entry.to_string());
            }
            match (self.unknown, &host) {
                // Nobody is bothered with what would be refused all the same.
                (Unknown::Ask, NetHost::Address(address))
                    if special_use(*address).is_some() && self.lifted.find(&host, port).is_none() =>
                {
                    Ruling::Refused("it is no address of the public internet".to_owned())
                }
                (Unknown::Ask, _) if self.lock().is_over => {
                    Ruling::Refused("the command in whose name it could be asked about is over".to_owned())
                }
                (Unknown::Ask, _) => self.ask(host, port).await,
                (Unknown::Deny, _) => {
                    Ruling::Refused("it is not among the hosts that this box may reach (net.allow)".to_owned())
                }
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
