//! Starts an exec in its session box, beside the processes that already run there.

use std::sync::Arc;

use ringwall_executor::RunningBox;
use ringwall_executor::pool::Lease;
use ringwall_executor::session_box::{Enabled, ProcessOptions};
use ringwall_policy::Grant;
use tokio::sync::mpsc;

use crate::boxes::Boxes;
use crate::boxes::ProcessHandle;
use crate::egress::ExecGate;
use crate::exec::code::{CodeSpec, Input};
use crate::exec::lifecycle::Exec;
use crate::exec::registry::Cancellation;
use crate::exec::run::{SessionUse, StartedBox, Stay};

impl Exec {
    pub(crate) async fn start_in_session(
        &self,
        grant: Grant,
        code: &CodeSpec,
    ) -> Result<StartedBox, ringwall_executor::Error> {
        let lease = self.enter_session_box(&grant, code).await?;
        let session_box = lease.session_box().clone();
        let gate = self.come_on_duty(session_box.way.as_ref(), &grant.effective().net);
        match self.start_process(lease, grant, code).await {
            Ok((running, screen, stay)) => {
                let session = SessionUse { session_box, gate, screen, _stay: stay };
                Ok(StartedBox { running, session: Some(session), notes: None })
            }
            Err(error) => {
                self.leave_duty(gate).await;
                Err(error)
            }
        }
    }

    async fn start_process(
        &self,
        lease: Lease<Boxes>,
        grant: Grant,
        code: &CodeSpec,
    ) -> Result<(RunningBox, Option<mpsc::Sender<Vec<u8>>>, Stay), ringwall_executor::Error> {
        let given = if code.input().is_empty() { Enabled::No } else { Enabled::Yes };
        let (stdin, terminal) = match &code.stdin {
            Input::Ends => (given, None),
            Input::Open => (Enabled::Yes, None),
            Input::Terminal(handle) => (Enabled::Yes, Some(handle.size)),
        };
        let options = ProcessOptions { stdin, terminal, ..ProcessOptions::default() };
        let mut started = lease.session_box().session_box.process(grant, options).await?;
        let process = started.process.clone();
        let screen = match &code.stdin {
            Input::Ends => return Ok((started.into_running(), None, Stay::UntilStopped(lease))),
            Input::Open => {
                self.running.set_process(ProcessHandle::new(process, started.streams.stdin.take()));
                None
            }
            Input::Terminal(handle) => {
                self.running.set_process(ProcessHandle::new(process.clone(), None));
                if !handle.offer(process, started.streams.stdin.take()) {
                    self.running.cancel(Cancellation::HungUp);
                }
                Some(handle.screen.clone())
            }
        };
        let ending = || ringwall_executor::Error::BoxDied { why: "it was ended meanwhile".to_owned() };
        let hold = lease.hold().ok_or_else(ending)?;
        Ok((started.into_running(), screen, Stay::Beside(hold)))
    }

    /// Records the connections of an exec that did not start: other processes of the box may have
    /// opened some while it was responsible for the box's network.
    pub(crate) async fn leave_duty(&self, gate: Option<Arc<ExecGate>>) {
        if let Some(gate) = gate {
            self.record_connections(&gate).await;
        }
    }
}
