//! One run in a context, as every exec sees its box: streams, an outcome, and reins.
//!
//! It has the session's box for itself as long as it lasts. Whoever waits for its end talks with the interpreter meanwhile and
//! puts it back; an exec that ends before leaves no context that would be busy for ever.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_executor::pool::Lease;
use ringwall_executor::session_box::VisitHandle;
use ringwall_executor::{Ending, Outcome, Protection, Usage};
use ringwall_policy::Grant;
use tokio::io::DuplexStream;

use super::interpreter::{Conversed, Interpreter, words};
use super::session_box::{Entered, MAX_CONTEXTS, SessionBox};
use crate::egress::ExecGate;
use crate::exec::lifecycle::Exec;
use crate::pool::Boxes;
use crate::session::code::CodeOrder;
use crate::session::residents::home_grant;

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
    talk: Talk,
}

/// The talk with the interpreter, and how that ended.
struct Talk(BoxFuture<'static, Result<Outcome, ringwall_executor::Error>>);

impl fmt::Debug for Talk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Talk")
    }
}

/// A context in which code runs.
struct Stay {
    home: Arc<SessionBox>,
    context: String,
    restarts: u64,
    is_over: bool,
}

impl Stay {
    fn end(mut self, interpreter: Option<Interpreter>) {
        self.is_over = true;
        self.home.leave(&self.context, self.restarts, interpreter);
    }
}

/// Whoever talked with its interpreter is gone, and the interpreter with them.
impl Drop for Stay {
    fn drop(&mut self) {
        if !self.is_over {
            self.home.leave(&self.context, self.restarts, None);
        }
    }
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

    pub(crate) async fn wait(self) -> Result<Outcome, ringwall_executor::Error> {
        self.talk.0.await
    }
}

impl Exec {
    /// Runs its code in a context of its session.
    pub(crate) async fn start_cell(
        &self,
        grant: Grant,
        code: &CodeOrder,
        context: &str,
    ) -> Result<RunningCell, ringwall_executor::Error> {
        let own = || {
            let argv = words(code.language()).ok_or(ringwall_executor::Error::NotForThisBox { what: "programs" })?;
            home_grant(&grant, &self.order.layers, &argv)
        };
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
    grant: impl FnOnce() -> Result<Grant, ringwall_executor::Error>,
    code: &CodeOrder,
    limit: Duration,
) -> Result<RunningCell, ringwall_executor::Error> {
    let home = lease.resident().clone();
    let (interpreter, restarts) = match home.enter(context, code.language()) {
        Entered::Ready { interpreter, restarts } => (*interpreter, restarts),
        Entered::New { restarts } => {
            let started = async { Interpreter::start(&home.resident, grant()?).await };
            match started.await {
                Ok(interpreter) => (interpreter, restarts),
                Err(error) => {
                    home.leave(context, restarts, None);
                    return Err(error);
                }
            }
        }
        Entered::Busy => return Err(ringwall_executor::Error::SessionBusy),
        Entered::Other(language) => return Err(ringwall_executor::Error::OtherLanguage { language: language.key() }),
        Entered::TooMany => return Err(ringwall_executor::Error::TooManyVisits { most: MAX_CONTEXTS }),
    };
    let handle = interpreter.handle();
    if !home.begun(context, restarts, &handle) {
        return Err(ringwall_executor::Error::BoxDied {
            why: "the context was restarted or deleted meanwhile".to_owned(),
        });
    }
    let [(stdout, out), (stderr, err)] = [(); 2].map(|()| tokio::io::duplex(HELD));
    let protections = home.resident.protections().to_vec();
    let shown = protections.clone();
    let stay = Stay { home: home.clone(), context: context.to_owned(), restarts, is_over: false };
    let (text, trail, box_time) = (code.text().to_owned(), code.trail.clone(), handle.clone());
    let talk = async move {
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
                stay.end(Some(*interpreter));
                let ending = match (is_late, &answer.raised) {
                    (true, _) => Ending::TimedOut,
                    (false, None) => Ending::Exited(0),
                    (false, Some(_)) => Ending::Exited(1),
                };
                trail.answered(answer);
                Ok(outcome(ending))
            }
            Conversed::Gone { outcome: gone, is_late } => {
                stay.end(None);
                // Whatever it took to end one that was late.
                if is_late { Ok(outcome(Ending::TimedOut)) } else { gone }
            }
        };
        drop(lease);
        ended
    };
    let talk = Talk(talk.boxed());
    let streams = Some([stdout, stderr]);
    Ok(RunningCell { home, streams, protections: shown, gate: None, handle: CellHandle(handle), talk })
}
