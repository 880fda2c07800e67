//! Closes questions that were not answered: the deadline passed, the exec was cancelled, the policy
//! or a covered file changed, or the server starts or stops.
//!
//! One task serves all deadlines on a monotonic clock and sleeps until the next one.

use std::sync::Arc;

use ringwall_ids::ApprovalId;
use ringwall_record::{Answer, ApprovalStatus, Author, Remembering, Settled, SettledStatus};
use tokio::time::Instant;

use super::question::Decision;
use super::view::{ApprovalView, shared};
use crate::error::causes;
use crate::service::Service;
use crate::time::now;

/// The author of automatic closings in the record.
pub(super) const BY: &str = "ringwall";

impl Service {
    /// Starts the expiry task. It keeps only a weak reference between deadlines, so it does not
    /// keep the service alive.
    pub(crate) fn expire_approvals(&self) {
        let (inner, open_approvals) = (Arc::downgrade(&self.inner), self.inner.open_approvals.clone());
        let task = tokio::spawn(async move {
            loop {
                let (due, next) = open_approvals.due(Instant::now());
                if !due.is_empty() {
                    let Some(inner) = inner.upgrade() else { return };
                    let service = Service { inner };
                    for id in due {
                        // A task for each, because an answer in progress holds the question's lock.
                        let service = service.clone();
                        tokio::spawn(async move {
                            let reason = "nobody answered in time";
                            service.settle_unanswered(&id, SettledStatus::Expired, reason, Decision::Expired).await;
                        });
                    }
                    continue;
                }
                let changed = open_approvals.deadlines_changed.notified();
                match next {
                    Some(deadline) => {
                        let _ = tokio::time::timeout_at(deadline, changed).await;
                    }
                    None => changed.await,
                }
            }
        });
        *self.inner.expirer.lock() = Some(task);
    }

    /// Closes a question without an answer, unless an answer was recorded first.
    pub(super) async fn settle_unanswered(
        &self,
        id: &ApprovalId,
        status: SettledStatus,
        reason: &str,
        decision: Decision,
    ) {
        let Some(open) = self.inner.open_approvals.find(id) else { return };
        let _settling = open.settling.lock().await;
        if self.inner.open_approvals.find(id).is_some() {
            self.settle_held(id, status, reason, decision).await;
        }
    }

    /// As `settle_unanswered`, for callers that hold the question's lock.
    async fn settle_held(&self, id: &ApprovalId, status: SettledStatus, reason: &str, decision: Decision) {
        let answer = unanswered(status, reason);
        let resolved = match self.inner.store.settle_approval(id, answer).await {
            Ok(Settled::Recorded(approval) | Settled::AlreadySettled(approval)) => Some(shared(*approval)),
            Ok(Settled::Unknown) => None,
            Err(error) => {
                // The exec gets the result anyway; the next start expires the recorded question.
                tracing::warn!(approval = %id, error = %causes(&error), "could not record that an approval has ended");
                None
            }
        };
        self.inner.open_approvals.close_one(id, resolved, decision);
    }

    /// Expires all questions at shutdown: in the record first, then for the waiting execs and the
    /// followers.
    pub(crate) async fn close_approvals(&self, reason: &str) {
        let at = now();
        self.expire_pending_approvals(reason).await;
        self.inner.open_approvals.close(|asked| {
            let (status, by, reason) = (ApprovalStatus::Expired, BY.to_owned(), reason.to_owned());
            ApprovalView { status, answered_at: Some(at), answered_by: Some(by), reason: Some(reason), ..asked.clone() }
        });
    }

    /// Expires all questions that are pending in the database. At startup no exec waits for them
    /// any more.
    pub(crate) async fn expire_pending_approvals(&self, reason: &str) {
        match self.inner.store.expire_pending_approvals(now(), BY, reason).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "approvals that nobody waits for have expired"),
            Err(error) => tracing::warn!(error = %causes(&error), "could not end the approvals that were pending"),
        }
    }

    /// Closes open questions that are outdated after a change of the path list or the settings.
    /// Their execs are decided again and run or ask a new question. Each question is checked in its
    /// own task, because the caller may hold the lock of one of them.
    pub(crate) fn review_approvals(&self) {
        for open in self.inner.open_approvals.all() {
            let service = self.clone();
            tokio::spawn(async move {
                let _settling = open.settling.lock().await;
                let id = &open.view.id;
                if service.inner.open_approvals.find(id).is_none() || (open.still_stands)().await {
                    return;
                }
                let reason =
                    "the policy, the list of paths or a file that the command names changed after this was asked";
                service.settle_held(id, SettledStatus::Cancelled, reason, Decision::Void).await;
            });
        }
    }
}

pub(super) fn unanswered(status: SettledStatus, reason: &str) -> Answer {
    let (author, remembered) = (Author::new(BY), Remembering::Nothing);
    Answer { status, at: now(), author, reason: Some(reason.to_owned()), remembered }
}
