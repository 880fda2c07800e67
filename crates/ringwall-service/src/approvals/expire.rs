//! The end of questions that nobody answered: their time is up, nobody waits for them, or the server starts or stops.
//!
//! One task looks after all deadlines, on a clock that does not jump; it sleeps until the next one.

use std::sync::Arc;

use ringwall_record::{Answer, ApprovalId, ApprovalStatus, Author, Remembering, Settled, SettledStatus};
use tokio::time::Instant;

use super::question::Decision;
use super::view::{ApprovalView, shared};
use crate::error::causes;
use crate::service::Service;
use crate::time::now;

/// Who ends a question that no person answered, in the record.
pub(super) const BY: &str = "ringwall";

impl Service {
    /// Holds on to the service only while it works, so that whoever drops the last handle of it ends it.
    pub(crate) fn expire_approvals(&self) {
        let (inner, desk) = (Arc::downgrade(&self.inner), self.inner.desk.clone());
        let task = tokio::spawn(async move {
            loop {
                let (due, next) = desk.due(Instant::now());
                if !due.is_empty() {
                    let Some(inner) = inner.upgrade() else { return };
                    let service = Service { inner };
                    for id in due {
                        // Each in a task of its own: somebody may be answering one of them just now.
                        let service = service.clone();
                        tokio::spawn(async move {
                            let reason = "nobody answered in time";
                            service.settle_unanswered(&id, SettledStatus::Expired, reason, Decision::Expired).await;
                        });
                    }
                    continue;
                }
                let changed = desk.deadlines_changed.notified();
                match next {
                    Some(deadline) => {
                        let _ = tokio::time::timeout_at(deadline, changed).await;
                    }
                    None => changed.await,
                }
            }
        });
        *self.inner.expirer.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(task);
    }

    /// Ends one without an answer, unless an answer is being recorded in this moment.
    pub(super) async fn settle_unanswered(
        &self,
        id: &ApprovalId,
        status: SettledStatus,
        reason: &str,
        decision: Decision,
    ) {
        let Some(open) = self.inner.desk.find(id) else { return };
        let _settling = open.settling.lock().await;
        if self.inner.desk.find(id).is_some() {
            self.settle_held(id, status, reason, decision).await;
        }
    }

    /// The same for whoever holds the question's lock already.
    async fn settle_held(&self, id: &ApprovalId, status: SettledStatus, reason: &str, decision: Decision) {
        let answer = unanswered(status, reason);
        let resolved = match self.inner.store.settle_approval(id, answer).await {
            Ok(Settled::Recorded(approval) | Settled::AlreadySettled(approval)) => Some(shared(*approval)),
            Ok(Settled::Unknown) => None,
            Err(error) => {
                // Nobody waits for it all the same; what is left on record ends at the next start.
                tracing::warn!(approval = %id, error = %causes(&error), "could not record that an approval has ended");
                None
            }
        };
        self.inner.desk.close_one(id, resolved, decision);
    }

    /// All of them expire, on record first, and then those who wait and those who follow are told.
    pub(crate) async fn close_approvals(&self, reason: &str) {
        let at = now();
        self.expire_pending_approvals(reason).await;
        self.inner.desk.close(|asked| {
            let (status, by, reason) = (ApprovalStatus::Expired, BY.to_owned(), reason.to_owned());
            ApprovalView { status, answered_at: Some(at), answered_by: Some(by), reason: Some(reason), ..asked.clone() }
        });
    }

    /// Whatever is pending has nobody left who waits for it.
    pub(crate) async fn expire_pending_approvals(&self, reason: &str) {
        match self.inner.store.expire_pending_approvals(now(), BY, reason).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "approvals that nobody waits for have expired"),
            Err(error) => tracing::warn!(error = %causes(&error), "could not end the approvals that were pending"),
        }
    }

    /// The list of paths or the settings have changed: what would not be asked any more, or not so, is void. Those who asked decide again,
    /// and go on or ask anew. In tasks of their own, because whoever changed the list may be answering one of them.
    pub(crate) fn review_approvals(&self) {
        for open in self.inner.desk.all() {
            let service = self.clone();
            tokio::spawn(async move {
                let _settling = open.settling.lock().await;
                let id = &open.view.id;
                if service.inner.desk.find(id).is_none() || (open.still_stands)().await {
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
