//! Says of each host whether this exec's box may reach it, and keeps what became of its connections, up to a number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use executor::egress::{Connection, Fate, Gate, Ruling};
use futures::future::BoxFuture;
use policy::{NetHost, NetList, Unknown, special_use};
use record::{AgentId, ExecId, ExecNetwork, UserId};
use serde_json::json;
use tokio::sync::OnceCell;

use super::view::ConnectionView;
use crate::service::Service;

/// Connections of one exec that are kept one by one.
const KEPT: usize = 500;

pub(crate) struct ExecGate {
    pub(super) service: Service,
    pub(super) exec: Asking,
    allow: NetList,
    unknown: Unknown,
    /// Hosts that may lead to any address.
    lifted: NetList,
    /// One answer for each host, also where many connections wait for it.
    pub(super) answers: Mutex<HashMap<(NetHost, u16), SharedAnswer>>,
    noted: Mutex<Notes>,
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
    pub(crate) caller: String,
    pub(crate) policy_version: String,
}

#[derive(Debug, Default)]
struct Notes {
    kept: Vec<ConnectionView>,
    left_out: u64,
    refused: Option<String>,
}

impl std::fmt::Debug for ExecGate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ExecGate").field("exec", &self.exec).finish_non_exhaustive()
    }
}

impl ExecGate {
    pub(crate) fn new(service: Service, exec: Asking, allow: NetList, unknown: Unknown, lifted: NetList) -> Self {
        let (answers, noted) = Default::default();
        Self { service, exec, allow, unknown, lifted, answers, noted }
    }

    /// What is kept of the connections, when there are no more.
    pub(super) fn network(&self) -> ExecNetwork {
        let notes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        ExecNetwork { connections: json!(notes.kept), left_out: notes.left_out }
    }

    /// The first host that was refused.
    pub(super) fn refused(&self) -> Option<String> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
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
                (Unknown::Ask, _) => self.ask(host, port).await,
                (Unknown::Deny, _) => {
                    Ruling::Refused("it is not among the hosts that this box may reach (net.allow)".to_owned())
                }
            }
        })
    }

    fn note(&self, connection: Connection) {
        let mut notes = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if connection.fate == Fate::Refused && notes.refused.is_none() {
            notes.refused = Some(format!("{}:{}", connection.host, connection.port));
        }
        if notes.kept.len() < KEPT {
            notes.kept.push(connection.into());
        } else {
            notes.left_out += 1;
        }
    }
}
