//! The wait of an exec that a person has to allow: one that names a path which nobody has allowed, or code that deserves care
//! (`code/confirm`). The answer goes back into the decision.
//!
//! It waits without a slot and without a lock; whoever cancels it takes the question back. What a person allowed counts for
//! this exec and for exactly the paths that were blocked. Then it is decided again with the list as it is by then: that may
//! allow, deny, or ask anew.

use std::sync::Arc;

use policy::{Ask, HostPath, Named, Rights, Verdict};
use record::{ApprovalKind, Digest, RiskLevel};
use serde_json::json;

use crate::approvals::{Decision, Question, StillStands, Waiting};
use crate::error::causes;
use crate::live::Cancellation;
use crate::order::{Ground, Places};
use crate::outcome::{RUNTIME_ERROR, Told};
use crate::queue::Admission;
use crate::run_exec::Exec;

use super::reach::{Approved, requested};

pub(crate) const DENIED_BY_PERSON: &str = "DENIED_BY_PERSON";
pub(crate) const APPROVAL_EXPIRED: &str = "APPROVAL_EXPIRED";

impl Exec {
    /// Asks a person. When this returns, they can answer.
    pub(crate) async fn put_question(&self, ask: &Ask) -> Result<Waiting, Told> {
        if let Ground::Code(code) = &self.order.ground {
            return self.put_code_question(code, ask).await;
        }
        let question = self.question(ask)?;
        let waiting = self.service.ask(question).await.map_err(|error| {
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(&error), "nobody could be asked");
            Told::failed(error.code(), error.to_string())
        })?;
        tracing::info!(exec_id = %self.intent.exec_id, approval = %waiting.id(), "an exec waits for a person");
        Ok(waiting)
    }

    /// Comes back with a place in the line when everything that it names is allowed.
    pub(crate) async fn await_approval(
        &mut self,
        mut ask: Ask,
        mut asked: Result<Waiting, Told>,
    ) -> Result<Admission, Told> {
        loop {
            let mut waiting = asked?;
            let decision = tokio::select! {
                biased;
                by = self.live.cancelled() => return Err(Told::cancelled(by)),
                decision = waiting.decision() => decision,
            };
            match decision {
                // What is remembered is in the list by now.
                Decision::Approved { remembered: true, .. } | Decision::Void => {}
                Decision::Approved { by, modified: Some(code), .. } => {
                    return Err(self.replace_code(code, waiting.id(), &by).await);
                }
                Decision::Approved { remembered: false, rights, .. } => self.approve(&ask.blocked, rights),
                Decision::Denied { reason, .. } => {
                    let words = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    return Err(Told::denied(DENIED_BY_PERSON, format!("a person has denied it{words}")));
                }
                Decision::Expired => {
                    return Err(Told::denied(APPROVAL_EXPIRED, "nobody answered in time whether it may run"));
                }
                Decision::Cancelled => return Err(Told::cancelled(Cancellation::ServerStops)),
            }
            match self.judge().await? {
                None => break,
                Some(next) => {
                    asked = self.put_question(&next).await;
                    ask = next;
                }
            }
        }
        let admission = self.service.inner.turns.enter(&self.order.user_id);
        admission.ok_or_else(|| Told::failed("QUEUE_FULL", "too many execs are waiting"))
    }

    /// What is still to be asked, with the list as it is now.
    async fn judge(&mut self) -> Result<Option<Ask>, Told> {
        if matches!(self.order.ground, Ground::Code(_)) {
            return self.judge_code().await;
        }
        let failed = |error: crate::error::Error| Told::failed(error.code(), error.to_string());
        let Ground::Session { session, named, approved, .. } = &self.order.ground else { return Ok(None) };
        let workspace = self.service.inner.workspaces_path.join(self.order.user_id.as_str());
        let work = workspace.join(self.order.agent_id.as_str()).join("sessions").join(session.as_str()).join("work");
        let control = self.service.reach(&self.order.user_id, named, approved).await.map_err(failed)?;
        let places = Places::Session { work: &work, control, hidden: &self.service.hidden_now() };
        match self.order.decide(&places, self.owner).map_err(failed)? {
            Verdict::Allow(_) => Ok(None),
            Verdict::Ask(ask) => Ok(Some(ask)),
            Verdict::Deny(denial) => Err(Told::denied("POLICY_DENIED", denial.message)),
        }
    }

    fn approve(&mut self, blocked: &[Named], rights: Rights) {
        match &mut self.order.ground {
            Ground::Session { approved, .. } => {
                approved.extend(blocked.iter().map(|named| Approved { path: named.real.clone(), rights }));
            }
            Ground::Code(code) => code.consent(),
            Ground::Project { .. } | Ground::Agent { .. } => {}
        }
    }

    fn question(&self, ask: &Ask) -> Result<Question, Told> {
        let Ground::Session { session, named, approved, .. } = &self.order.ground else {
            return Err(Told::failed(RUNTIME_ERROR, "only a session's command asks for paths"));
        };
        let mut requested_paths: Vec<HostPath> = Vec::new();
        let mut blocked_paths: Vec<HostPath> = Vec::new();
        for Named { path, real } in &ask.blocked {
            push_new(&mut requested_paths, requested(real));
            push_new(&mut blocked_paths, path.clone());
            push_new(&mut blocked_paths, real.clone());
        }
        let is_sensitive = requested_paths.iter().chain(&blocked_paths).any(|path| path.warning().is_some());
        let action = json!({
            "words": self.order.words, "cwd": self.order.cwd, "env_keys": self.intent.env_keys,
            "paths": blocked_paths, "policy": self.intent.policy_snapshot["version"],
        });
        Ok(Question {
            kind: ApprovalKind::Path,
            exec_id: self.intent.exec_id.clone(),
            user_id: self.order.user_id.clone(),
            agent_id: self.order.agent_id.clone(),
            session_id: session.to_string(),
            command: self.order.words.last().cloned().unwrap_or_default(),
            code: None,
            requested_paths: requested_paths.iter().map(HostPath::to_string).collect(),
            blocked_paths: blocked_paths.iter().map(HostPath::to_string).collect(),
            risk_level: if is_sensitive { RiskLevel::High } else { RiskLevel::Medium },
            patterns: Vec::new(),
            digest: Digest::of(action.to_string().as_bytes()),
            asked_by: self.order.caller.clone(),
            still_stands: self.still_stands(named, approved, ask),
        })
    }

    /// Whether the same would be asked with the list as it is then.
    fn still_stands(&self, named: &[HostPath], approved: &[Approved], ask: &Ask) -> StillStands {
        let (service, user) = (self.service.clone(), self.order.user_id.clone());
        let parts = Arc::new((named.to_vec(), approved.to_vec(), ask.blocked.clone()));
        Arc::new(move || {
            let (service, user, parts) = (service.clone(), user.clone(), parts.clone());
            Box::pin(async move {
                let (named, approved, blocked) = parts.as_ref();
                let control = service.reach(&user, named, approved).await;
                // What cannot be read now may have changed.
                control.is_ok_and(|control| control.blocked() == *blocked)
            })
        })
    }
}

fn push_new(paths: &mut Vec<HostPath>, path: HostPath) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}
