//! Processes of a session box that run while no request waits for them. A client reads the output
//! from any byte offset, writes to stdin and sends signals. A process is an exec, and its id is the
//! exec's id.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringwall_executor::BoxControl as _;
use ringwall_ids::ExecId;
use ringwall_record::{ExecSummary, Status};
use ringwall_workspace::Stream;
use rustix::process::Signal;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::artifacts::OutputPart;
use crate::exec::code::{CodeRequest, Input};
use crate::exec::registry::{Lifetime, RunningExec};
use crate::exec::spec::ExecSpec;
use crate::exec::view::ExecView;
use crate::service::{Service, no_exec};
use crate::session::code::{CodeBegun, goes_on_as};
use crate::session_ref::{SessionAddress, SessionRef};

/// Bytes of one stream per request.
const MAX_COUNT: u64 = 1 << 20;
/// Timeout for a write to a process that does not read its stdin.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

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
        let place = SessionRef::read(by, address)?;
        let view = self.latest_process(by, &place, exec_id).await?;
        let now = &view.summary.exec_id;
        let stdout = self.output(by, now, Stream::Stdout, from.0, MAX_COUNT).await?;
        let stderr = self.output(by, now, Stream::Stderr, from.1, MAX_COUNT).await?;
        Ok(ProcessOutput {
            goes_on_as: (now != exec_id).then(|| now.clone()),
            status: view.summary.status,
            exit_code: view.summary.exit_code,
            stdout,
            stderr,
        })
    }

    /// The process with this id, or the last one of the chain of execs that replaced it.
    async fn latest_process(&self, by: &Principal, place: &SessionRef, exec_id: &ExecId) -> Result<ExecView, Error> {
        let mut view = self.exec(by, exec_id).await?;
        let is_its_own = |summary: &ExecSummary| {
            (&summary.user_id, &summary.agent_id) == (&place.name.user_id, &place.name.agent_id)
                && summary.conversation_id.as_deref() == Some(place.id.as_str())
        };
        if !is_its_own(&view.summary) {
            return Err(no_exec(exec_id));
        }
        while let Some(next) = view.error_reason.as_ref().and_then(goes_on_as) {
            view = self.exec(by, &next).await?;
        }
        Ok(view)
    }

    /// Writes to the stdin of a process and returns when all bytes are accepted, or fails after 10
    /// s.
    pub async fn write_to_process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
        bytes: &[u8],
        after: AfterInput,
    ) -> Result<(), Error> {
        let running = self.process(by, address, exec_id).await?;
        let handle = running.process().ok_or_else(|| not_reached(exec_id))?;
        let mut stdin = handle.stdin.lock().await;
        let closed = || Error::Conflict { message: format!("the input of {exec_id} is closed") };
        let input = stdin.as_mut().ok_or_else(closed)?;
        match tokio::time::timeout(TAKEN_WITHIN, input.write(bytes)).await {
            Ok(written) => written.map_err(|_| closed())?,
            Err(_) => {
                let message =
                    format!("{exec_id} does not read what is written to it; a part of it may have been taken");
                return Err(Error::Conflict { message });
            }
        }
        if let Some(input) = stdin.take_if(|_| after == AfterInput::End) {
            input.close().await;
        }
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
        let signal = Signal::from_named_raw(number).ok_or_else(|| Error::invalid(format!("{number} is no signal")))?;
        running.process().ok_or_else(|| not_reached(exec_id))?.handle.signal(signal);
        Ok(())
    }

    async fn process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
    ) -> Result<Arc<RunningExec>, Error> {
        let place = SessionRef::read(by, address)?;
        let find = |exec_id: &ExecId| self.find_running(by, exec_id).filter(|running| running.is_in(&place.name));
        if let Some(running) = find(exec_id) {
            return Ok(running);
        }
        let latest = self.latest_process(by, &place, exec_id).await?;
        find(&latest.summary.exec_id).ok_or_else(|| no_exec(exec_id))
    }

    /// Limits how many sessions of one user have processes or terminals, since these keep their
    /// session box alive. The limit is `sandbox.max_concurrent_execs_per_user`.
    pub(crate) fn check_company(&self, spec: &ExecSpec) -> Result<(), Error> {
        let (Lifetime::UntilStopped, Some(own)) = (spec.lifetime(), spec.session()) else { return Ok(()) };
        let most = self.settings_now().sandbox.max_concurrent_execs_per_user.get() as usize;
        let lives = self.inner.registry.all();
        let kept: BTreeSet<_> = lives
            .iter()
            .filter(|running| running.lifetime() == Lifetime::UntilStopped && running.user_id == spec.user_id)
            .map(|running| (&running.agent_id, running.session.as_deref()))
            .filter(|(agent, session)| **agent != spec.agent_id || *session != Some(own.as_str()))
            .collect();
        if kept.len() < most {
            return Ok(());
        }
        let message = format!(
            "processes and terminals of {} other sessions keep their boxes, and a user's may keep {most} at once; end \
             some, or have an operator raise sandbox.max_concurrent_execs_per_user",
            kept.len()
        );
        Err(Error::PoolFull { message })
    }
}

fn not_reached(exec_id: &ExecId) -> Error {
    Error::Conflict { message: format!("{exec_id} has not begun, or is no process of a session's box") }
}
