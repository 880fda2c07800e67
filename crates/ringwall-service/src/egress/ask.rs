//! Asks a person about a host while the connection waits.
//!
//! Each host is asked about once per exec or browser action, and the answer holds until that ends.
//! A client that disconnects withdraws the question, unless another connection waits for the same
//! host.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ringwall_executor::egress::Ruling;
use ringwall_policy::{NetEntry, NetHost};
use ringwall_record::{AgentId, ApprovalKind, Author, Digest, ExecId, RiskLevel, UserId};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::approvals::{Decision, Question};
use crate::error::causes;
use crate::service::{Inner, Service};

/// Maximum number of open and refused questions, so that a box cannot flood a person with invented
/// names.
const MAX_COUNT: usize = 20;

/// The exec or action that asks, as shown to the person.
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

/// One answer for all connections that wait for it.
type SharedAnswer = Arc<OnceCell<Ruling>>;

pub(crate) struct Questions {
    /// Weak, because the gate of a session box may outlive the server.
    service: Weak<Inner>,
    /// One answer per host and port, shared by all connections.
    answers: Mutex<HashMap<(NetHost, u16), SharedAnswer>>,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Questions {
    pub(crate) fn new(service: &Service) -> Self {
        Self { service: Arc::downgrade(&service.inner), answers: Mutex::default() }
    }

    pub(crate) async fn ask(&self, asking: &Asking, host: NetHost, port: u16) -> Ruling {
        let answer = {
            let mut answers = self.lock();
            let is_allowed = |answer: &SharedAnswer| matches!(answer.get(), Some(Ruling::Allowed(_)));
            let count = answers.values().filter(|answer| !is_allowed(answer)).count();
            match answers.entry((host.clone(), port)) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(_) if count >= MAX_COUNT => {
                    return Ruling::Refused(format!("{MAX_COUNT} other hosts were asked about already"));
                }
                Entry::Vacant(new) => new.insert(Arc::default()).clone(),
            }
        };
        answer.get_or_init(|| self.ask_person(asking, host, port)).await.clone()
    }

    /// Another exec asks from now on: allowed hosts stay allowed, the others are asked about again.
    pub(crate) fn begin_anew(&self) {
        self.lock().retain(|_, answer| matches!(answer.get(), Some(Ruling::Allowed(_))));
    }

    async fn ask_person(&self, asking: &Asking, host: NetHost, port: u16) -> Ruling {
        let Some(service) = self.service.upgrade().map(|inner| Service { inner }) else {
            return Ruling::Refused("the server stops".to_owned());
        };
        match service.remembered_hosts(&asking.user_id).await {
            Ok(remembered) => {
                if let Some(entry) = remembered.find(&host, port) {
                    return Ruling::Allowed(format!("{entry}, allowed before by a person"));
                }
            }
            Err(error) => {
                tracing::warn!(error = %causes(&error), "could not read which hosts are allowed");
                return Ruling::Refused("the list of allowed hosts could not be read".to_owned());
            }
        }
        let entry = NetEntry::exact(host, port).to_string();
        let mut waiting = match service.ask(asking.question(&entry)).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(exec_id = %asking.exec_id, error = %causes(&error), "nobody could be asked");
                return Ruling::Refused("nobody could be asked".to_owned());
            }
        };
        tracing::info!(exec_id = %asking.exec_id, approval = %waiting.id(), "a connection waits for a person");
        match waiting.decision().await {
            Decision::Approved { by, .. } => Ruling::Allowed(format!("{entry}, allowed by {by}")),
            Decision::Denied { .. } => Ruling::Refused("a person has denied it".to_owned()),
            Decision::Expired => Ruling::Refused("nobody answered in time whether it may be reached".to_owned()),
            Decision::Cancelled | Decision::Void => Ruling::Refused("nobody answered".to_owned()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(NetHost, u16), SharedAnswer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    fn question(&self, entry: &str) -> Question {
        let action = json!({ "exec_id": self.exec_id, "host": entry, "policy": self.policy_version });
        Question {
            kind: ApprovalKind::Network,
            exec_id: self.exec_id.clone(),
            user_id: self.user_id.clone(),
            agent_id: self.agent_id.clone(),
            session_id: self.session_id.clone(),
            command: self.command.clone(),
            code: None,
            requested_paths: vec![entry.to_owned()],
            blocked_paths: vec![entry.to_owned()],
            risk_level: RiskLevel::High,
            patterns: Vec::new(),
            files: Default::default(),
            digest: Digest::of(action.to_string().as_bytes()),
            asked_by: self.author.clone(),
            // The box runs under the policy that it was started with, which asks.
            still_stands: Arc::new(|| Box::pin(std::future::ready(true))),
        }
    }
}
