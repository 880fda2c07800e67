//! A command that goes on in its session's box while nobody waits for it: what it prints is read from any byte on, and it
//! can be written and signalled to. It is an exec like any other, and its id is the exec's.

use std::sync::Arc;
use std::time::Duration;

use executor::resident::{VisitHandle, VisitInput};
use record::{ExecId, Status};
use workspace::Stream;

use crate::artifacts::OutputPart;
use crate::code::{CodeBegun, CodeRequest, Input};
use crate::error::Error;
use crate::live::Live;
use crate::principal::Principal;
use crate::service::{Service, no_exec};
use crate::sessions::{Place, SessionAddress};

/// Of one stream at once.
const MOST: u64 = 1 << 20;
/// How long somebody who writes waits for a process that does not read.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

/// By what a running process is reached.
#[derive(Debug)]
pub(crate) struct ProcessReins {
    handle: VisitHandle,
    stdin: tokio::sync::Mutex<Option<VisitInput>>,
}

impl ProcessReins {
    pub(crate) fn new(handle: VisitHandle, stdin: Option<VisitInput>) -> Self {
        ProcessReins { handle, stdin: tokio::sync::Mutex::new(stdin) }
    }
}

/// What a process has printed from the asked bytes on.
#[derive(Debug)]
pub struct ProcessOutput {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub stdout: OutputPart,
    pub stderr: OutputPart,
}

/// Whether a process's input ends with what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterInput {
    More,
    End,
}

impl Service {
    /// Begins, and comes back when that is on record.
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
        let place = Place::read(by, address)?;
        let view = self.exec(by, exec_id).await?;
        let summary = &view.summary;
        let is_its_own = (&summary.user_id, &summary.agent_id) == (&place.name.user_id, &place.name.agent_id)
            && summary.conversation_id.as_deref() == Some(place.id.as_str());
        if !is_its_own {
            return Err(no_exec(exec_id));
        }
        let stdout = self.output(by, exec_id, Stream::Stdout, from.0, MOST).await?;
        let stderr = self.output(by, exec_id, Stream::Stderr, from.1, MOST).await?;
        Ok(ProcessOutput { status: view.summary.status, exit_code: view.summary.exit_code, stdout, stderr })
    }

    /// Writes to a process, and comes back when it has taken all of it.
    pub async fn write_to_process(
        &self,
        by: &Principal,
        address: &SessionAddress,
        exec_id: &ExecId,
        bytes: &[u8],
        after: AfterInput,
    ) -> Result<(), Error> {
        let live = self.process(by, address, exec_id)?;
        let reins = live.process().ok_or_else(|| not_reached(exec_id))?;
        let mut stdin = reins.stdin.lock().await;
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
        let live = self.process(by, address, exec_id)?;
        live.process().ok_or_else(|| not_reached(exec_id))?.handle.signal(number);
        Ok(())
    }

    fn process(&self, by: &Principal, address: &SessionAddress, exec_id: &ExecId) -> Result<Arc<Live>, Error> {
        let place = Place::read(by, address)?;
        let found = self.find_live(by, exec_id).filter(|live| live.is_in(&place.name));
        found.ok_or_else(|| no_exec(exec_id))
    }
}

fn not_reached(exec_id: &ExecId) -> Error {
    Error::Conflict { message: format!("{exec_id} has not begun, or is no process of a session's box") }
}
