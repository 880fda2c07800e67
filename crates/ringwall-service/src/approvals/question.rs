//! A question of an exec, and the handle that waits for its answer. Dropping the handle cancels the
//! question in the record, so that it can no longer be answered.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use ringwall_ids::{AgentId, ApprovalId, ExecId, UserId};
use ringwall_policy::Rights;
use ringwall_record::{ApprovalFiles, ApprovalKind, Author, Digest, RiskLevel, SettledStatus};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::service::Service;

/// Returns whether the exec would still ask the same question. Checked before an approval counts:
/// if the path list, the policy or a covered file has changed, the approver saw an outdated
/// question.
pub(crate) type StillStands = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

pub(crate) struct Question {
    pub(crate) kind: ApprovalKind,
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) code: Option<String>,
    /// The entries that `remember` adds to the list.
    pub(crate) requested_paths: Vec<String>,
    pub(crate) blocked_paths: Vec<String>,
    pub(crate) risk_level: RiskLevel,
    pub(crate) patterns: Vec<String>,
    pub(crate) files: ApprovalFiles,
    /// Identifies the exact action. For a command: its text, directory, variable names, paths,
    /// policy and covered files.
    pub(crate) digest: Digest,
    pub(crate) asked_by: Author,
    pub(crate) still_stands: StillStands,
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Question").field("exec_id", &self.exec_id).finish_non_exhaustive()
    }
}

/// The result of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Applies to this exec and its blocked paths only. If `remembered`, the entries are in the
    /// list by now.
    Approved {
        by: String,
        /// The rights with which the box accesses the approved paths.
        rights: Rights,
        reason: Option<String>,
        remembered: bool,
        /// Code that runs instead of the code that was shown.
        modified: Option<String>,
    },
    Denied {
        by: String,
        reason: Option<String>,
    },
    /// No answer before the deadline.
    Expired,
    /// The server is stopping, or the question was cancelled.
    Cancelled,
    /// The question is outdated: decide the exec again, and ask a new question if the verdict is
    /// still `Ask`.
    Void,
}

const NOBODY_WAITS: &str = "the exec that asked does not wait any more";

/// Receives the answer. Dropping it before there is an answer cancels the question.
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

    /// Waits for the result, which is recorded before it is sent. Cancel-safe: can be called again.
    pub(crate) async fn decision(&mut self) -> Decision {
        if let Some(decision) = &self.decision {
            return decision.clone();
        }
        let decision = (&mut self.told).await.unwrap_or(Decision::Cancelled);
        self.decision.insert(decision).clone()
    }
}

impl Waiting {
    /// Cancels the question and waits until it can no longer be answered. An answer that is being
    /// recorded at the same time still counts.
    pub(crate) async fn take_back(self) {
        self.service.settle_unanswered(&self.id, SettledStatus::Cancelled, NOBODY_WAITS, Decision::Cancelled).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Without a runtime the question stays pending in the database; the next start expires it.
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
