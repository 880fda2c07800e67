//! Putting a host before a person while the connection waits for it.
//!
//! Each host is asked about once in an exec, and its answer stands until the exec is over. A client that stops waiting takes
//! the question back, unless another one waits for the same.

use std::sync::{Arc, PoisonError};

use executor::egress::Ruling;
use policy::{NetEntry, NetHost};
use record::{ApprovalKind, Digest, RiskLevel};
use serde_json::json;

use super::gate::ExecGate;
use crate::approvals::{Decision, Question};
use crate::error::causes;

/// Hosts that one exec may ask about, so that a box which makes up names does not fill a person's screen.
const MOST: usize = 20;

impl ExecGate {
    pub(super) async fn ask(&self, host: NetHost, port: u16) -> Ruling {
        let entry = NetEntry::exact(host.clone(), port).to_string();
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            let count = answers.len();
            match answers.entry((host.clone(), port)) {
                std::collections::hash_map::Entry::Occupied(known) => known.get().clone(),
                std::collections::hash_map::Entry::Vacant(_) if count >= MOST => {
                    return Ruling::Refused(format!("{MOST} other hosts were asked about already"));
                }
                std::collections::hash_map::Entry::Vacant(new) => new.insert(Arc::default()).clone(),
            }
        };
        answer.get_or_init(|| self.ask_person(host, port, entry)).await.clone()
    }

    async fn ask_person(&self, host: NetHost, port: u16, entry: String) -> Ruling {
        let Some(service) = self.service() else { return Ruling::Refused("the server stops".to_owned()) };
        match service.remembered_hosts(&self.exec.user_id).await {
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
        let mut waiting = match service.ask(self.question(&entry)).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(exec_id = %self.exec.exec_id, error = %causes(&error), "nobody could be asked");
                return Ruling::Refused("nobody could be asked".to_owned());
            }
        };
        tracing::info!(exec_id = %self.exec.exec_id, approval = %waiting.id(), "a connection waits for a person");
        match waiting.decision().await {
            Decision::Approved { by, .. } => Ruling::Allowed(format!("{entry}, allowed by {by}")),
            Decision::Denied { .. } => Ruling::Refused("a person has denied it".to_owned()),
            Decision::Expired => Ruling::Refused("nobody answered in time whether it may be reached".to_owned()),
            Decision::Cancelled | Decision::Void => Ruling::Refused("nobody answered".to_owned()),
        }
    }

    fn question(&self, entry: &str) -> Question {
        let exec = &self.exec;
        let action = json!({ "exec_id": exec.exec_id, "host": entry, "policy": exec.policy_version });
        Question {
            kind: ApprovalKind::Network,
            exec_id: exec.exec_id.clone(),
            user_id: exec.user_id.clone(),
            agent_id: exec.agent_id.clone(),
            session_id: exec.session_id.clone(),
            command: exec.command.clone(),
            code: None,
            requested_paths: vec![entry.to_owned()],
            blocked_paths: vec![entry.to_owned()],
            risk_level: RiskLevel::High,
            patterns: Vec::new(),
            digest: Digest::of(action.to_string().as_bytes()),
            asked_by: exec.author.clone(),
            // The box runs under the policy that it was started with, and that asks.
            still_stands: Arc::new(|| Box::pin(std::future::ready(true))),
        }
    }
}
