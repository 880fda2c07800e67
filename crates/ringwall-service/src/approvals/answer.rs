//! Settles questions: by a person's answer, or without one because the deadline passed, the exec
//! was cancelled, the policy or a covered file changed, or the server starts or stops.
//!
//! An answer is checked (permission, deadline, unchanged question), and exactly one per question is
//! recorded. Remembered entries are added to the list in the transaction that records the answer.
//! If that fails, the question stays open and the approver gets the error. All of this holds the
//! question's lock, so the second of two concurrent answers finds the question closed.
//!
//! One task serves all deadlines on a monotonic clock and sleeps until the next one.

use std::sync::Arc;

use ringwall_ids::ApprovalId;
use ringwall_policy::Rights;
use ringwall_record::{
    Answer as Recorded, ApprovalKind, ApprovalStatus, Author, Digest, Holder, Remembering, Settled, SettledStatus,
};
use ringwall_risk::MAX_CONTENT;
use tokio::time::Instant;

use super::question::Decision;
use super::view::{ApprovalView, no_approval, shared};
use crate::auth::principal::Principal;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::time::now;

const MAX_REASON_LEN: usize = 2000;
/// The author of automatic closings in the record.
const BY: &str = "ringwall";
const EXPIRED: &str = "nobody answered in time";
const OUTDATED: &str = "the policy, the list of paths or a file that the command names changed after this was asked";

#[derive(Debug, Clone)]
pub struct Answer {
    pub verdict: Verdict,
    pub reason: Option<String>,
    /// Code that runs instead of the code that was shown.
    pub modified_code: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Once,
    /// Adds the paths or hosts to the list.
    Remember,
    Deny,
}

impl Service {
    /// Runs in its own task: an approver who disconnects does not interrupt the answer between
    /// commit and notification.
    pub async fn answer_approval(&self, by: &Principal, id: &str, answer: Answer) -> Result<ApprovalView, Error> {
        let (service, by, id) = (self.clone(), by.clone(), id.to_owned());
        let answered = tokio::spawn(async move { service.check_and_record(&by, &id, answer).await });
        answered.await.map_err(|error| Error::runtime("record the answer", &error))?
    }

    async fn check_and_record(&self, by: &Principal, id: &str, answer: Answer) -> Result<ApprovalView, Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden {
                why: "an agent cannot answer approvals; its user or an operator can".to_owned(),
            });
        }
        if answer.reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_LEN) {
            return Err(Error::invalid(format!("reason: at most {MAX_REASON_LEN} bytes")));
        }
        let found = self.approval(by, id).await?;
        if let Some(code) = &answer.modified_code {
            check_modified(&found, answer.verdict, code)?;
        }
        let Some(open) = self.inner.open_approvals.find(&found.id) else {
            return Err(settled(self.approval(by, id).await?.status));
        };
        let _settling = open.settling.lock().await;
        if self.inner.open_approvals.find(&found.id).is_none() {
            return Err(settled(self.approval(by, id).await?.status));
        }
        if Instant::now() >= open.deadline {
            self.settle(&found, unanswered(SettledStatus::Expired, EXPIRED), Decision::Expired).await?;
            return Err(Error::ApprovalExpired);
        }
        let (status, decision, remembered) = match answer.verdict {
            Verdict::Deny => {
                let decision = Decision::Denied { by: by.caller().to_owned(), reason: answer.reason.clone() };
                (SettledStatus::Denied, decision, Remembering::Nothing)
            }
            Verdict::Once | Verdict::Remember => {
                if !(open.still_stands)().await {
                    self.settle(&found, unanswered(SettledStatus::Cancelled, OUTDATED), Decision::Void).await?;
                    let message = format!("{OUTDATED}; if an approval is still needed, a new question is opened");
                    return Err(Error::Conflict { message });
                }
                if found.kind == ApprovalKind::Path {
                    self.check_grantable(by, &found.requested_paths).await?;
                    self.check_grantable(by, &found.blocked_paths).await?;
                }
                let remembered = answer.verdict == Verdict::Remember;
                let (status, remembering) = match remembered {
                    true => (SettledStatus::Remembered, self.remembering(by, &found).await?),
                    false => (SettledStatus::Approved, Remembering::Nothing),
                };
                let (reason, modified) = (answer.reason.clone(), answer.modified_code.clone());
                let (by, rights) = (by.caller().to_owned(), rights(by));
                (status, Decision::Approved { by, rights, reason, remembered, modified }, remembering)
            }
        };
        let mut author = by.author();
        if let Some(code) = &answer.modified_code {
            author.from["modified_code_sha256"] = Digest::of(code.as_bytes()).to_string().into();
        }
        let recorded = Recorded { status, at: now(), author, reason: answer.reason, remembered };
        let settled = self.settle(&found, recorded, decision).await?;
        if status == SettledStatus::Remembered {
            // The new entry may make other open questions unnecessary.
            self.review_approvals();
        }
        Ok(settled)
    }

    /// Records the answer, then notifies the exec and the followers. The caller holds the
    /// question's lock.
    async fn settle(&self, asked: &ApprovalView, answer: Recorded, decision: Decision) -> Result<ApprovalView, Error> {
        match self.inner.store.settle_approval(&asked.id, answer).await? {
            Settled::Recorded(approval) => {
                let view = ApprovalView::from(*approval);
                self.inner.open_approvals.close_one(&asked.id, Some(Arc::new(view.clone())), decision);
                Ok(view)
            }
            Settled::AlreadySettled(approval) => Err(settled(approval.status)),
            Settled::Unknown => Err(no_approval(asked.id.as_str())),
        }
    }

    /// The entries shown in the question, as a change of the list.
    async fn remembering(&self, by: &Principal, asked: &ApprovalView) -> Result<Remembering, Error> {
        match asked.kind {
            ApprovalKind::Path => self.remembering_paths(by, &asked.user, &asked.requested_paths).await,
            ApprovalKind::Network => Self::remembering_hosts(&asked.user, &asked.requested_paths),
            ApprovalKind::Risk => {
                Err(Error::invalid(format!("remember: an approval of kind {} cannot be remembered", asked.kind)))
            }
        }
    }

    /// Starts the expiry task. It keeps only a weak reference between deadlines, so it does not
    /// keep the service alive.
    pub(crate) fn expire_approvals(&self) {
        let (inner, open_approvals) = (Arc::downgrade(&self.inner), self.inner.open_approvals.clone());
        self.run_in_background(async move {
            loop {
                let (due, next) = open_approvals.due(Instant::now());
                if !due.is_empty() {
                    let Some(inner) = inner.upgrade() else { return };
                    let service = Service { inner };
                    for id in due {
                        // A task for each, because an answer in progress holds the question's lock.
                        let service = service.clone();
                        tokio::spawn(async move {
                            service.settle_unanswered(&id, SettledStatus::Expired, EXPIRED, Decision::Expired).await;
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
                tracing::warn!(approval = %id, error = %causes(&error), "could not record the end of an approval");
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
            let (answered_by, reason) = (Some(BY.to_owned()), Some(reason.to_owned()));
            ApprovalView {
                status: ApprovalStatus::Expired,
                answered_at: Some(at),
                answered_by,
                reason,
                ..asked.clone()
            }
        });
    }

    /// Expires all questions that are pending in the database. At startup no exec waits for them
    /// any more.
    pub(crate) async fn expire_pending_approvals(&self, reason: &str) {
        match self.inner.store.expire_pending_approvals(now(), BY, reason).await {
            Ok(0) => {}
            Ok(count) => tracing::warn!(count, "expired approvals whose execs no longer wait"),
            Err(error) => tracing::warn!(error = %causes(&error), "could not expire the pending approvals"),
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
                service.settle_held(id, SettledStatus::Cancelled, OUTDATED, Decision::Void).await;
            });
        }
    }
}

fn unanswered(status: SettledStatus, reason: &str) -> Recorded {
    let (author, remembered) = (Author::new(BY), Remembering::Nothing);
    Recorded { status, at: now(), author, reason: Some(reason.to_owned()), remembered }
}

/// An operator's approval has the rights of an operator's list entry, a user's approval those of a
/// user's entry.
fn rights(by: &Principal) -> Rights {
    match by.holder() {
        Holder::Owner | Holder::Operator => Rights::Owner,
        Holder::User(_) | Holder::Agent(..) => Rights::BoxUser,
    }
}

/// The error for answering a question that is no longer pending.
fn settled(status: ApprovalStatus) -> Error {
    match status {
        ApprovalStatus::Expired => Error::ApprovalExpired,
        ApprovalStatus::Cancelled | ApprovalStatus::Pending => Error::Conflict {
            message: "the question was cancelled: its exec no longer waits, or the question is outdated".to_owned(),
        },
        answered @ (ApprovalStatus::Approved | ApprovalStatus::Remembered | ApprovalStatus::Denied) => {
            Error::Conflict { message: format!("the question has already been answered: {answered}") }
        }
    }
}

/// Checks that `modified_code` fits the question's kind and the verdict.
fn check_modified(asked: &ApprovalView, verdict: Verdict, code: &str) -> Result<(), Error> {
    match (asked.kind, verdict) {
        (ApprovalKind::Risk, Verdict::Once) => {}
        (ApprovalKind::Risk, Verdict::Remember | Verdict::Deny) => {
            return Err(Error::invalid("modified_code: only valid with approved, and without remember"));
        }
        (ApprovalKind::Path | ApprovalKind::Network, _) => {
            return Err(Error::invalid(format!("modified_code: an approval of kind {} has no code", asked.kind)));
        }
    }
    if code.len() > MAX_CONTENT || code.contains('\0') {
        return Err(Error::invalid(format!("modified_code: at most {MAX_CONTENT} bytes, without NUL")));
    }
    Ok(())
}
