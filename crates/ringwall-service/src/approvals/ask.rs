//! Opens a question: records it first and announces it to approvers only after the commit.

use std::sync::Arc;
use std::time::Duration;

use ringwall_ids::ApprovalId;
use ringwall_policy::Rights;
use ringwall_record::{Answer, Approval, ApprovalStatus, Author, NewApproval, Remembering, SettledStatus, Timestamp};
use tokio::time::Instant;

use super::open_approvals::Open;
use super::question::{Decision, Question, Waiting};
use super::view::shared;
use crate::error::Error;
use crate::service::Service;
use crate::time::{milliseconds, now};

impl Service {
    /// Opens a question and waits for it to be recorded and announced. The answer comes from the
    /// returned [`Waiting`].
    pub(crate) async fn ask(&self, question: Question) -> Result<Waiting, Error> {
        let timeout = self.settings_now().approvals.timeout();
        let (still_stands, from) = (question.still_stands.clone(), question.asked_by.from.clone());
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
        let told = self.inner.open_approvals.take(open.clone())?;
        // Dropping `waiting` cancels the question, on every exit from here.
        let waiting = Waiting { service: self.clone(), id: id.clone(), told, decision: None };
        match self.inner.store.open_approval(new, from).await {
            Ok(()) => {
                self.inner.open_approvals.announce(&id);
                Ok(waiting)
            }
            Err(error) => {
                // The commit may have succeeded despite the error. Dropping `waiting` then cancels
                // the recorded question.
                drop(waiting);
                Err(error.into())
            }
        }
    }
}

impl Service {
    /// Records a question together with an automatic answer, for sessions whose confirmation mode
    /// approves or rejects without a person. The question is never announced.
    pub(crate) async fn ask_nobody(
        &self,
        question: Question,
        answer: SettledStatus,
        by: &str,
    ) -> Result<Waiting, Error> {
        let from = question.asked_by.from.clone();
        let new = question.opened(self.settings_now().approvals.timeout())?;
        let id = new.id.clone();
        self.inner.store.open_approval(new, from).await?;
        let reason = Some("so its session or the settings say".to_owned());
        let (author, remembered) = (Author::new(by), Remembering::Nothing);
        let settled = Answer { status: answer, at: now(), author, reason: reason.clone(), remembered };
        self.inner.store.settle_approval(&id, settled).await?;
        let (by, rights) = (by.to_owned(), Rights::BoxUser);
        let decision = match answer {
            SettledStatus::Approved => Decision::Approved { by, rights, reason, remembered: false, modified: None },
            SettledStatus::Remembered | SettledStatus::Denied | SettledStatus::Expired | SettledStatus::Cancelled => {
                Decision::Denied { by, reason }
            }
        };
        let (_, told) = tokio::sync::oneshot::channel();
        Ok(Waiting { service: self.clone(), id, told, decision: Some(decision) })
    }
}

impl Question {
    /// Adds an id, the creation time and the expiry time.
    fn opened(self, timeout: Duration) -> Result<NewApproval, Error> {
        let created_at = now();
        Ok(NewApproval {
            id: ApprovalId::random()?,
            kind: self.kind,
            exec_id: self.exec_id,
            user_id: self.user_id,
            agent_id: self.agent_id,
            session_id: self.session_id,
            command: self.command,
            code: self.code,
            requested_paths: self.requested_paths,
            blocked_paths: self.blocked_paths,
            risk_level: self.risk_level,
            patterns: self.patterns,
            files: self.files,
            digest: self.digest,
            asked_by: self.asked_by.by,
            created_at,
            expires_at: after(created_at, timeout),
        })
    }
}

fn after(at: Timestamp, timeout: Duration) -> Timestamp {
    let timeout = i64::try_from(milliseconds(timeout)).unwrap_or(i64::MAX);
    Timestamp::from_milliseconds(at.milliseconds().saturating_add(timeout))
}
