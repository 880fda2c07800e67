//! Hosts that were approved and remembered: adding, listing and removing them.
//!
//! An entry applies to boxes of the user whose box asked, also if an operator answered, and only
//! where `net.unknown` is `ask`.

use std::sync::Arc;

use ringwall_executor::egress::Ruling;
use ringwall_ids::UserId;
use ringwall_policy::{NetEntry, NetHost, NetList};
use ringwall_record::{ApprovalKind, Digest, Holder, NetHostEntry, Remembering, RiskLevel, Scope, Timestamp};
use serde::Serialize;
use serde_json::json;

use super::question::{Decision, Question};
use crate::auth::principal::Principal;
use crate::egress::{Questions, Requester};
use crate::error::{Error, causes};
use crate::service::Service;
use crate::time::now;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AllowedHost {
    pub id: i64,
    #[schema(value_type = String)]
    pub user: UserId,
    /// A host and a port
    pub entry: String,
    pub created_at: Timestamp,
    pub created_by: String,
}

impl From<NetHostEntry> for AllowedHost {
    fn from(entry: NetHostEntry) -> Self {
        let NetHostEntry { id, user_id, entry, created_at, created_by } = entry;
        Self { id, user: user_id, entry, created_at, created_by }
    }
}

impl Service {
    /// The entries that the caller may see, oldest first.
    pub async fn allowed_hosts(&self, by: &Principal) -> Result<Vec<AllowedHost>, Error> {
        let found = self.inner.store.allowed_hosts(&by.scope()).await?;
        Ok(found.into_iter().map(AllowedHost::from).collect())
    }

    /// Removes an entry. Running execs keep what they were allowed.
    pub async fn forget_host(&self, by: &Principal, id: i64) -> Result<AllowedHost, Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden {
                why: "an agent cannot remove an allowed host; its user or an operator can".to_owned(),
            });
        }
        let missing = || Error::NotFound { what: format!("allowed host {id}") };
        if !self.allowed_hosts(by).await?.iter().any(|host| host.id == id) {
            return Err(missing());
        }
        let forgotten = self.inner.store.forget_host(id, now(), by.caller()).await?;
        forgotten.map(AllowedHost::from).ok_or_else(missing)
    }

    /// The change that adds the entries of a question to the list of the user whose box asked.
    pub(crate) fn remembering_hosts(user: &UserId, entries: &[String]) -> Result<Remembering, Error> {
        // Each entry is one host and one port.
        entries.iter().try_for_each(|entry| NetEntry::read(entry).map(drop))?;
        Ok(Remembering::Hosts { user: user.clone(), entries: entries.to_vec() })
    }

    async fn remembered_hosts(&self, user: &UserId) -> Result<NetList, Error> {
        let found = self.inner.store.allowed_hosts(&Scope::User(user.clone())).await?;
        // Ignore entries that this version could not have written.
        let good = found.iter().map(|found| found.entry.as_str()).filter(|entry| NetEntry::read(entry).is_ok());
        // The newest entries, up to the maximum of a list.
        let newest = good.rev().take(NetList::MAX_LEN);
        Ok(NetList::read(newest)?)
    }

    /// The callback by which the proxy asks about unlisted hosts. It holds a weak reference, so it
    /// does not keep the service alive.
    pub(crate) fn host_questions(&self) -> Questions {
        let inner = Arc::downgrade(&self.inner);
        Questions::new(Box::new(move |requester, host, port| {
            let service = inner.upgrade().map(|inner| Service { inner });
            Box::pin(async move {
                match service {
                    Some(service) => service.ask_about_host(&requester, host, port).await,
                    None => Ruling::Refused("the server is stopping".to_owned()),
                }
            })
        }))
    }

    async fn ask_about_host(&self, requester: &Requester, host: NetHost, port: u16) -> Ruling {
        match self.remembered_hosts(&requester.user_id).await {
            Ok(remembered) => {
                if let Some(entry) = remembered.find(&host, port) {
                    return Ruling::Allowed(format!("{entry}, remembered from an earlier approval"));
                }
            }
            Err(error) => {
                tracing::warn!(error = %causes(&error), "could not read the list of allowed hosts");
                return Ruling::Refused("the list of allowed hosts could not be read".to_owned());
            }
        }
        let entry = NetEntry::exact(host, port).to_string();
        let mut waiting = match self.ask(question(requester, &entry)).await {
            Ok(waiting) => waiting,
            Err(error) => {
                tracing::warn!(exec_id = %requester.exec_id, error = %causes(&error), "could not ask about a host");
                return Ruling::Refused("no question about it could be opened; see the server log".to_owned());
            }
        };
        tracing::info!(exec_id = %requester.exec_id, approval = %waiting.id(), "a connection waits for approval");
        match waiting.decision().await {
            Decision::Approved { by, .. } => Ruling::Allowed(format!("{entry}, allowed by {by}")),
            Decision::Denied { .. } => Ruling::Refused("a person has denied it".to_owned()),
            Decision::Expired => Ruling::Refused("nobody answered the question about it in time".to_owned()),
            Decision::Cancelled | Decision::Void => Ruling::Refused("the question about it was cancelled".to_owned()),
        }
    }
}

fn question(requester: &Requester, entry: &str) -> Question {
    let action = json!({ "exec_id": requester.exec_id, "host": entry, "policy": requester.policy_version });
    Question {
        kind: ApprovalKind::Network,
        requester: requester.clone(),
        code: None,
        requested_paths: vec![entry.to_owned()],
        blocked_paths: vec![entry.to_owned()],
        risk_level: RiskLevel::High,
        patterns: Vec::new(),
        files: Default::default(),
        digest: Digest::of(action.to_string().as_bytes()),
        // Always valid: the box keeps the policy it was started with, and that policy asks.
        still_stands: Arc::new(|| Box::pin(std::future::ready(true))),
    }
}
