//! An exec in its session's box, where the command starts beside what is there already.

use executor::pool::{Hold, Lease};
use executor::resident::{Given, RunningVisit, VisitOptions};
use policy::Grant;

use super::process::ProcessReins;
use crate::code::{CodeOrder, Input};
use crate::pool::Boxes;
use crate::run_exec::Exec;

/// A command in its session's box, which stays at least as long as this does.
#[derive(Debug)]
pub(crate) struct OnVisit {
    pub(crate) visit: RunningVisit,
    _stay: Stay,
}

/// How it has the box.
#[derive(Debug)]
#[expect(dead_code, reason = "held, and let go of when it is dropped")]
enum Stay {
    /// For itself.
    Alone(Lease<Boxes>),
    /// Beside others: nobody waits for it.
    Beside(Hold<Boxes>),
}

impl Exec {
    pub(crate) async fn start_in_session(&self, grant: Grant, code: &CodeOrder) -> Result<OnVisit, executor::Error> {
        let lease = self.enter_session_box(&grant, code).await?;
        let is_open = code.stdin == Input::Open;
        let stdin = if is_open || !code.input().is_empty() { Given::Yes } else { Given::No };
        let options = VisitOptions { stdin, ..VisitOptions::default() };
        let mut visit = lease.resident().resident.visit(grant, options).await?;
        if !is_open {
            return Ok(OnVisit { visit, _stay: Stay::Alone(lease) });
        }
        let stdin = visit.streams.as_mut().and_then(|streams| streams.stdin.take());
        self.live.set_process(ProcessReins::new(visit.handle(), stdin));
        let ending = || executor::Error::BoxDied { why: "it was ended meanwhile".to_owned() };
        let hold = lease.hold().ok_or_else(ending)?;
        Ok(OnVisit { visit, _stay: Stay::Beside(hold) })
    }
}
