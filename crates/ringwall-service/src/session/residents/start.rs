//! An exec in its session's box, where the command starts beside what is there already.

use std::sync::Arc;

use ringwall_executor::pool::{Hold, Lease};
use ringwall_executor::session_box::{Enabled, RunningVisit, VisitOptions};
use ringwall_policy::Grant;
use tokio::sync::mpsc;

use super::process::ProcessReins;
use crate::egress::ExecGate;
use crate::exec::lifecycle::Exec;
use crate::pool::Boxes;
use crate::session::code::{CodeOrder, Input};
use crate::session::context::SessionBox;

/// A command in its session's box, which stays at least as long as this does.
#[derive(Debug)]
pub(crate) struct OnVisit {
    pub(crate) home: Arc<SessionBox>,
    pub(crate) visit: RunningVisit,
    /// Who answers for what it asks of the network, where there is one.
    pub(crate) gate: Option<Arc<ExecGate>>,
    /// Where what its terminal shows goes, if it has one.
    pub(crate) screen: Option<mpsc::Sender<Vec<u8>>>,
    _stay: Stay,
}

/// How it has the box.
#[derive(Debug)]
#[expect(dead_code, reason = "held, and let go of when it is dropped")]
enum Stay {
    /// For itself.
    Alone(Lease<Boxes>),
    /// Beside others: no other waits for it.
    Beside(Hold<Boxes>),
}

impl Exec {
    pub(crate) async fn start_in_session(
        &self,
        grant: Grant,
        code: &CodeOrder,
    ) -> Result<OnVisit, ringwall_executor::Error> {
        let lease = self.enter_session_box(&grant, code).await?;
        let home = lease.resident().clone();
        let gate = self.come_on_duty(home.way.as_ref(), &grant.effective().net);
        match self.start_visit(lease, grant, code).await {
            Ok((visit, screen, stay)) => Ok(OnVisit { home, visit, gate, screen, _stay: stay }),
            Err(error) => {
                self.leave_duty(gate).await;
                Err(error)
            }
        }
    }

    async fn start_visit(
        &self,
        lease: Lease<Boxes>,
        grant: Grant,
        code: &CodeOrder,
    ) -> Result<(RunningVisit, Option<mpsc::Sender<Vec<u8>>>, Stay), ringwall_executor::Error> {
        let given = if code.input().is_empty() { Enabled::No } else { Enabled::Yes };
        let (stdin, terminal) = match &code.stdin {
            Input::Ends => (given, None),
            Input::Open => (Enabled::Yes, None),
            Input::Terminal(seat) => (Enabled::Yes, Some(seat.size)),
        };
        let options = VisitOptions { stdin, terminal, ..VisitOptions::default() };
        let mut visit = lease.resident().resident.visit(grant, options).await?;
        let mut take_stdin = || visit.streams.as_mut().and_then(|streams| streams.stdin.take());
        let screen = match &code.stdin {
            Input::Ends => return Ok((visit, None, Stay::Alone(lease))),
            Input::Open => {
                let stdin = take_stdin();
                self.live.set_process(ProcessReins::new(visit.handle(), stdin));
                None
            }
            Input::Terminal(seat) => {
                let stdin = take_stdin();
                self.live.set_process(ProcessReins::new(visit.handle(), None));
                Some(seat.offer(visit.handle(), stdin, &self.live))
            }
        };
        let ending = || ringwall_executor::Error::BoxDied { why: "it was ended meanwhile".to_owned() };
        let hold = lease.hold().ok_or_else(ending)?;
        Ok((visit, screen, Stay::Beside(hold)))
    }

    /// Of one that never began: what others in the box asked for meanwhile is on record with it all the same.
    pub(crate) async fn leave_duty(&self, gate: Option<Arc<ExecGate>>) {
        if let Some(gate) = gate {
            self.keep_network(&gate).await;
        }
    }
}
