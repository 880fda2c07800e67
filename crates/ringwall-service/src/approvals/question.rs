//! A question as an exec asks it, and the wait for its answer.
//!
//! Whoever stops waiting takes the question back: it is cancelled, on record, and nobody can answer it any more.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use ringwall_policy::Rights;
use ringwall_record::{
    AgentId, ApprovalFiles, ApprovalId, ApprovalKind, Author, Digest, ExecId, RiskLevel, SettledStatus, UserId,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::service::Service;

/// Says whether the exec would still ask the same. Asked before an approval counts: where the list or the policy has
/// changed so that the verdict is another, what a person allows is no longer what they were shown.
pub(crate) type StillStands = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

pub(crate) struct Question {
    pub(crate) kind: ApprovalKind,
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) code: Option<String>,
    /// What remembering the answer would store.
    pub(crate) requested_paths: Vec<String>,
    pub(crate) blocked_paths: Vec<String>,
    pub(crate) risk_level: RiskLevel,
    pub(crate) patterns: Vec<String>,
    pub(crate) files: ApprovalFiles,
    /// Of the exact action: its words, its directory, the names of its variables, the paths, the policy, the covered files.
    pub(crate) digest: Digest,
    pub(crate) asked_by: Author,
    pub(crate) still_stands: StillStands,
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Question").field("exec_id", &self.exec_id).finish_non_exhaustive()
    }
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// For this exec and what it asked; `remembered` paths are in the list by now.
    Approved {
        by: String,
        /// As whom the box acts on what was allowed.
        rights: Rights,
        reason: Option<String>,
        remembered: bool,
        /// What is to run instead of the code that was shown.
        modified: Option<String>,
    },
    Denied {
        by: String,
        reason: Option<String>,
    },
    /// Nobody answered in time.
    Expired,
    /// The server stops.
    Cancelled,
    /// It does not stand any more: decide again, and ask anew if that is still the verdict.
    Void,
}

const NOBODY_WAITS: &str = "the exec that asked does not wait any more";

/// The right to the answer. Dropped before there is one, the question is cancelled.
pub(crate) struct Waiting {
    pub(super) service: Service,
    pub(super) id: ApprovalId,
    pub(super) told: oneshot::Receiver<Decision>,
    pub(super) decision: Option<Decision>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Waiting").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Waiting {
    pub(crate) fn id(&self) -> &ApprovalId {
        &self.id
    }

    /// May be given up and asked for again; the answer is on record when it comes.
    pub(crate) async fn decision(&mut self) -> Decision {
        if let Some(decision) = &self.decision {
            return decision.clone();
        }
        let decision = (&mut self.told).await.unwrap_or(Decision::Cancelled);
        self.decision.insert(decision).clone()
    }
}

impl Waiting {
    /// Takes the question back; when this returns, nobody can answer it any more. Where an answer is being recorded in this
    /// moment, that stands.
    pub(crate) async fn take_back(self) {
        self.service.settle_unanswered(&self.id, SettledStatus::Cancelled, NOBODY_WAITS, Decision::Cancelled).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Where nothing runs any more, the next start ends what is left.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.decision.is_some() || self.told.try_recv().is_ok() {
            return;
        }
        let (service, id) = (self.service.clone(), self.id.clone());
        runtime.spawn(async move {
            service.settle_unanswered(&id, SettledStatus::Cancelled, NOBODY_WAITS, Decision::Cancelled).await;
        });
    }
}
