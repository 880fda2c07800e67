//! Processes of a session box that run while no request waits for them. A client reads the output
//! from any byte offset, writes to stdin and sends signals. A process is an exec, and its id is the
//! exec's id.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwall_executor::BoxControl as _;
use ringwall_ids::ExecId;
use ringwall_record::{ExecSummary, SessionKey, Status};
use ringwall_workspace::Stream;
use rustix::process::Signal;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::artifacts::OutputPart;
use crate::exec::code::{CodeBegun, CodeRequest, Input};
use crate::exec::outcome::replacement;
use crate::exec::registry::{Lifetime, RunningExec};
use crate::exec::spec::ExecSpec;
use crate::exec::view::ExecView;
use crate::service::{Service, no_exec};
use crate::session_ref::SessionAddress;

/// Maximum bytes of one stream per request.
const MAX_OUTPUT: u64 = 1 << 20;
/// For a write to a process that does not read its stdin.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The output of a process from the requested offsets.
#[derive(Debug)]
pub struct ProcessOutput {
    /// The exec that the output belongs to, if a person edited the code and it replaced the
    /// requested one.
    pub goes_on_as: Option<ExecId>,
    pub status: Status,
    pub exit_code: Option<i32>,
    pub stdout: OutputPart,
    pub stderr: OutputPart,
}

/// State of stdin after a write: still open, or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterInput {
    More,
    End,
}

impl Service {
    /// Starts a process and returns when its intent is recorded.
    pub async fn begin_process(&self, by: &Principal, request: CodeRequest) -> Result<CodeBegun, Error> {
        self.begin_with_input(by, request, Input::Open).await
    }

    pub async fn process_output(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
        from: (u64, u64),
    ) -> Result<ProcessOutput, Error> {
        let session = address.resolve(by)?;
        let view = self.latest_process(by, &session, exec_id).await?;
        let latest = &view.summary.exec_id;
        let stdout = self.output(by, latest, Stream::Stdout, from.0, MAX_OUTPUT).await?;
        let stderr = self.output(by, latest, Stream::Stderr, from.1, MAX_OUTPUT).await?;
        Ok(ProcessOutput {
            goes_on_as: (latest != exec_id).then(|| latest.clone()),
            status: view.summary.status,
            exit_code: view.summary.exit_code,
            stdout,
            stderr,
        })
    }

    /// The process with this id, or the last one of the chain of execs that replaced it.
    async fn latest_process(&self, by: &Principal, session: &SessionKey, exec_id: &ExecId) -> Result<ExecView, Error> {
        let mut view = self.exec(by, exec_id).await?;
        let ExecSummary { user_id, agent_id, conversation_id, .. } = &view.summary;
        let is_of_session = (user_id, agent_id) == (&session.user_id, &session.agent_id)
            && conversation_id.as_deref() == Some(session.session_id.as_str());
        if !is_of_session {
            return Err(no_exec(exec_id));
        }
        while let Some(next) = view.error_reason.as_ref().and_then(replacement) {
            view = self.exec(by, &next).await?;
        }
        Ok(view)
    }

    /// Writes to the stdin of a process and returns when all bytes are accepted. Fails after 10 s.
    pub async fn write_to_process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
        bytes: &[u8],
        after: AfterInput,
    ) -> Result<(), Error> {
        let running = self.process(by, address, exec_id).await?;
        let handle = running.process().ok_or_else(|| no_process(exec_id))?;
        let mut stdin = handle.stdin.lock().await;
        let closed = || Error::Conflict { message: format!("the input of {exec_id} is closed") };
        let input = stdin.as_mut().ok_or_else(closed)?;
        match tokio::time::timeout(WRITE_TIMEOUT, input.write(bytes)).await {
            Ok(written) => written.map_err(|_| closed())?,
            Err(_) => {
                let message =
                    format!("{exec_id} did not read all of its input within 10 s; a part may have been written");
                return Err(Error::Conflict { message });
            }
        }
        // Dropping the input closes it.
        stdin.take_if(|_| after == AfterInput::End);
        Ok(())
    }

    /// Sends a signal to the process group of a process.
    pub async fn signal_process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
        number: i32,
    ) -> Result<(), Error> {
        let running = self.process(by, address, exec_id).await?;
        let signal =
            Signal::from_named_raw(number).ok_or_else(|| Error::invalid(format!("{number} is not a signal number")))?;
        running.process().ok_or_else(|| no_process(exec_id))?.handle.signal(signal);
        Ok(())
    }

    async fn process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
    ) -> Result<Arc<RunningExec>, Error> {
        let session = address.resolve(by)?;
        let find = |exec_id: &ExecId| self.find_running(by, exec_id).filter(|running| running.is_in(&session));
        if let Some(running) = find(exec_id) {
            return Ok(running);
        }
        let latest = self.latest_process(by, &session, exec_id).await?;
        find(&latest.summary.exec_id).ok_or_else(|| no_exec(exec_id))
    }

    /// Limits how many sessions of one user have processes or terminals, since these keep their
    /// session box alive. The limit is `sandbox.max_concurrent_execs_per_user`.
    pub(crate) fn check_lasting_execs(&self, spec: &ExecSpec) -> Result<(), Error> {
        let (Lifetime::UntilStopped, Some(own)) = (spec.lifetime(), spec.session_key()) else { return Ok(()) };
        let max_sessions = self.settings_now().sandbox.max_concurrent_execs_per_user.get() as usize;
        let execs = self.inner.registry.all();
        let others: BTreeSet<_> = execs
            .iter()
            .filter(|running| running.lifetime() == Lifetime::UntilStopped && running.user_id == spec.user_id)
            .filter_map(|running| running.session.as_ref())
            .filter(|session| **session != own)
            .collect();
        if others.len() < max_sessions {
            return Ok(());
        }
        let message = format!(
            "processes and terminals run in {} other sessions of this user, and the limit is {max_sessions}; end some, \
             or ask an operator to raise sandbox.max_concurrent_execs_per_user",
            others.len()
        );
        Err(Error::PoolFull { message })
    }
}

fn no_process(exec_id: &ExecId) -> Error {
    Error::Conflict { message: format!("{exec_id} has not started, or is not a process of a session box") }
}
