//! Runs one exec in its own task, from the recorded intent to the recorded outcome: queue, prepare
//! files, run the box, collect files, record.
//!
//! Every failure after the intent becomes an outcome. Files are touched at two points only, each on
//! a thread that may block: before the box starts, and after all its processes are dead.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use ringwall_policy::{Ask, Limits, NetMode, Verdict};
use ringwall_record::{ExecOutcome, ExecOwner, IntentResult, NewExec, Start, Status, StoredOutput};
use ringwall_workspace::{ExecFiles, Input, Names, Owner, Project, Session, Stream, Tree, Usage};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use crate::blocking;
use crate::blocking::briefly;
use crate::disk::{Disk, DiskReservation};
use crate::error::codes::RUNTIME_ERROR;
use crate::error::{Error, causes};
use crate::exec::backend::Backend;
use crate::exec::grant::Granted;
use crate::exec::host_paths::{host_mounts, unseen};
use crate::exec::outcome::ExecResult;
use crate::exec::queue::{Admission, Slot};
use crate::exec::registry::{ExecState, Registration, RunningExec};
use crate::exec::spec::{ExecSpec, Needs, Target, TargetPaths};
use crate::exec::submit::{Answered, Submitted};
use crate::service::Service;
use crate::time::{milliseconds, now};

/// Session files compared before and after code runs. In a session with more names, the created
/// files are unknown.
const MAX_NAMES: usize = 20_000;
/// Listing this many names takes less time than `block_in_place` needs to hand the event loop to
/// another thread.
const NAMES_FEW: usize = 500;

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) service: Service,
    pub(crate) spec: ExecSpec,
    pub(crate) owner: Owner,
    pub(crate) intent: NewExec,
    pub(crate) running: Arc<RunningExec>,
    pub(crate) registration: Registration,
    pub(crate) limits: Limits,
    pub(crate) net: NetMode,
    /// Number of approval questions so far.
    pub(crate) questions: u32,
    pub(crate) answered: Answered,
}

/// How `submit` admitted the exec.
#[derive(Debug)]
pub(crate) enum Entrance {
    Admitted(Admission),
    /// Needs a person's approval first. Holds no slot and no queue position meanwhile.
    Asking(Ask),
}

/// The directories and files of an exec, prepared before its box starts.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) project: Project,
    pub(crate) target: OpenTarget,
    pub(crate) files: ExecFiles,
    /// The disk quotas that the exec counts against: its workspace and, if it has one, its session.
    pub(crate) disks: Vec<Disk>,
    /// The session's names before code runs, to find the files that it creates. `None` for other
    /// execs and on an AIO service.
    pub(crate) before: Option<Before>,
    /// The verdict on code, decided when its session was opened. The policy of code depends on
    /// nothing that changes later, unless a person is asked.
    pub(crate) verdict: Option<Verdict>,
}

/// The names in a session before code runs.
#[derive(Debug)]
pub(crate) enum Before {
    These(Arc<Names>),
    TooMany,
}

/// The files of a code exec that are stored while its outcome is being recorded.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) ready: Ready,
    pub(crate) result: ExecResult,
    pub(crate) meta: Value,
}

/// The opened directories that the exec works on. [`Ready::project`] is open in any case.
#[derive(Debug)]
pub(crate) enum OpenTarget {
    Project,
    Agent(Tree),
    Session(Session),
}

type Prepared = Result<Ready, ExecResult>;

/// Result of recording the intent.
type Intended = Result<IntentResult, ringwall_record::Error>;

/// Files prepared while the intent was being recorded, or kept while a person is asked again.
type Early = Option<Prepared>;

/// Everything known about an exec after its box has ended, or if no box started.
#[derive(Debug)]
pub(crate) struct RunSummary {
    pub(crate) result: ExecResult,
    pub(crate) duration: Option<Duration>,
    pub(crate) protections: Option<Value>,
    pub(crate) cpu: Option<Duration>,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) stdout: StoredOutput,
    pub(crate) stderr: StoredOutput,
}

impl RunSummary {
    pub(crate) fn never(result: ExecResult) -> Self {
        Self {
            result,
            duration: None,
            protections: None,
            cpu: None,
            peak_memory_bytes: None,
            stdout: StoredOutput::Complete,
            stderr: StoredOutput::Complete,
        }
    }

    pub(crate) fn ending(self) -> ExecOutcome {
        ExecOutcome {
            status: self.result.status,
            exit_code: self.result.exit_code,
            error_reason: self.result.reason,
            ended_at: now(),
            duration_ms: self.duration.map(milliseconds),
            protections: self.protections,
            stdout: self.stdout,
            stderr: self.stderr,
            cpu_ms: self.cpu.map(milliseconds),
            max_rss_bytes: self.peak_memory_bytes,
        }
    }

    /// The files could not be collected. An exec that has a reason already keeps it.
    fn uncollected(self) -> Self {
        if self.result.reason.is_some() {
            return self;
        }
        let result =
            ExecResult::failed(RUNTIME_ERROR, "what it left could not be collected; the server's log says why");
        RunSummary { result: ExecResult { exit_code: self.result.exit_code, ..result }, ..self }
    }
}

impl Exec {
    /// Runs the exec. A panic becomes an outcome of this exec and does not affect others.
    pub(crate) async fn run_to_completion(
        self,
        entrance: Entrance,
        answer: oneshot::Sender<Result<Submitted, Error>>,
        intending: impl Future<Output = Intended>,
    ) {
        let (store, exec_id) = (self.service.inner.store.clone(), self.intent.exec_id.clone());
        let whose = ExecOwner::from(&self.intent);
        if AssertUnwindSafe(self.running(entrance, answer, intending)).catch_unwind().await.is_err() {
            tracing::error!(%exec_id, "the task of an exec has panicked");
            let result =
                ExecResult::failed(RUNTIME_ERROR, "a fault of this server ended it; the server's log says more");
            // Unwinding dropped everything the exec held, so its box is killed. `finish` fails if
            // the intent was never recorded; that needs no outcome.
            let _ = store.finish(whose, &RunSummary::never(result).ending()).await;
        }
    }

    /// Answers the caller when the intent is recorded or, with [`Answered::WhenOver`], after the
    /// outcome is recorded.
    async fn running(
        mut self,
        entrance: Entrance,
        answer: oneshot::Sender<Result<Submitted, Error>>,
        intending: impl Future<Output = Intended>,
    ) {
        let exec_id = self.intent.exec_id.clone();
        let (intended, early) = self.intend(&entrance, intending).await;
        match intended {
            Ok(IntentResult::Recorded) => {}
            Ok(IntentResult::Known { exec_id, body_digest }) => {
                drop(entrance);
                discard(early).await;
                let known = self.service.known(&self.spec, exec_id, body_digest).await;
                let _ = answer.send(known);
                return;
            }
            Err(error) => {
                // An unconfirmed write may have been stored. Such an intent needs an outcome.
                let is_unclear = matches!(error, ringwall_record::Error::Unconfirmed(_));
                // Slot and files are freed before the caller learns of the refusal.
                drop(entrance);
                discard(early).await;
                let _ = answer.send(Err(error.into()));
                if is_unclear {
                    let result =
                        ExecResult::failed(RUNTIME_ERROR, "the record did not confirm the intent, so nothing was run");
                    self.conclude(RunSummary::never(result), None, None).await;
                }
                return;
            }
        }
        let status = self.intent.start.status();
        self.running.set_state(ExecState::At(status));
        // The question is open before the caller learns that the exec waits for approval.
        let asked = match &entrance {
            Entrance::Asking(ask) => Some(self.put_question(ask).await),
            Entrance::Admitted(_) => None,
        };
        let _late = self.answered.tell(answer, Submitted { exec_id, status, known: false });
        let mut admission = match (entrance, asked) {
            (Entrance::Admitted(admission), _) => Ok(admission),
            (Entrance::Asking(ask), Some(asked)) => self.await_approval(ask, asked).await,
            (Entrance::Asking(_), None) => Err(ExecResult::failed(RUNTIME_ERROR, "nobody was asked")),
        };
        let mut early = early;
        loop {
            let turn = match admission {
                Ok(admission) => self.take_turn(admission).await,
                Err(result) => Err(result),
            };
            let slot = match turn {
                Ok(slot) => slot,
                Err(result) => {
                    discard(early).await;
                    return self.conclude(RunSummary::never(result), None, None).await;
                }
            };
            let mut slot = Some(slot);
            match self.run(early, &mut slot).await {
                Turn::Over(over) => {
                    let (ran, remains) = *over;
                    return self.conclude(ran, remains, slot).await;
                }
                // Frees the slot for other execs while this one waits for approval.
                Turn::Asks(ask, ready) => {
                    drop(slot);
                    early = Some(Ok(*ready));
                    admission = self.ask_again(ask).await;
                }
            }
        }
    }

    /// Waits until the intent is recorded. An exec that starts at once has its empty files prepared
    /// in the meantime; if the intent is refused, they are removed. Inputs are written only after
    /// the intent, and a request with an idempotency key may be a repetition.
    async fn intend(&self, entrance: &Entrance, intending: impl Future<Output = Intended>) -> (Intended, Early) {
        match entrance {
            Entrance::Admitted(Admission::Now(_)) if !self.spec.has_inputs() && self.spec.idempotency.is_none() => {
                let (intended, prepared) = tokio::join!(intending, self.prepare(Vec::new()));
                (intended, Some(prepared))
            }
            Entrance::Admitted(Admission::Now(_) | Admission::Later(_)) | Entrance::Asking(_) => {
                (intending.await, None)
            }
        }
    }

    async fn take_turn(&mut self, admission: Admission) -> Result<Slot, ExecResult> {
        let slot = match (admission, &self.intent.start) {
            (Admission::Now(slot), Start::Running { .. }) => return Ok(slot),
            (Admission::Now(slot), Start::Queued | Start::AwaitingApproval | Start::Denied(_)) => slot,
            (Admission::Later(mut place), _) => {
                let slot = tokio::select! {
                    biased;
                    by = self.running.cancelled() => return Err(ExecResult::cancelled(by)),
                    slot = place.turn() => slot,
                };
                slot.ok_or_else(|| ExecResult::failed(RUNTIME_ERROR, "the queue was closed"))?
            }
        };
        let started_at = now();
        match self.service.inner.store.begin(&self.intent.exec_id, started_at).await {
            Ok(()) => {
                self.intent.start = Start::Running { started_at };
                self.running.set_state(ExecState::At(Status::Running));
                Ok(slot)
            }
            Err(error) => {
                tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record a start");
                Err(ExecResult::failed(RUNTIME_ERROR, "its start could not be recorded, so it was not run"))
            }
        }
    }

    /// Prepares the files, authorizes the start, and runs the box. Files of code are returned to be
    /// stored later, because storing them cannot change the result.
    async fn run(&mut self, early: Early, slot: &mut Option<Slot>) -> Turn {
        let mut hold = match self.hold_session(slot).await {
            Ok(hold) => hold,
            Err(result) => {
                discard(early).await;
                return Turn::over(RunSummary::never(result), None);
            }
        };
        // Held while the box runs: meanwhile no update of the agent's shared skills is written to
        // the workspace.
        let _staying = match self.spec.target {
            Target::Agent { .. } => {
                let boxes = &self.service.inner.agent_boxes;
                Some(boxes.stay(&self.spec.user_id, &self.spec.agent_id).await)
            }
            Target::Project { .. } | Target::Session { .. } | Target::Code(_) => None,
        };
        let prepared = match early {
            Some(prepared) => prepared,
            None => {
                let inputs = self.spec.take_inputs();
                self.prepare(inputs).await
            }
        };
        let mut ready = match prepared {
            Ok(ready) => ready,
            Err(result) => return Turn::over(RunSummary::never(result), None),
        };
        let mut mounts = Vec::new();
        let mut ran = match self.grant(&mut ready).await {
            Ok(Granted::Now(grant)) => {
                mounts = host_mounts(&grant);
                let unseen = unseen(&grant);
                let ran = self.run_box(*grant, &ready.files, &ready.disks, slot, &mut hold).await;
                RunSummary { result: ran.result.with_unseen(unseen), ..ran }
            }
            Ok(Granted::Asks(ask)) => return Turn::Asks(ask, Box::new(ready)),
            Err(result) => RunSummary::never(result),
        };
        if let Target::Agent { needs: Needs::Network } | Target::Session { needs: Needs::Network, .. } =
            self.spec.target
            && self.net == NetMode::None
        {
            ran.result = ran.result.without_network();
        }
        let meta = self.meta(&ran, mounts);
        // Code has no artifacts directory, so collecting its files cannot exceed a limit.
        if let Target::Code(_) = self.spec.target {
            let result = ran.result.clone();
            return Turn::over(ran, Some(Remains { ready, result, meta }));
        }
        let ran = match block_in_place(|| self.collect(ready.files, ran.result.clone(), meta)) {
            Ok(result) => RunSummary { result, ..ran },
            Err(_) => ran.uncollected(),
        };
        if let OpenTarget::Agent(tree) = ready.target {
            self.heal(tree).await;
        }
        ready.disks.iter().for_each(Disk::measure_later);
        Turn::over(ran, None)
    }

    /// Moves a `SKILL.md` that a script misplaced back to the root of its skill.
    async fn heal(&self, tree: Tree) {
        let (user, agent) = (&self.spec.user_id, &self.spec.agent_id);
        let healed = match self.service.inner.agent_locks.read(user, agent).await {
            Ok(_reading) => blocking::in_place(|| Ok(tree.heal_skills()?)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = healed {
            // Listing the skills repairs them too.
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not look after the skills");
        }
    }

    async fn prepare(&self, inputs: Vec<Input>) -> Prepared {
        let workspaces = self.service.inner.workspaces.clone();
        let (project, owner) = (self.spec.project_id.clone(), self.owner);
        let exec_id = &self.intent.exec_id;
        let is_much = !inputs.is_empty() || matches!(&self.spec.target, Target::Code(code) if code.has_files());
        let prepare = move || -> Result<Ready, Error> {
            let workspace = workspaces.workspace(&self.intent.user_id, &self.intent.agent_id, owner)?;
            let disk = self.service.disk(&self.intent.user_id, &self.intent.agent_id, &workspace);
            let own = self.spec.session().map(|session| self.service.session_disk(&disk, session));
            let disks = std::iter::once(disk).chain(own).map(|disk| disk.for_box()).collect::<Result<Vec<_>, _>>()?;
            let sizes = inputs.iter().map(|input| Usage::of_file(input.content.len() as u64));
            let mut more = sizes.fold(Usage::default(), Usage::plus);
            if let Target::Code(code) = &self.spec.target {
                more = more.plus(code.size());
            }
            let rooms = disks.iter().map(|disk| disk.reserve(more)).collect::<Result<Vec<DiskReservation>, _>>()?;
            let mut before = None;
            let target = match &self.spec.target {
                Target::Project { .. } => OpenTarget::Project,
                Target::Agent { .. } => OpenTarget::Agent(workspace.tree()?),
                Target::Session { session, .. } => OpenTarget::Session(workspace.session(session)?),
                Target::Code(code) => {
                    let session = workspace.session(code.session())?;
                    // An AIO service receives the files with the request and keeps them on its
                    // side.
                    if self.spec.backend == Backend::AioService {
                        session.create_directories()?;
                    } else {
                        if code.has_files() {
                            session.create_directories()?;
                            code.write_files(&session)?;
                        }
                        let found = among_names(|most| session.names_with_directories(most))?;
                        before = Some(found.map_or(Before::TooMany, Before::These));
                    }
                    OpenTarget::Session(session)
                }
            };
            let project = workspace.project(&project)?;
            project.write_inputs(exec_id, &inputs)?;
            rooms.into_iter().for_each(|room| room.settle(more));
            let files = match &self.spec.target {
                // Files that code creates stay in its session, so only output files are needed.
                Target::Code(_) => project.begin_output(exec_id)?,
                Target::Project { .. } | Target::Agent { .. } | Target::Session { .. } => project.begin(exec_id)?,
            };
            let verdict = match (&self.spec.target, &target) {
                (Target::Code(_), OpenTarget::Session(session)) => {
                    self.spec.decide(&TargetPaths::code(session.work().path()), self.owner).ok()
                }
                _ => None,
            };
            Ok(Ready { project, target, files, disks, before, verdict })
        };
        let prepared = if is_much { block_in_place(prepare) } else { briefly(prepare) };
        let ready = prepared.map_err(|error| ExecResult::failed(error.code(), error.to_string()))?;
        let [stdout, stderr] = [Stream::Stdout, Stream::Stderr].map(|stream| ready.files.output(stream).clone());
        self.running.set_output(stdout, stderr);
        Ok(ready)
    }
}

/// Lists the names of a session: up to [`NAMES_FEW`] on the event loop, more after moving the
/// loop's other tasks to another thread.
pub(crate) fn among_names<T>(
    ask: impl Fn(usize) -> Result<Option<T>, ringwall_workspace::Error>,
) -> Result<Option<T>, ringwall_workspace::Error> {
    match ask(NAMES_FEW)? {
        None => block_in_place(|| ask(MAX_NAMES)),
        few => Ok(few),
    }
}

/// Result of [`Exec::run`].
enum Turn {
    Over(Box<(RunSummary, Option<Remains>)>),
    /// Something that the exec needs is no longer allowed, so a person is asked. The files are kept
    /// for the next attempt.
    Asks(Ask, Box<Ready>),
}

impl Turn {
    fn over(ran: RunSummary, remains: Option<Remains>) -> Self {
        Turn::Over(Box::new((ran, remains)))
    }
}

/// Removes the files prepared for an exec that does not run.
async fn discard(early: Early) {
    if let Some(Ok(Ready { project, files, .. })) = early {
        // The conversion to `Error` logs a failure. It leaves an empty directory, which is
        // harmless.
        let _ = blocking::in_place(move || Ok(project.remove_artifacts(files.exec())?)).await;
    }
}
