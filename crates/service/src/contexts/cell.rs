//! One run in a context, as every exec sees its box: streams, an outcome, and reins.
//!
//! It has the session's box for itself as long as it lasts. A task of its own holds that, talks with the interpreter and puts
//! it back, so that nothing is lost however the exec ends.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use executor::docker::Runtime;
use executor::pool::{Lease, OnBusy, Refused};
use executor::resident::VisitHandle;
use executor::{Ending, Outcome, Protection, Streams, Usage};
use policy::{Grant, Layers, Request, Root, Verdict};
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Sender;
use tokio::task::JoinHandle;

use super::interpreter::{Conversed, Interpreter, words};
use super::session_box::{BoxKey, Boxes, Entered, MOST_CONTEXTS, SessionBox};
use crate::backend::Backend;
use crate::code::CodeOrder;
use crate::run_exec::Exec;
use crate::service::{Inner, Service};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
/// Between being asked to stop and being ended.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct RunningCell {
    pub(crate) streams: Option<Streams>,
    pub(crate) protections: Vec<Protection>,
    handle: CellHandle,
    task: JoinHandle<Result<Outcome, executor::Error>>,
}

/// Stops what runs in an interpreter, and keeps the interpreter where that obeys.
#[derive(Debug, Clone)]
pub(crate) struct CellHandle(VisitHandle);

impl CellHandle {
    pub(crate) async fn stop(&self) {
        self.0.signal(SIGINT);
        tokio::time::sleep(GRACE).await;
        self.0.kill();
    }

    pub(crate) fn kill(&self) {
        self.0.kill();
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
        let argv = words(code.language()).ok_or(executor::Error::NotForThisBox { what: "a context" })?;
        let home = home_grant(&grant, &self.order.layers, &argv)?;
        let own = home_grant(&grant, &self.order.layers, &argv)?;
        let backend = self.order.backend;
        let key = BoxKey::new(&code.place, backend);
        let make = make(self.service.clone(), backend, home, self.intent.exec_id.as_str().to_owned());
        let acquiring = self.service.inner.boxes.acquire(&key, code.on_busy(), make);
        let lease = tokio::select! {
            biased;
            lease = acquiring => lease.map_err(refused)?,
            // Whoever gives up does not wait for others.
            _ = self.live.cancelled() => return Err(executor::Error::PoolStopped),
        };
        let limit = Duration::from_millis(self.limits.timeout_ms);
        begin(lease, context, own, code, limit).await
    }
}

/// The box and its interpreter have all that the session's code may have at most, and no time limit but each run's own.
fn home_grant(grant: &Grant, layers: &Layers, argv: &[String]) -> Result<Grant, executor::Error> {
    let request = Request {
        argv: argv.iter().map(Into::into).collect(),
        env: Default::default(),
        cwd: Some(grant.cwd().to_owned()),
        root: grant.root().clone(),
        workspace: grant.workspace().clone(),
        read_only: grant.read_only().to_vec(),
    };
    let mut layers = layers.clone();
    // A run's own limits are not the box's; whatever else was narrowed, the network above all, stays so.
    layers.narrowing.iter_mut().for_each(|layer| layer.limits.clear());
    match policy::decide(&request, &layers) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Ask(_) | Verdict::Deny(_) => Err(executor::Error::NotForThisBox { what: "a context" }),
    }
}

async fn make(service: Service, backend: Backend, grant: Grant, name: String) -> Result<SessionBox, executor::Error> {
    let inner: &Inner = &service.inner;
    let resident = match (backend, grant.root()) {
        (Backend::Native, _) => inner.executor.start_resident(grant).await,
        (Backend::Docker, _) => inner.docker.start_resident(grant, &name, Runtime::Usual).await,
        (Backend::Gvisor, Root::Docker(_)) => inner.docker.start_resident(grant, &name, Runtime::Gvisor).await,
        (Backend::Gvisor, Root::Host | Root::Image(_)) => inner.executor.start_resident_on_gvisor(grant).await,
        (Backend::Aio | Backend::AioService, _) => Err(executor::Error::NotForThisBox { what: "a context" }),
    };
    Ok(SessionBox::new(resident?))
}

fn refused(refused: Refused<executor::Error>) -> executor::Error {
    match refused {
        Refused::Failed(error) => error,
        Refused::Busy => executor::Error::SessionBusy,
        Refused::TimedOut => executor::Error::PoolFull,
        Refused::Stopped => executor::Error::PoolStopped,
        Refused::Ended => executor::Error::BoxDied { why: "it was ended while it was being made".to_owned() },
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
    let pipes = pipes();
    let (streams, senders) = match pipes {
        Ok(pipes) => pipes,
        Err(error) => {
            home.leave(context, restarts, Some(interpreter));
            return Err(executor::Error::Talk(error));
        }
    };
    let protections = home.resident.protections().to_vec();
    let shown = protections.clone();
    let (context, text, trail) = (context.to_owned(), code.text().to_owned(), code.trail.clone());
    let task = tokio::spawn(async move {
        let began = Instant::now();
        let outcome = |ending| Outcome {
            ending,
            out_of_memory: false,
            duration: began.elapsed(),
            usage: Usage::default(),
            protections,
            steps: Vec::new(),
        };
        let ended = match interpreter.converse(&text, limit, senders).await {
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
                match (gone, is_late) {
                    (Ok(_), true) => Ok(outcome(Ending::TimedOut)),
                    // The interpreter's own time limit is none.
                    (Ok(gone), false) if gone.ending == Ending::TimedOut => Ok(outcome(Ending::Signalled(SIGKILL))),
                    (gone, _) => gone,
                }
            }
        };
        drop(lease);
        ended
    });
    Ok(RunningCell { streams: Some(streams), protections: shown, handle: CellHandle(handle), task })
}

/// Pipes as every box has them. Nobody reads its input.
fn pipes() -> std::io::Result<(Streams, [Sender; 2])> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC);
    let sender = |end: OwnedFd| Sender::from_owned_fd(end);
    let (_, stdin) = pipe()?;
    let (stdout, out) = pipe()?;
    let (stderr, err) = pipe()?;
    Ok((Streams::Pipes { stdin, stdout, stderr }, [sender(out)?, sender(err)?]))
}
