//! Checks an answer (permission, deadline, unchanged question) and records exactly one per
//! question.
//!
//! Remembered entries are added to the list in the transaction that records the answer. If that
//! fails, the question stays open and the approver gets the error. All of this holds the question's
//! lock, so the second of two concurrent answers finds the question closed.

use ringwall_policy::Rights;
use ringwall_record::{
    Answer as Recorded, ApprovalKind, ApprovalStatus, Digest, Holder, Remembering, Settled, SettledStatus,
};
use ringwall_risk::MAX_CONTENT;
use tokio::time::Instant;

use super::expire::unanswered;
use super::question::Decision;
use super::view::{ApprovalView, no_approval, shared};
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;
use crate::time::now;

const MAX_REASON_LEN: usize = 2000;

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
        let answered = tokio::spawn(async move { service.answer_to_the_end(&by, &id, answer).await });
        answered.await.map_err(|error| Error::runtime("take the answer", &error))?
    }

    async fn answer_to_the_end(&self, by: &Principal, id: &str, answer: Answer) -> Result<ApprovalView, Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden { why: "an agent never answers; a person does".to_owned() });
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
            let late = unanswered(SettledStatus::Expired, "nobody answered in time");
            return Err(self
                .settle(&found, late, Decision::Expired)
                .await
                .map_or_else(|error| error, |_| Error::ApprovalExpired));
        }
        let (status, decision, remembered) = match answer.verdict {
            Verdict::Deny => {
                let decision = Decision::Denied { by: by.caller().to_owned(), reason: answer.reason.clone() };
                (SettledStatus::Denied, decision, Remembering::Nothing)
            }
            Verdict::Once | Verdict::Remember => {
                if !(open.still_stands)().await {
                    let changed =
                        "the policy, the list of paths or a file that the command names changed after this was asked";
                    self.settle(&found, unanswered(SettledStatus::Cancelled, changed), Decision::Void).await?;
                    return Err(Error::Conflict {
                        message: format!("{changed}; if it is still needed, it is asked anew"),
                    });
                }
                if found.kind == ApprovalKind::Path {
                    self.check_grantable(by, &found.requested_paths).await?;
                    self.check_grantable(by, &found.blocked_paths).await?;
                }
                let (status, remembering) = match answer.verdict {
                    Verdict::Remember => (SettledStatus::Remembered, self.remembering(by, &found).await?),
                    Verdict::Once | Verdict::Deny => (SettledStatus::Approved, Remembering::Nothing),
                };
                let remembered = status == SettledStatus::Remembered;
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
                let view = shared(*approval);
                self.inner.open_approvals.close_one(&asked.id, Some(view.clone()), decision);
                Ok((*view).clone())
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
                Err(Error::invalid(format!("remember: nothing of kind {} can be remembered", asked.kind)))
            }
        }
    }
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
            message: "it was cancelled: nobody waits for the answer any more, or what was asked has changed".to_owned(),
        },
        answered @ (ApprovalStatus::Approved | ApprovalStatus::Remembered | ApprovalStatus::Denied) => {
            Error::Conflict { message: format!("it has been answered already: {answered}") }
        }
    }
}

/// Checks that `modified_code` fits the question's kind and the verdict.
fn check_modified(asked: &ApprovalView, verdict: Verdict, code: &str) -> Result<(), Error> {
    match (asked.kind, verdict) {
        (ApprovalKind::Risk, Verdict::Once) => {}
        (ApprovalKind::Risk, Verdict::Remember | Verdict::Deny) => {
            return Err(Error::invalid("modified_code: it goes with approved, and without remember"));
        }
        (ApprovalKind::Path | ApprovalKind::Network, _) => {
            return Err(Error::invalid(format!("modified_code: nothing of kind {} has code", asked.kind)));
        }
    }
    if code.len() > MAX_CONTENT || code.contains('\0') {
        return Err(Error::invalid(format!("modified_code: at most {MAX_CONTENT} bytes, without NUL")));
    }
    Ok(())
}
