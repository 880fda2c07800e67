//! Runs one cell in a context and presents it as a `RunningBox`, with streams, an exit and a
//! control handle.
//!
//! The exec has exclusive use of the session box. The exit future talks to the interpreter and then
//! returns it to its context. If the exec ends first, dropping that future removes the context,
//! which would stay busy otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_executor::session_box::SessionProcess;
use ringwall_executor::{BoxControl, BoxExit, Ending, Output, RunningBox, StartedParts, Streams, Usage};
use ringwall_policy::Grant;
use rustix::process::Signal;
use tokio::sync::oneshot;

use crate::boxes::{Conversed, Entered, Interpreter, MAX_CONTEXTS, PooledBox, words};
use crate::exec::code::CodeSpec;
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::RunNotes;
use crate::exec::run::{SessionUse, StartedBox, Stay};
use crate::session::boxes::home_grant;

/// Bytes of each stream that are buffered until the exec reads them.
const HELD: usize = 64 << 10;

/// A context that is busy with a cell. Must be ended or dropped to release it.
struct ContextUse {
    session_box: Arc<PooledBox>,
    context: String,
    restarts: u64,
    is_over: bool,
}

impl ContextUse {
    fn end(mut self, interpreter: Option<Interpreter>) {
        self.is_over = true;
        self.session_box.leave(&self.context, self.restarts, interpreter);
    }
}

/// The conversation was dropped, and the interpreter with it, so the context is removed.
impl Drop for ContextUse {
    fn drop(&mut self) {
        if !self.is_over {
            self.session_box.leave(&self.context, self.restarts, None);
        }
    }
}

/// Stops a cell and keeps the interpreter if it reacts to the interrupt.
#[derive(Debug)]
struct CodeControl(SessionProcess);

impl BoxControl for CodeControl {
    fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), ringwall_executor::Error>> {
        self.0.pause()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), ringwall_executor::Error>> {
        self.0.resume()
    }

    /// SIGKILL kills the interpreter. Any other signal interrupts the cell and kills the
    /// interpreter only if it does not react. Drop the future when the cell has ended.
    fn stop(&self, signal: Signal) -> BoxFuture<'_, ()> {
        match signal {
            Signal::KILL => self.0.stop(Signal::KILL),
            _ => self.0.interrupt().boxed(),
        }
    }
}

impl Exec {
    /// Runs the exec's code in a context of its session.
    pub(crate) async fn start_cell(
        &self,
        grant: Grant,
        code: &CodeSpec,
        context: &str,
    ) -> Result<StartedBox, ringwall_executor::Error> {
        let own = || {
            let argv = words(code.language()).ok_or(ringwall_executor::Error::NotForThisBox { what: "programs" })?;
            home_grant(&grant, &self.spec.layers, &argv)
        };
        let lease = self.enter_session_box(&grant, code).await?;
        let limit = Duration::from_millis(self.limits.timeout_ms);
        let gate = self.come_on_duty(lease.session_box().way.as_ref(), &grant.effective().net);
        let session_box = lease.session_box().clone();
        match begin(&session_box, context, own, code, limit).await {
            Ok((running, notes)) => {
                let session = SessionUse { session_box, gate, screen: None, _stay: Stay::UntilStopped(lease) };
                Ok(StartedBox { running, session: Some(session), notes: Some(notes) })
            }
            Err(error) => {
                drop(lease);
                self.leave_duty(gate).await;
                Err(error)
            }
        }
    }
}

async fn begin(
    session_box: &Arc<PooledBox>,
    context: &str,
    grant: impl FnOnce() -> Result<Grant, ringwall_executor::Error>,
    code: &CodeSpec,
    limit: Duration,
) -> Result<(RunningBox, oneshot::Receiver<RunNotes>), ringwall_executor::Error> {
    let (interpreter, restarts) = match session_box.enter(context, code.language()) {
        Entered::Ready { interpreter, restarts } => (*interpreter, restarts),
        Entered::New { restarts } => {
            let started = async { Interpreter::start(&session_box.session_box, grant()?).await };
            match started.await {
                Ok(interpreter) => (interpreter, restarts),
                Err(error) => {
                    session_box.leave(context, restarts, None);
                    return Err(error);
                }
            }
        }
        Entered::Busy => return Err(ringwall_executor::Error::SessionBusy),
        Entered::Other(language) => return Err(ringwall_executor::Error::OtherLanguage { language: language.key() }),
        Entered::TooMany => return Err(ringwall_executor::Error::TooManyProcesses { most: MAX_CONTEXTS }),
    };
    let process = interpreter.process().clone();
    if !session_box.begun(context, restarts, &process) {
        return Err(ringwall_executor::Error::BoxDied {
            why: "the context was restarted or deleted meanwhile".to_owned(),
        });
    }
    let [(stdout, out), (stderr, err)] = [(); 2].map(|()| tokio::io::duplex(HELD));
    let stay = ContextUse { session_box: session_box.clone(), context: context.to_owned(), restarts, is_over: false };
    let (text, box_time) = (code.text().to_owned(), process.clone());
    let (report, notes) = oneshot::channel();
    let talk = async move {
        let began = box_time.box_time();
        let exit = |ending| BoxExit {
            ending,
            duration: box_time.box_time().saturating_sub(began),
            out_of_memory: false,
            usage: Usage::default(),
            steps: Vec::new(),
        };
        match interpreter.converse(&text, limit, [out, err]).await {
            Conversed::Answered { answer, interpreter, is_late } => {
                stay.end(Some(*interpreter));
                let ending = match (is_late, &answer.raised) {
                    (true, _) => Ending::TimedOut,
                    (false, None) => Ending::Exited(0),
                    (false, Some(_)) => Ending::Exited(1),
                };
                let _ = report.send(RunNotes { cell: Some(answer), ..RunNotes::default() });
                Ok(exit(ending))
            }
            Conversed::Gone { outcome, is_late } => {
                stay.end(None);
                // A late cell has timed out, even if it had to be killed.
                if is_late { Ok(exit(Ending::TimedOut)) } else { outcome.map(Into::into) }
            }
        }
    };
    let output = |stream| Some(Output::Stream(Box::new(stream)));
    let running = RunningBox::new(StartedParts {
        streams: Streams { stdin: None, stdout: output(stdout), stderr: output(stderr) },
        proxy_socket: None,
        protections: session_box.session_box.protections().to_vec(),
        control: Arc::new(CodeControl(process)),
        exit: talk.boxed(),
        started_at: Instant::now(),
        time_limit: None,
    });
    Ok((running, notes))
}
