//! Putting a question before a person: on record first, and only then to be seen.

use std::sync::Arc;
use std::time::Duration;

use record::{Approval, ApprovalId, ApprovalStatus, NewApproval, Timestamp};
use tokio::time::Instant;

use super::desk::Open;
use super::question::{Question, Waiting};
use super::view::shared;
use crate::error::Error;
use crate::service::{Service, milliseconds, now};
use crate::token::random_digits;

impl Service {
    /// When this returns, the question is on record and announced.
    pub(crate) async fn ask(&self, question: Question) -> Result<Waiting, Error> {
        let patience = self.settings_now().approvals.timeout();
        let id: ApprovalId = format!("a_{}", random_digits::<16>()?).parse()?;
        let created_at = now();
        let Question { still_stands, .. } = &question;
        let still_stands = still_stands.clone();
        let new = NewApproval {
            id: id.clone(),
            kind: question.kind,
            exec_id: question.exec_id,
            user_id: question.user_id,
            agent_id: question.agent_id,
            session_id: question.session_id,
            command: question.command,
            code: question.code,
            requested_paths: question.requested_paths,
            blocked_paths: question.blocked_paths,
            risk_level: question.risk_level,
            patterns: question.patterns,
            digest: question.digest,
            asked_by: question.asked_by,
            created_at,
            expires_at: after(created_at, patience),
        };
        let view = shared(Approval {
            asked: new.clone(),
            status: ApprovalStatus::Pending,
            answered_at: None,
            answered_by: None,
            reason: None,
        });
        let open = Arc::new(Open { view, still_stands, settling: tokio::sync::Mutex::default() });
        // Whoever finds it on record before it is announced waits for the rest of this.
        let _settling = open.settling.lock().await;
        let told = self.inner.desk.take(open.clone(), Instant::now() + patience)?;
        // From here on it is taken back in whatever way this ends.
        let waiting = Waiting { service: self.clone(), id: id.clone(), told, decision: None };
        match self.inner.store.open_approval(new).await {
            Ok(()) => {
                self.inner.desk.announce(&id);
                Ok(waiting)
            }
            Err(error) => {
                // It may be on record all the same: dropping the wait cancels it there.
                drop(waiting);
                Err(error.into())
            }
        }
    }
}

fn after(at: Timestamp, patience: Duration) -> Timestamp {
    let patience = i64::try_from(milliseconds(patience)).unwrap_or(i64::MAX);
    Timestamp::from_milliseconds(at.milliseconds().saturating_add(patience))
}
