//! One run in a context, as every exec sees its box: streams, an outcome, and reins.
//!
//! It has the session's box for itself as long as it lasts. A task of its own holds that, talks with the interpreter and puts
//! it back, so that nothing is lost however the exec ends.

use std::sync::Arc;
use std::time::Duration;

use executor::pool::Lease;
use executor::resident::VisitHandle;
use executor::{Ending, Outcome, Protection, Usage};
use policy::Grant;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::interpreter::{Conversed, Interpreter, words};
use super::session_box::{Entered, MOST_CONTEXTS, SessionBox};
use crate::code::CodeOrder;
use crate::egress::ExecGate;
use crate::pool::Boxes;
use crate::residents::home_grant;
use crate::run_exec::Exec;

const SIGKILL: i32 = 9;
/// So much of a stream waits for whoever keeps it.
const HELD: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct RunningCell {
    pub(crate) home: Arc<SessionBox>,
    pub(crate) streams: Option<[DuplexStream; 2]>,
    pub(crate) protections: Vec<Protection>,
    /// Who answers for what it asks of the network, where there is one.
    pub(crate) gate: Option<Arc<ExecGate>>,
    handle: CellHandle,
    task: JoinHandle<Result<Outcome, executor::Error>>,
}

/// Stops what runs in an interpreter, and keeps the interpreter where that obeys.
#[derive(Debug, Clone)]
pub(crate) struct CellHandle(VisitHandle);

impl CellHandle {
    /// Asks, and after a moment insists. Whoever sees that the run is over drops this.
    pub(crate) async fn stop(&self) {
        self.0.interrupt().await;
    }

    pub(crate) async fn kill(&self) {
        self.0.stop(SIGKILL).await;
    }
}

impl RunningCell {
    pub(crate) fn handle(&self) -> CellHandle {
        self.handle.clone()
    }

    pub(crate) async fn wait(self) -> Result<Outcome, executor::Error> {
        match self.task.await {
            Ok(outcome) => outcome,
            Err(_) => Err(executor::Error::BoxDied { why: "whoever talked with its interpreter is gone".to_owned() }),
        }
    }
}

impl Exec {
    /// Runs its code in a context of its session.
    pub(crate) async fn start_cell(
        &self,
        grant: Grant,
        code: &CodeOrder,
        context: &str,
    ) -> Result<RunningCell, executor::Error> {
        let argv = words(code.language()).ok_or(executor::Error::NotForThisBox { what: "programs" })?;
        let own = home_grant(&grant, &self.order.layers, &argv)?;
        let lease = self.enter_session_box(&grant, code).await?;
        let limit = Duration::from_millis(self.limits.timeout_ms);
        let gate = self.come_on_duty(lease.resident().way.as_ref(), &grant.effective().net);
        match begin(lease, context, own, code, limit).await {
            Ok(cell) => Ok(RunningCell { gate, ..cell }),
            Err(error) => {
                self.leave_duty(gate).await;
                Err(error)
            }
        }
    }
}

async fn begin(
    lease: Lease<Boxes>,
    context: &str,
    grant: Grant,
    code: &CodeOrder,
    limit: Duration,
) -> Result<RunningCell, executor::Error> {
    let home = lease.resident().clone();
    let (interpreter, restarts) = match home.enter(context, code.language()) {
        Entered::Ready { interpreter, restarts } => (*interpreter, restarts),
        Entered::New { restarts } => match Interpreter::start(&home.resident, grant).await {
            Ok(interpreter) => (interpreter, restarts),
            Err(error) => {
                home.leave(context, restarts, None);
                return Err(error);
            }
        },
        Entered::Busy => return Err(executor::Error::SessionBusy),
        Entered::Other(language) => return Err(executor::Error::OtherLanguage { language: language.key() }),
        Entered::TooMany => return Err(executor::Error::TooManyVisits { most: MOST_CONTEXTS }),
    };
    let handle = interpreter.handle();
    if !home.begun(context, restarts, &handle) {
        return Err(executor::Error::BoxDied { why: "the context was restarted or deleted meanwhile".to_owned() });
    }
    let [(stdout, out), (stderr, err)] = [(); 2].map(|()| tokio::io::duplex(HELD));
    let protections = home.resident.protections().to_vec();
    let shown = protections.clone();
    let (context, text, trail) = (context.to_owned(), code.text().to_owned(), code.trail.clone());
    let (own, box_time) = (home.clone(), handle.clone());
    let task = tokio::spawn(async move {
        let home = own;
        let began = box_time.box_time();
        let outcome = |ending| Outcome {
            ending,
            out_of_memory: false,
            duration: box_time.box_time().saturating_sub(began),
            usage: Usage::default(),
            protections,
            steps: Vec::new(),
        };
        let ended = match interpreter.converse(&text, limit, [out, err]).await {
            Conversed::Answered { answer, interpreter, is_late } => {
                home.leave(&context, restarts, Some(*interpreter));
                let ending = match (is_late, &answer.raised) {
                    (true, _) => Ending::TimedOut,
                    (false, None) => Ending::Exited(0),
                    (false, Some(_)) => Ending::Exited(1),
                };
                trail.answered(answer);
                Ok(outcome(ending))
            }
            Conversed::Gone { outcome: gone, is_late } => {
                home.leave(&context, restarts, None);
                // Whatever it took to end one that was late.
                if is_late { Ok(outcome(Ending::TimedOut)) } else { gone }
            }
        };
        drop(lease);
        ended
    });
    let streams = Some([stdout, stderr]);
    Ok(RunningCell { home, streams, protections: shown, gate: None, handle: CellHandle(handle), task })
}
