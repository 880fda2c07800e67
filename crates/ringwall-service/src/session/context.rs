//! Contexts: interpreters in a session box that live on between execs, so that variables and
//! imports persist and values are returned in rich forms (HTML, PNG, JSON).
//!
//! A cell of code in a context runs as an exec, with exclusive use of the session box. It is
//! presented as a `RunningBox`, whose exit future talks to the interpreter and then returns it to
//! its context. If the exec ends first, dropping that future removes the context, which would stay
//! busy otherwise. The interpreters and the parser of their answers are in `crate::boxes`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_executor::session_box::SessionProcess;
use ringwall_executor::{BoxControl, BoxExit, Ending, Output, RunningBox, Streams, Usage};
use ringwall_policy::{Grant, Isolation};
use ringwall_record::{SessionKey, Timestamp};
use rustix::process::Signal;
use serde::Serialize;
use tokio::sync::oneshot;

use super::session_box::session_box_grant;
use crate::auth::principal::Principal;
use crate::boxes::{BoxKey, Context, Conversed, Doing, Entered, Interpreter, MAX_CONTEXTS, PooledBox, words};
use crate::error::Error;
use crate::exec::code::CodeSpec;
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::RunNotes;
use crate::exec::run::{SessionUse, StartedBox, Stay};
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// Bytes of each stream that are buffered until the exec reads them.
const MAX_BUFFERED: usize = 64 << 10;

/// The context that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextAddress {
    pub session: SessionAddress,
    pub context_id: String,
}

/// An interpreter that stays after its exec.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct ContextView {
    context_id: String,
    /// `python` or `javascript`
    language: &'static str,
    /// The backend of its box
    sandbox_type: &'static str,
    /// `idle` or `busy`
    status: &'static str,
    #[schema(value_type = String)]
    created_at: Timestamp,
    #[schema(value_type = String)]
    last_used_at: Timestamp,
}

impl ContextView {
    fn new(id: &str, context: &Context, isolation: Isolation) -> Self {
        Self {
            context_id: id.to_owned(),
            language: context.language.key(),
            sandbox_type: isolation.key(),
            status: match context.doing {
                Doing::Nothing => "idle",
                Doing::Running => "busy",
            },
            created_at: context.created_at,
            last_used_at: context.used_at,
        }
    }
}

impl Service {
    /// The contexts of a session; empty if it has no box.
    pub async fn contexts(&self, by: &Principal, session: &SessionAddress) -> Result<Vec<ContextView>, Error> {
        let session = self.known_session(by, session).await?;
        let view = |(key, pooled): (BoxKey, Arc<PooledBox>)| {
            pooled.read(|contexts| {
                contexts.iter().map(|(id, context)| ContextView::new(id, context, key.isolation)).collect::<Vec<_>>()
            })
        };
        Ok(self.session_boxes(&session).into_iter().flat_map(view).collect())
    }

    /// Interrupts the running code with SIGINT. Returns whether code was running.
    pub async fn interrupt_context(&self, by: &Principal, address: &ContextAddress) -> Result<bool, Error> {
        let pooled = self.box_of(by, address).await?;
        let running = pooled.read(|contexts| {
            let context = contexts.get(&address.context_id).filter(|context| context.doing == Doing::Running)?;
            context.handle.clone()
        });
        if let Some(handle) = &running {
            handle.signal(Signal::INT);
        }
        Ok(running.is_some())
    }

    /// Ends the interpreter and the code that runs in it. The next exec gets a new interpreter.
    pub async fn restart_context(&self, by: &Principal, address: &ContextAddress) -> Result<(), Error> {
        let _shared = self.inner.session_gates.try_share(&address.session.resolve(by)?)?;
        let pooled = self.box_of(by, address).await?;
        if pooled.restart(&address.context_id) { Ok(()) } else { Err(no_context(address)) }
    }

    pub async fn delete_context(&self, by: &Principal, address: &ContextAddress) -> Result<(), Error> {
        let _shared = self.inner.session_gates.try_share(&address.session.resolve(by)?)?;
        let pooled = self.box_of(by, address).await?;
        if pooled.delete(&address.context_id) { Ok(()) } else { Err(no_context(address)) }
    }

    async fn box_of(&self, by: &Principal, address: &ContextAddress) -> Result<Arc<PooledBox>, Error> {
        let session = self.known_session(by, &address.session).await?;
        let mut boxes = self.session_boxes(&session).into_iter().map(|(_, pooled)| pooled);
        let found = boxes.find(|pooled| pooled.read(|contexts| contexts.contains_key(&address.context_id)));
        found.ok_or_else(|| no_context(address))
    }

    async fn known_session(&self, by: &Principal, address: &SessionAddress) -> Result<SessionKey, Error> {
        let session = address.resolve(by)?;
        self.require_session(&session).await?;
        Ok(session)
    }
}

fn no_context(address: &ContextAddress) -> Error {
    Error::NotFound { what: format!("context {}", address.context_id) }
}

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
            session_box_grant(&grant, &self.spec.layers, &argv)
        };
        let lease = self.enter_session_box(&grant, code).await?;
        let limit = Duration::from_millis(self.limits.timeout_ms);
        let gate = self.open_gate(lease.session_box().proxy.as_ref(), &grant.effective().net);
        let session_box = lease.session_box().clone();
        match begin(&session_box, context, own, code, limit).await {
            Ok((running, notes)) => {
                let session = SessionUse { session_box, gate, screen: None, _stay: Stay::UntilStopped(lease) };
                Ok(StartedBox { running, session: Some(session), notes: Some(notes) })
            }
            Err(error) => {
                drop(lease);
                self.close_gate(gate).await;
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
    let [(stdout, out), (stderr, err)] = [(); 2].map(|()| tokio::io::duplex(MAX_BUFFERED));
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
    let running = RunningBox {
        streams: Streams { stdin: None, stdout: output(stdout), stderr: output(stderr) },
        proxy_socket: None,
        protections: session_box.session_box.protections().to_vec(),
        control: Arc::new(CodeControl(process)),
        exit: talk.boxed(),
        started_at: Instant::now(),
        time_limit: None,
    };
    Ok((running, notes))
}
