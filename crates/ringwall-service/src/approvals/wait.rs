//! Waits for the approval of an exec, because its command names a path that is not allowed or its
//! code has a high risk, then decides the exec again.
//!
//! The exec waits without holding a slot or a lock. Cancelling it cancels its question. An approval
//! applies to this exec, to exactly the blocked paths and to the current content of the files that
//! the command names (`covered_files`). After the answer the exec is decided again with the current
//! settings and path list: it is allowed, denied, or asks a new question.

use ringwall_policy::{Ask, Denial, Grant, NamedPath, Net, Rights, Verdict};
use ringwall_record::{Start, Status};

use super::covered_files::{Coverage, MAX_FILE_CHANGES};
use super::question::{Decision, Waiting};
use crate::exec::authorize::{Directories, session_work};
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::outcome::ExecResult;
use crate::exec::queue::Admission;
use crate::exec::registry::{Cancellation, ExecState};
use crate::exec::spec::{Approved, Target};

pub(crate) const DENIED_BY_PERSON: &str = "DENIED_BY_PERSON";
pub(crate) const APPROVAL_EXPIRED: &str = "APPROVAL_EXPIRED";
const FILES_CHANGED: &str = "FILES_CHANGED";
/// Maximum number of questions of one exec. Each one after the first follows a change of the
/// policy, the path list or a file. The limit stops an exec from asking forever.
const MAX_QUESTIONS: u32 = 16;

/// An open question and what it asks for.
#[derive(Debug)]
pub(crate) struct PendingApproval {
    waiting: Waiting,
    ask: Ask,
}

impl Exec {
    /// Opens a question. When this returns, it can be answered.
    pub(crate) async fn open_approval(&mut self, ask: Ask) -> Step<PendingApproval> {
        self.questions += 1;
        if self.questions > MAX_QUESTIONS {
            let message = "the policy kept changing while the exec waited for an approval; submit it again";
            return Err(ExecResult::denied("POLICY_CHANGED", message).into());
        }
        let asked = if let Target::Code(code) = &self.spec.target {
            self.ask_about_code(code, &ask).await
        } else {
            let coverage = self.cover_files().await?;
            self.count_file_changes(&coverage)?;
            Ok(self.service.ask(self.path_question(&ask, &coverage)).await?)
        };
        let waiting = asked.inspect_err(|result| {
            tracing::warn!(exec_id = %self.intent.exec_id, reason = ?result.reason, "no approval was asked for");
        })?;
        tracing::info!(exec_id = %self.intent.exec_id, approval = %waiting.id(), "an exec waits for an approval");
        Ok(PendingApproval { waiting, ask })
    }

    /// Waits for the answer and decides the exec again until it is allowed. Returns its place in
    /// the queue.
    pub(crate) async fn await_approval(&mut self, mut pending: PendingApproval) -> Step<Admission> {
        loop {
            let PendingApproval { mut waiting, ask } = pending;
            let decision = tokio::select! {
                biased;
                reason = self.running.cancelled() => {
                    // Cancel the question before the exec ends, so that no ended exec has an open
                    // question.
                    waiting.withdraw().await;
                    return Err(ExecResult::cancelled(reason).into());
                }
                decision = waiting.decision() => decision,
            };
            match decision {
                // The decision below reads the remembered paths from the list.
                Decision::Approved { remembered: true, .. } | Decision::Void => {}
                Decision::Approved { by, modified: Some(code), .. } => {
                    return Err(self.replace_code(code, waiting.id(), &by).await?.into());
                }
                Decision::Approved { remembered: false, rights, .. } => self.approve(&ask.blocked, rights),
                Decision::Denied { reason, .. } => {
                    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    return Err(ExecResult::denied(DENIED_BY_PERSON, format!("denied by a person{reason}")).into());
                }
                Decision::Expired => {
                    let message = "the approval expired without an answer";
                    return Err(ExecResult::denied(APPROVAL_EXPIRED, message).into());
                }
                Decision::Cancelled => return Err(ExecResult::cancelled(Cancellation::ServerStops).into()),
            }
            // Earlier approvals of this exec covered the old content of the files.
            self.check_covered_files().await?;
            self.reload_settings().await?;
            match self.service.authorize(&self.spec, self.owner, Directories::Expected).await? {
                Verdict::Allow(grant) => {
                    self.adopt(&grant)?;
                    break;
                }
                Verdict::Ask(ask) => pending = self.open_approval(ask).await?,
                Verdict::Deny(denial) => return Err(policy_denied(denial)),
            }
        }
        let admission = self.service.inner.exec_queue.enter(&self.spec.user_id);
        admission
            .ok_or_else(|| ExecResult::failed("QUEUE_FULL", "too many execs wait for a slot; submit it again").into())
    }

    /// Records that a started exec, whose box was not created yet, waits for an approval again.
    pub(crate) async fn return_to_approval(&mut self) -> Step<()> {
        let returned = self.service.inner.store.return_to_approval(&self.intent.exec_id).await;
        returned.map_err(|error| self.not_recorded("the wait for an approval", &error))?;
        self.intent.start = Start::AwaitingApproval;
        self.running.set_state(ExecState::At(Status::AwaitingApproval));
        Ok(())
    }

    /// Reads the operator's settings again, and the session's rules for code.
    async fn reload_settings(&mut self) -> Step<()> {
        match &self.spec.target {
            Target::Code(_) => self.reload_code_rules().await,
            Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } => {
                self.spec.layers.operator = self.service.settings_now().operator.clone();
                Ok(())
            }
        }
    }

    /// The exec will run with the limits and network of this grant.
    fn adopt(&mut self, grant: &Grant) -> Step<()> {
        let effective = grant.effective();
        if effective.net != Net::None && !self.spec.can_reach_hosts() {
            return Err(policy_denied(Denial::no_network(self.spec.backend.key())));
        }
        (self.limits, self.net) = (effective.limits, effective.net.mode());
        Ok(())
    }

    fn approve(&mut self, blocked: &[NamedPath], rights: Rights) {
        match &mut self.spec.target {
            Target::Session { approved, .. } => {
                approved.extend(blocked.iter().map(|named| Approved { path: named.real.clone(), rights }));
            }
            Target::Code(code) => code.consent(),
            Target::Project { .. } | Target::Agent { .. } => {}
        }
    }

    /// Reads the files that the command names.
    async fn cover_files(&self) -> Step<Coverage> {
        let Target::Session { session, named, covering, .. } = &self.spec.target else {
            return Ok(Coverage::default());
        };
        let user = &self.spec.user_id;
        let work = session_work(&self.service.workspace_path(user, &self.spec.agent_id), session);
        Ok(self.service.cover(user, self.owner, &work, named, &covering.files).await?)
    }

    /// Denies an exec whose files keep changing: the person would be asked without end.
    fn count_file_changes(&mut self, coverage: &Coverage) -> Step<()> {
        let Target::Session { covering, .. } = &mut self.spec.target else { return Ok(()) };
        if let Some(path) = covering.asked.as_ref().and_then(|asked| asked.changed_in(coverage)) {
            covering.changes += 1;
            if covering.changes > MAX_FILE_CHANGES {
                let message = format!(
                    "{path} changed again after an approval was asked for; the question was void {MAX_FILE_CHANGES} \
                     times for a changed file. Leave the files that the command names unchanged, and submit it again"
                );
                return Err(ExecResult::denied(FILES_CHANGED, message).into());
            }
        }
        covering.asked = Some(coverage.clone());
        Ok(())
    }

    /// Revokes the approvals of this exec if a file that they covered has changed; the exec then
    /// asks a new question. Session files cannot change after this check, because the exec has
    /// exclusive use of the session until it ends.
    pub(crate) async fn check_covered_files(&mut self) -> Step<()> {
        let Target::Session { approved, covering, .. } = &self.spec.target else { return Ok(()) };
        if approved.is_empty() || covering.asked.is_none() {
            return Ok(());
        }
        let now = self.cover_files().await?;
        let Target::Session { approved, covering, .. } = &mut self.spec.target else { return Ok(()) };
        if let Some(path) = covering.asked.as_ref().and_then(|asked| asked.changed_in(&now)) {
            tracing::info!(exec_id = %self.intent.exec_id, path, "a file changed after its approval; a new question is opened");
            approved.clear();
        }
        Ok(())
    }
}

fn policy_denied(denial: Denial) -> Box<ExecResult> {
    ExecResult::denied("POLICY_DENIED", denial.message).into()
}
