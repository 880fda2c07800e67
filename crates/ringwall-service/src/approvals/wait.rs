//! Waits for the approval of an exec, because its command names a path that is not allowed or its
//! code has a high risk (`code/confirm`), then decides the exec again.
//!
//! The exec waits without holding a slot or a lock. Cancelling it cancels its question. An approval
//! applies to this exec, to exactly the blocked paths and to the current content of the files that
//! the command names (`covered_files`). After the answer the exec is decided again with the current
//! settings and path list: it is allowed, denied, or asks a new question.

use ringwall_policy::{Ask, Grant, NamedPath, Net, Rights, Verdict};
use ringwall_record::{Start, Status};

use super::covered_files::{Coverage, MAX_FILE_CHANGES};
use super::question::{Decision, Waiting};
use crate::error::causes;
use crate::error::codes::RUNTIME_ERROR;
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::ExecResult;
use crate::exec::queue::Admission;
use crate::exec::registry::{Cancellation, ExecState};
use crate::exec::spec::{Approved, Target, TargetPaths};

pub(crate) const DENIED_BY_PERSON: &str = "DENIED_BY_PERSON";
pub(crate) const APPROVAL_EXPIRED: &str = "APPROVAL_EXPIRED";
const FILES_CHANGED: &str = "FILES_CHANGED";
/// Maximum number of questions of one exec. Each one after the first follows a change of the
/// policy, the path list or a file. The limit stops an exec from asking forever.
const MAX_QUESTIONS: u32 = 16;

impl Exec {
    /// Opens a question. When this returns, it can be answered.
    pub(crate) async fn put_question(&mut self, ask: &Ask) -> Result<Waiting, ExecResult> {
        self.questions += 1;
        if self.questions > MAX_QUESTIONS {
            let message = "what it may do kept changing while it waited for a person; send it again";
            return Err(ExecResult::denied("POLICY_CHANGED", message));
        }
        if let Target::Code(code) = &self.spec.target {
            return self.put_code_question(code, ask).await;
        }
        let coverage = self.cover_files().await?;
        self.count_file_changes(&coverage)?;
        let question = self.path_question(ask, &coverage)?;
        let waiting = self.service.ask(question).await.map_err(|error| {
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(&error), "nobody could be asked");
            ExecResult::failed(error.code(), error.to_string())
        })?;
        tracing::info!(exec_id = %self.intent.exec_id, approval = %waiting.id(), "an exec waits for a person");
        Ok(waiting)
    }

    /// Waits for the answer and decides the exec again until it is allowed. Returns its place in
    /// the queue.
    pub(crate) async fn await_approval(
        &mut self,
        mut ask: Ask,
        mut asked: Result<Waiting, ExecResult>,
    ) -> Result<Admission, ExecResult> {
        loop {
            let mut waiting = asked?;
            let decision = tokio::select! {
                biased;
                by = self.running.cancelled() => {
                    // Cancel the question before the exec ends, so that no ended exec has an open
                    // question.
                    waiting.take_back().await;
                    return Err(ExecResult::cancelled(by));
                }
                decision = waiting.decision() => decision,
            };
            match decision {
                // `judge` below reads the remembered paths from the list.
                Decision::Approved { remembered: true, .. } | Decision::Void => {}
                Decision::Approved { by, modified: Some(code), .. } => {
                    return Err(self.replace_code(code, waiting.id(), &by).await);
                }
                Decision::Approved { remembered: false, rights, .. } => self.approve(&ask.blocked, rights),
                Decision::Denied { reason, .. } => {
                    let words = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    return Err(ExecResult::denied(DENIED_BY_PERSON, format!("a person has denied it{words}")));
                }
                Decision::Expired => {
                    return Err(ExecResult::denied(APPROVAL_EXPIRED, "nobody answered in time whether it may run"));
                }
                Decision::Cancelled => return Err(ExecResult::cancelled(Cancellation::ServerStops)),
            }
            // Earlier approvals of this exec covered the old content of the files.
            self.check_covered_files().await?;
            match self.judge().await? {
                None => break,
                Some(next) => {
                    asked = self.put_question(&next).await;
                    ask = next;
                }
            }
        }
        let admission = self.service.inner.turns.enter(&self.spec.user_id);
        admission.ok_or_else(|| ExecResult::failed("QUEUE_FULL", "too many execs are waiting"))
    }

    /// Returns a started exec to waiting, if something it uses is no longer allowed before its box
    /// is created.
    pub(crate) async fn ask_again(&mut self, ask: Ask) -> Result<Admission, ExecResult> {
        if let Err(error) = self.service.inner.store.return_to_approval(&self.intent.exec_id).await {
            tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record that an exec waits");
            return Err(ExecResult::failed(RUNTIME_ERROR, "that it waits could not be recorded, so it was not run"));
        }
        self.intent.start = Start::AwaitingApproval;
        self.running.set_state(ExecState::At(Status::AwaitingApproval));
        let asked = self.put_question(&ask).await;
        self.await_approval(ask, asked).await
    }

    /// Decides again with the current settings and path list. Returns what must still be approved.
    async fn judge(&mut self) -> Result<Option<Ask>, ExecResult> {
        if matches!(self.spec.target, Target::Code(_)) {
            return self.judge_code().await;
        }
        let failed = |error: crate::error::Error| ExecResult::failed(error.code(), error.to_string());
        self.spec.layers.operator = self.service.settings_now().operator.clone();
        let Target::Session { session, named, approved, .. } = &self.spec.target else { return Ok(None) };
        let work = self.work_of(session);
        let control = self.service.reach(&self.spec.user_id, named, approved).await.map_err(failed)?;
        let places = TargetPaths::Session { work: &work, control, hidden: &self.service.hidden_now() };
        let verdict = self.spec.decide(&places, self.owner).map_err(failed)?;
        self.apply_verdict(verdict)
    }

    /// Applies a verdict to the waiting exec. When allowed, it runs with the limits and network of
    /// this verdict.
    pub(crate) fn apply_verdict(&mut self, verdict: Verdict) -> Result<Option<Ask>, ExecResult> {
        match verdict {
            Verdict::Allow(grant) => self.adopt(&grant).map(|()| None),
            Verdict::Ask(ask) => Ok(Some(ask)),
            Verdict::Deny(denial) => Err(ExecResult::denied("POLICY_DENIED", denial.message)),
        }
    }

    fn adopt(&mut self, grant: &Grant) -> Result<(), ExecResult> {
        let effective = grant.effective();
        if effective.net != Net::None && !self.spec.can_reach_hosts() {
            let denial = ringwall_policy::Denial::no_network(self.spec.backend.key());
            return Err(ExecResult::denied("POLICY_DENIED", denial.message));
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
    async fn cover_files(&self) -> Result<Coverage, ExecResult> {
        let Target::Session { session, named, covering, .. } = &self.spec.target else {
            return Ok(Coverage::default());
        };
        let (user, work) = (&self.spec.user_id, self.work_of(session));
        let covered = self.service.cover(user, self.owner, &work, named, &covering.files).await;
        covered.map_err(|error| ExecResult::failed(error.code(), error.to_string()))
    }

    /// Denies an exec whose files keep changing: the person would be asked without end.
    fn count_file_changes(&mut self, coverage: &Coverage) -> Result<(), ExecResult> {
        let Target::Session { covering, .. } = &mut self.spec.target else { return Ok(()) };
        if let Some(path) = covering.asked.as_ref().and_then(|asked| asked.changed_in(coverage)) {
            covering.changes += 1;
            if covering.changes > MAX_FILE_CHANGES {
                let message = format!(
                    "{path} changed again after a person was asked; the question was void {MAX_FILE_CHANGES} times for a \
                     changed file. Leave the files that the command names as they are, and send it again"
                );
                return Err(ExecResult::denied(FILES_CHANGED, message));
            }
        }
        covering.asked = Some(coverage.clone());
        Ok(())
    }

    /// Revokes the approvals of this exec if a file that they covered has changed; the exec then
    /// asks a new question. Session files cannot change after this check, because the exec has
    /// exclusive use of the session until it ends.
    pub(crate) async fn check_covered_files(&mut self) -> Result<(), ExecResult> {
        let Target::Session { approved, covering, .. } = &self.spec.target else { return Ok(()) };
        if approved.is_empty() || covering.asked.is_none() {
            return Ok(());
        }
        let now = self.cover_files().await?;
        let Target::Session { approved, covering, .. } = &mut self.spec.target else { return Ok(()) };
        if let Some(path) = covering.asked.as_ref().and_then(|asked| asked.changed_in(&now)) {
            tracing::info!(exec_id = %self.intent.exec_id, path, "a file changed after its approval; asking anew");
            approved.clear();
        }
        Ok(())
    }
}
