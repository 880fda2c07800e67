//! The last authorization before the box starts, with the opened directories and the current list
//! of host paths.
//!
//! If it allows the exec, the policy of the box is on record when it returns. If something is no
//! longer allowed, a person is asked again.

use ringwall_policy::{Ask, Grant, Verdict};
use ringwall_workspace::Section;

use crate::error::causes;
use crate::error::codes::RUNTIME_ERROR;
use crate::exec::lifecycle::{Exec, OpenTarget, Ready};
use crate::exec::outcome::ExecResult;
use crate::exec::spec::{Target, TargetPaths, control};
use crate::time::now;

pub(crate) enum Granted {
    Now(Box<Grant>),
    Asks(Ask),
}

impl Exec {
    /// Decides again with the opened directories and the current path list, and records the policy
    /// if it changed. For code, uses the verdict from when its session was opened; after a
    /// question, it decides anew.
    pub(crate) async fn grant(&mut self, ready: &mut Ready) -> Result<Granted, ExecResult> {
        self.check_covered_files().await?;
        let hidden;
        let places = match (&self.spec.target, &ready.target, ready.files.artifacts()) {
            (Target::Project { access, .. }, _, Some(artifacts)) => TargetPaths::Project {
                inputs: ready.project.inputs().path(),
                work: ready.project.work().path(),
                artifacts: artifacts.path(),
                access: *access,
            },
            (Target::Agent { .. }, OpenTarget::Agent(tree), _) => TargetPaths::Agent {
                files: tree.section(Section::Files).path(),
                skills: tree.section(Section::Skills).path(),
            },
            (Target::Session { named, approved, .. }, OpenTarget::Session(session), _) => {
                let reach = self.service.reach(&self.spec.user_id, named, approved).await;
                let control = reach.map_err(|error| ExecResult::failed(error.code(), error.to_string()))?;
                hidden = self.service.hidden_now();
                TargetPaths::Session { work: session.work().path(), control, hidden: &hidden }
            }
            (Target::Code(_), OpenTarget::Session(session), _) => TargetPaths::code(session.work().path()),
            (Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } | Target::Code(_), ..) => {
                return Err(ExecResult::failed(RUNTIME_ERROR, "the files that it works on are not open"));
            }
        };
        let decided = match ready.verdict.take() {
            Some(verdict) => Ok(verdict),
            None => self.spec.decide(&places, self.owner),
        };
        match decided {
            Ok(Verdict::Allow(grant)) => {
                self.note_policy(&grant).await?;
                Ok(Granted::Now(Box::new(grant)))
            }
            Ok(Verdict::Ask(ask)) => Ok(Granted::Asks(ask)),
            Ok(Verdict::Deny(_)) | Err(_) => {
                tracing::error!(exec_id = %self.intent.exec_id, "the directories of an exec are not allowed in a box");
                Err(ExecResult::failed(RUNTIME_ERROR, "its directories cannot be shown to a box"))
            }
        }
    }

    /// Records the policy if it differs from the one in the intent, because a person allowed
    /// something or a list changed.
    async fn note_policy(&mut self, grant: &Grant) -> Result<(), ExecResult> {
        // Only a question or the path list of a session can change the policy.
        if self.questions == 0 && !matches!(self.spec.target, Target::Session { .. }) {
            return Ok(());
        }
        let snapshot = self.spec.snapshot(grant.effective(), control(grant));
        if snapshot == self.intent.policy_snapshot {
            return Ok(());
        }
        let recorded = self.service.inner.store.record_policy(&self.intent, &snapshot, now()).await;
        recorded.map_err(|error| {
            tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record a policy");
            ExecResult::failed(RUNTIME_ERROR, "its policy could not be recorded, so it was not run")
        })?;
        self.intent.policy_snapshot = snapshot;
        Ok(())
    }
}
