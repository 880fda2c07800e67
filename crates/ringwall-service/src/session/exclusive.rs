//! Acquires an exec's session: shared with other execs, or exclusively for an approved command that
//! reads files of the session.

use ringwall_record::SessionKey;

use crate::approvals::Coverage;
use crate::boxes::{Hold, Shared};
use crate::error::codes::SESSION_BUSY;
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::outcome::ExecResult;
use crate::exec::queue::{Admission, Slot};
use crate::exec::spec::Target;

impl Exec {
    /// Acquires the session exclusively if the command was approved together with pinned files of
    /// the session; otherwise shares it. Stops waiting when the exec is cancelled.
    pub(crate) async fn hold_session(&self, slot: &mut Option<Slot>) -> Step<Hold> {
        let Some(session) = &self.running.session else { return Ok(Hold::Nothing) };
        let is_alone = match &self.spec.target {
            Target::Session { approved, covering, .. } => {
                !approved.is_empty() && covering.asked.as_ref().is_some_and(Coverage::is_pinned)
            }
            Target::Project { .. } | Target::Agent { .. } | Target::Code(_) => false,
        };
        let hold = async {
            if is_alone {
                let exclusive = self.service.inner.session_gates.take_alone(&self.service.inner.boxes, session).await;
                exclusive.map(Hold::Alone).map_err(|message| ExecResult::denied(SESSION_BUSY, message).into())
            } else {
                self.share_session(session, slot).await.map(Hold::Shared)
            }
        };
        tokio::select! {
            biased;
            reason = self.running.cancelled() => Err(ExecResult::cancelled(reason).into()),
            hold = hold => hold,
        }
    }

    /// Waits while an approved command has exclusive use of the session. The exec gives its slot
    /// back during the wait and queues for a new one afterwards.
    async fn share_session(&self, session: &SessionKey, slot: &mut Option<Slot>) -> Step<Shared> {
        let gates = &self.service.inner.session_gates;
        loop {
            if let Ok(shared) = gates.try_share(session) {
                return Ok(shared);
            }
            let parked = slot.take().and_then(Slot::park).ok_or_else(|| {
                let message = format!(
                    "an approved command has exclusive use of the session {}, and too many other commands wait; send \
                     the command again when it has ended",
                    session.session_id
                );
                ExecResult::denied(SESSION_BUSY, message)
            })?;
            drop(gates.share(session).await);
            *slot = match parked.enter() {
                Admission::Immediate(slot) => Some(slot),
                Admission::Queued(ticket) => ticket.wait().await,
            };
            if slot.is_none() {
                return Err(ExecResult::internal("the exec queue was closed").into());
            }
        }
    }
}
