//! Opens questions, and waits for their answers. A question is recorded first and announced to
//! approvers only after the commit. Dropping the handle that waits cancels the question in the
//! record, so that it can no longer be answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ringwall_ids::ApprovalId;
use ringwall_policy::Rights;
use ringwall_record::{
    Answer, Approval, ApprovalFiles, ApprovalKind, ApprovalStatus, Author, Confirmation, Digest, NewApproval,
    Remembering, RiskLevel, SettledStatus, Timestamp,
};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::open_approvals::Open;
use super::view::shared;
use crate::egress::Requester;
use crate::error::Error;
use crate::service::Service;
use crate::time::{milliseconds, now};

/// Returns whether the exec would still ask the same question. Checked before an approval counts:
/// if the path list, the policy or a covered file has changed, the approver saw an outdated
/// question.
pub(crate) type StillStands = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

pub(crate) struct Question {
    pub(crate) kind: ApprovalKind,
    pub(crate) requester: Requester,
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
    pub(crate) still_stands: StillStands,
}

impl fmt::Debug for Question {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Question").field("exec_id", &self.requester.exec_id).finish_non_exhaustive()
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

const WITHDRAWN: &str = "the exec that asked no longer waits";

/// Receives the answer. Dropping it before there is an answer cancels the question.
pub(crate) struct Waiting {
    service: Service,
    id: ApprovalId,
    receiver: oneshot::Receiver<Decision>,
    decision: Option<Decision>,
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
        let decision = (&mut self.receiver).await.unwrap_or(Decision::Cancelled);
        self.decision.insert(decision).clone()
    }

    /// Cancels the question and waits until it can no longer be answered. An answer that is being
    /// recorded at the same time still counts.
    pub(crate) async fn withdraw(self) {
        self.service.settle_unanswered(&self.id, SettledStatus::Cancelled, WITHDRAWN, Decision::Cancelled).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Without a runtime the question stays pending in the database; the next start expires it.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.decision.is_some() || self.receiver.try_recv().is_ok() {
            return;
        }
        let (service, id) = (self.service.clone(), self.id.clone());
        runtime.spawn(async move {
            service.settle_unanswered(&id, SettledStatus::Cancelled, WITHDRAWN, Decision::Cancelled).await;
        });
    }
}

impl Service {
    /// Opens a question and waits for it to be recorded and announced. The answer comes from the
    /// returned [`Waiting`].
    pub(crate) async fn ask(&self, question: Question) -> Result<Waiting, Error> {
        let timeout = self.settings_now().approvals.timeout();
        let (still_stands, from) = (question.still_stands.clone(), question.requester.author.from.clone());
        let new = question.opened(timeout)?;
        let id = new.id.clone();
        let view = shared(Approval {
            asked: new.clone(),
            status: ApprovalStatus::Pending,
            answered_at: None,
            answered_by: None,
            reason: None,
        });
        let deadline = Instant::now() + timeout;
        let open = Arc::new(Open { view, still_stands, deadline, settling: tokio::sync::Mutex::default() });
        // Held until the announcement: an approver who reads the question from the database before
        // that waits for this lock.
        let _settling = open.settling.lock().await;
        let receiver = self.inner.open_approvals.take(open.clone())?;
        // Dropping `waiting` cancels the question, on every exit from here.
        let waiting = Waiting { service: self.clone(), id: id.clone(), receiver, decision: None };
        match self.inner.store.open_approval(new, from).await {
            Ok(()) => {
                self.inner.open_approvals.announce(&id);
                Ok(waiting)
            }
            // The commit may have succeeded despite the error. Dropping `waiting` then cancels the
            // recorded question.
            Err(error) => Err(error.into()),
        }
    }

    /// Asks as a session's confirmation mode says: a person, or with an automatic answer.
    pub(crate) async fn ask_in_mode(&self, question: Question, mode: Confirmation) -> Result<Waiting, Error> {
        match mode {
            Confirmation::Websocket | Confirmation::Callback => self.ask(question).await,
            Confirmation::AutoApprove => self.answer_automatically(question, SettledStatus::Approved, mode).await,
            Confirmation::AutoReject => self.answer_automatically(question, SettledStatus::Denied, mode).await,
        }
    }

    /// Records a question together with its answer. The question is never announced.
    async fn answer_automatically(
        &self,
        question: Question,
        answer: SettledStatus,
        mode: Confirmation,
    ) -> Result<Waiting, Error> {
        let from = question.requester.author.from.clone();
        let new = question.opened(self.settings_now().approvals.timeout())?;
        let id = new.id.clone();
        self.inner.store.open_approval(new, from).await?;
        let (by, reason) = (mode.as_str().to_owned(), Some("decided by the session's confirmation mode".to_owned()));
        let (author, remembered) = (Author::new(&by), Remembering::Nothing);
        let settled = Answer { status: answer, at: now(), author, reason: reason.clone(), remembered };
        self.inner.store.settle_approval(&id, settled).await?;
        let rights = Rights::BoxUser;
        let decision = match answer {
            SettledStatus::Approved => Decision::Approved { by, rights, reason, remembered: false, modified: None },
            SettledStatus::Remembered | SettledStatus::Denied | SettledStatus::Expired | SettledStatus::Cancelled => {
                Decision::Denied { by, reason }
            }
        };
        let (_, receiver) = oneshot::channel();
        Ok(Waiting { service: self.clone(), id, receiver, decision: Some(decision) })
    }
}

impl Question {
    /// Adds an id, the creation time and the expiry time.
    fn opened(self, timeout: Duration) -> Result<NewApproval, Error> {
        let (requester, created_at) = (self.requester, now());
        Ok(NewApproval {
            id: ApprovalId::random()?,
            kind: self.kind,
            exec_id: requester.exec_id,
            user_id: requester.user_id,
            agent_id: requester.agent_id,
            session_id: requester.session_id,
            command: requester.command,
            code: self.code,
            requested_paths: self.requested_paths,
            blocked_paths: self.blocked_paths,
            risk_level: self.risk_level,
            patterns: self.patterns,
            files: self.files,
            digest: self.digest,
            asked_by: requester.author.by,
            created_at,
            expires_at: after(created_at, timeout),
        })
    }
}

fn after(at: Timestamp, timeout: Duration) -> Timestamp {
    let timeout = i64::try_from(milliseconds(timeout)).unwrap_or(i64::MAX);
    Timestamp::from_milliseconds(at.milliseconds().saturating_add(timeout))
}
