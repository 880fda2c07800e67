//! Runs a shell line, or a program in a skill or in `files`, on an agent's files.
//!
//! The command is checked and becomes an ordinary exec: recorded, queued, subject to approval. The
//! caller waits for its end and gets the answer in the contract's words. No lock is held meanwhile.

use std::ffi::OsString;
use std::path::PathBuf;

use ringwall_ids::{ExecId, ProjectId};
use ringwall_policy::{ArgvCommand, CommandLine, CommandLists, Denial, profile};
use ringwall_record::Status;
use ringwall_workspace::{AgentPath, Stream};

use crate::auth::principal::Principal;
use crate::blocking;
use crate::boxes::WORKSPACE;
use crate::error::codes::{DISK_QUOTA, OOM};
use crate::error::{Error, ProblemKind};
use crate::exec::artifacts::SHOWN;
use crate::exec::spec::{Backend, ExecSpec, Needs, PROJECT, Target};
use crate::exec::submit::Submitted;
use crate::exec::view::ExecView;
use crate::service::Service;
use crate::settings::{Settings, layers};

use super::files::require_skill;
use super::open::{Address, Agent};

/// A command of an agent route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Execution {
    /// A shell line in the workspace.
    Line(String),
    /// A program in a skill.
    Skill { skill: String, command: String, arguments: Vec<String> },
    /// A program in `files`.
    Sandbox { command: String, arguments: Vec<String> },
}

/// Output as text, and how the exec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
}

impl Service {
    /// Submits it and returns when the intent is recorded; the exec runs or is queued.
    pub async fn begin_execution(
        &self,
        by: &Principal,
        address: &Address,
        what: Execution,
    ) -> Result<Submitted, Error> {
        let agent = self.open_agent(by, address).await?;
        let settings = self.settings_now();
        let spec = blocking::in_place(|| spec(by, &agent, what, &settings)).await?;
        self.admit(spec).await
    }

    /// Runs it and waits for its end. It continues if the caller disconnects.
    pub async fn execute(&self, by: &Principal, address: &Address, what: Execution) -> Result<Executed, Error> {
        let is_line = matches!(what, Execution::Line(_));
        let submitted = self.begin_execution(by, address, what).await.map_err(|error| match error {
            Error::QueueFull => {
                Error::agent(ProblemKind::Busy, "Server busy: Too many executions are waiting. Please try again.")
            }
            other => other,
        })?;
        let view = self.finished(by, &submitted.exec_id).await?;
        match view.summary.status {
            Status::Timeout => return Err(timed_out(&view, is_line)),
            Status::Cancelled if is_stopped(&view) => return Err(Error::Stopping),
            Status::Cancelled => return Err(Error::agent(ProblemKind::Mismatch, "Execution was cancelled.")),
            _ => {}
        }
        if let Some(failure) = view.failure() {
            return Err(failure);
        }
        self.tell(by, &submitted.exec_id, &view).await
    }

    async fn tell(&self, by: &Principal, exec_id: &ExecId, view: &ExecView) -> Result<Executed, Error> {
        let Some(exit_code) = view.summary.exit_code else {
            return Err(Error::Runtime { message: format!("the exec {exec_id} ended without an exit code") });
        };
        let stdout = self.output(by, exec_id, Stream::Stdout, 0, SHOWN).await?;
        let stderr = self.output(by, exec_id, Stream::Stderr, 0, SHOWN).await?;
        let (stdout, mut stderr) = (stdout.into_text(), stderr.into_text());
        // The program cannot report why it did not start or was ended, so the server adds it.
        if let Some(reason) = &view.error_reason {
            match reason.code.as_str() {
                "COMMAND_NOT_FOUND" | "COMMAND_NOT_EXECUTABLE" => stderr = format!("{}\n", reason.message),
                DISK_QUOTA | OOM => stderr.push_str(&format!("\nringwall: {}\n", reason.message)),
                _ => {}
            }
        }
        Ok(Executed { stdout, stderr, exit_code })
    }
}

/// Parses and checks the request. A denial becomes part of the spec, so that it is recorded.
fn spec(by: &Principal, agent: &Agent, what: Execution, settings: &Settings) -> Result<ExecSpec, Error> {
    let lists = &settings.commands;
    match what {
        Execution::Line(line) => {
            let read = CommandLine::read(&line)?;
            let checked = read.check(lists);
            let needs = Needs::of(read.wants_network());
            let argv = checked.map(|()| crate::exec::line::argv(&line));
            plain(by, agent, crate::exec::line::words(line), argv, needs, WORKSPACE.into(), settings)
        }
        Execution::Skill { skill, command, arguments } => {
            let directory = AgentPath::skill(&skill)?;
            require_skill(agent, &directory)?;
            let mut spec = run(by, agent, &command, arguments, &format!("skills/{skill}"), lists, settings)?;
            spec.skill_id = Some(skill);
            Ok(spec)
        }
        Execution::Sandbox { command, arguments } => run(by, agent, &command, arguments, "files", lists, settings),
    }
}

/// A program that runs in a directory of the workspace, without a shell.
fn run(
    by: &Principal,
    agent: &Agent,
    command: &str,
    arguments: Vec<String>,
    directory: &str,
    lists: &CommandLists,
    settings: &Settings,
) -> Result<ExecSpec, Error> {
    let words: Vec<String> = std::iter::once(command.to_owned()).chain(arguments.iter().cloned()).collect();
    let read = ArgvCommand::read(command, arguments)?;
    let cwd = PathBuf::from(WORKSPACE).join(directory);
    let argv = read.check(directory, lists).map(|()| words.iter().map(OsString::from).collect());
    plain(by, agent, words, argv, Needs::of(read.wants_network()), cwd, settings)
}

fn plain(
    by: &Principal,
    agent: &Agent,
    words: Vec<String>,
    argv: Result<Vec<OsString>, Denial>,
    needs: Needs,
    cwd: PathBuf,
    settings: &Settings,
) -> Result<ExecSpec, Error> {
    Ok(ExecSpec {
        author: by.author(),
        idempotency: None,
        user_id: agent.user.clone(),
        agent_id: agent.agent.clone(),
        project_id: PROJECT.parse::<ProjectId>()?,
        task_id: None,
        conversation_id: None,
        skill_id: None,
        backend: Backend::Native,
        image: None,
        argv,
        words,
        cwd,
        env: Default::default(),
        layers: layers(profile::FILES, settings.operator.clone(), Vec::new()),
        target: Target::Agent { needs },
    })
}

fn is_stopped(view: &ExecView) -> bool {
    view.error_reason.as_ref().is_some_and(|reason| reason.code == "SERVER_STOPPED")
}

/// The message of the route's contract.
fn timed_out(view: &ExecView, is_line: bool) -> Error {
    let limit = view.policy_snapshot["limits"]["timeout_ms"].as_u64().unwrap_or(profile::FILES.timeout_ms);
    Error::agent(ProblemKind::Timeout, time_is_up(limit / 1000, is_line))
}

fn time_is_up(seconds: u64, is_line: bool) -> String {
    match (is_line, seconds % 60) {
        (true, _) => format!("Execution Timeout: Process killed after {seconds} seconds."),
        (false, 0) => format!("Execution timed out after {} minutes.", seconds / 60),
        (false, _) => format!("Execution timed out after {seconds} seconds."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limit_message_follows_contract_of_route() {
        let default = profile::FILES.timeout_ms / 1000;
        assert_eq!(time_is_up(default, true), "Execution Timeout: Process killed after 300 seconds.");
        assert_eq!(time_is_up(default, false), "Execution timed out after 5 minutes.");
        // With the operator's setting.
        assert_eq!(time_is_up(90, true), "Execution Timeout: Process killed after 90 seconds.");
        assert_eq!(time_is_up(90, false), "Execution timed out after 90 seconds.");
    }
}
