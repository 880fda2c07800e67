//! Runs a session's command: a shell line on the session's files and the allowed paths of the host.
//!
//! The policy decides on the paths that the line names before anything runs; a path that the parser
//! misses is not in the box. Otherwise it is an ordinary exec. A command that fails is a result,
//! not an error.

use std::path::PathBuf;

use ringwall_ids::{ExecId, ProjectId, SessionId};
use ringwall_policy::{CommandLine, Field, HostPath, Layer, LayerName, NamedFile, PathStyle, normalise, profile};
use ringwall_record::{Reason, Status};
use ringwall_workspace::Stream;
use serde::Serialize;
use utoipa::ToSchema;

use crate::approvals::Covering;
use crate::auth::principal::Principal;
use crate::blocking;
use crate::boxes::{HOME, WORKSPACE};
use crate::error::Error;
use crate::exec::artifacts::SHOWN;
use crate::exec::spec::{Backend, ExecSpec, Needs, PROJECT, Target};
use crate::exec::submit::Submitted;
use crate::service::Service;
use crate::settings::layers;

/// A requested command.
#[derive(Debug, Clone)]
pub struct SessionCommand {
    pub session_id: String,
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    pub command: String,
    pub cwd: Option<String>,
    pub timeout_ms: Option<u64>,
}

/// The state of a command, or how it ended and what it printed
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SessionExecuted {
    pub exec_id: ExecId,
    pub status: Status,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_reason: Option<Reason>,
}

impl Service {
    /// Submits the command and returns when it is recorded; it runs, is queued or waits for
    /// approval.
    pub async fn begin_session_command(
        &self,
        by: &Principal,
        command: SessionCommand,
    ) -> Result<SessionExecuted, Error> {
        let settings = self.settings_now();
        let spec = blocking::in_place(|| read(by, command, settings.operator.clone())).await?;
        let Submitted { exec_id, status, .. } = self.admit(spec).await?;
        let (stdout, stderr) = Default::default();
        Ok(SessionExecuted { exec_id, status, stdout, stderr, exit_code: None, error_reason: None })
    }

    /// Runs it and waits for its end. It continues if the caller disconnects.
    pub async fn run_session_command(&self, by: &Principal, command: SessionCommand) -> Result<SessionExecuted, Error> {
        let begun = self.begin_session_command(by, command).await?;
        let view = self.finished(by, &begun.exec_id).await?;
        let mut result = SessionExecuted {
            status: view.summary.status,
            exit_code: view.summary.exit_code,
            error_reason: view.error_reason,
            ..begun
        };
        // A command that never ran has no output.
        if view.summary.started_at.is_some() && view.protections.is_some() {
            result.stdout = self.output(by, &result.exec_id, Stream::Stdout, 0, SHOWN).await?.into_text();
            result.stderr = self.output(by, &result.exec_id, Stream::Stderr, 0, SHOWN).await?.into_text();
        }
        Ok(result)
    }
}

fn read(by: &Principal, command: SessionCommand, operator: Layer) -> Result<ExecSpec, Error> {
    let (user_id, agent_id) = by.workspace(command.user_id.as_deref(), command.agent_id.as_deref())?;
    let session: SessionId = command.session_id.parse()?;
    let cwd = normalise(command.cwd.as_deref().unwrap_or(WORKSPACE), WORKSPACE, Some(HOME));
    let cwd = cwd.map_err(|error| Error::invalid(format!("cwd: {error}")))?;
    if cwd.style() == PathStyle::Windows {
        return Err(Error::invalid("cwd: a box has no drives; use an absolute path such as /workspace"));
    }
    let line = CommandLine::read(&command.command)?;
    // The working directory counts as the first named path.
    let mut named = vec![cwd.clone()];
    let files = line.files(cwd.as_str(), HOME)?;
    for NamedFile { path, .. } in &files.known {
        if !named.contains(path) {
            named.push(path.clone());
        }
    }
    let mut narrowing = Vec::new();
    if let Some(timeout_ms) = command.timeout_ms {
        let mut layer = Layer::new(LayerName::Request);
        layer.limits.insert(Field::TimeoutMs, Field::TimeoutMs.check(timeout_ms)?);
        narrowing.push(layer);
    }
    let argv = Ok(crate::exec::line::argv(&command.command));
    Ok(ExecSpec {
        author: by.author(),
        idempotency: None,
        user_id,
        agent_id,
        project_id: PROJECT.parse::<ProjectId>()?,
        task_id: None,
        conversation_id: Some(session.to_string()),
        skill_id: None,
        backend: Backend::Native,
        image: None,
        argv,
        words: crate::exec::line::words(command.command),
        cwd: PathBuf::from(HostPath::as_str(&cwd)),
        env: Default::default(),
        layers: layers(profile::FILES, operator, narrowing),
        target: Target::Session {
            session,
            named,
            approved: Vec::new(),
            covering: Box::new(Covering { files, ..Covering::default() }),
            needs: Needs::of(line.wants_network()),
        },
    })
}
