//! One exec in a task of its own, from its intent to its ending: recorded, in line, prepared, run, collected, ended.
//!
//! Whatever fails after the intent becomes an ending. Files are touched in two places only, each on a thread where it
//! may block: before the box, and when all its processes are dead. A box is therefore never just let go of.

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
use crate::disk::{Disk, Room};
use crate::error::codes::RUNTIME_ERROR;
use crate::error::{Error, causes};
use crate::exec::backend::Backend;
use crate::exec::grant::Granted;
use crate::exec::host_paths::{host_mounts, unseen};
use crate::exec::order::{Ground, Needs, Order, Places};
use crate::exec::outcome::Told;
use crate::exec::queue::{Admission, Slot};
use crate::exec::registry::{Live, Registration, Stage};
use crate::exec::submit::{Answered, Submitted};
use crate::service::Service;
use crate::time::{milliseconds, now};

/// So many files of a session are compared before and after; in a larger one it is not told which are new.
const MAX_NAMES: usize = 20_000;
/// So few are gone through in less time than it takes to have a thread relieved.
const NAMES_FEW: usize = 500;

#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) service: Service,
    pub(crate) order: Order,
    pub(crate) owner: Owner,
    pub(crate) intent: NewExec,
    pub(crate) live: Arc<Live>,
    pub(crate) registration: Registration,
    pub(crate) limits: Limits,
    pub(crate) net: NetMode,
    /// How often a person was asked.
    pub(crate) questions: u32,
    pub(crate) answered: Answered,
}

/// How an exec comes in.
#[derive(Debug)]
pub(crate) enum Entrance {
    Admitted(Admission),
    /// A person has to allow it first.
    Asking(Ask),
}

/// What an exec has on the disk before its box is made.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) project: Project,
    pub(crate) ground: OpenGround,
    pub(crate) files: ExecFiles,
    /// The shares of the disk that it counts against.
    pub(crate) disks: Vec<Disk>,
    /// What was in its session before, if what it made is to be told.
    pub(crate) before: Option<Before>,
    /// What was decided when its ground was opened, where nothing else can change it.
    pub(crate) verdict: Option<Verdict>,
}

/// The files of a session before code ran in it.
#[derive(Debug)]
pub(crate) enum Before {
    These(Arc<Names>),
    TooMany,
}

/// What is to be put away of an exec of code, while its ending is being recorded.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) ready: Ready,
    pub(crate) told: Told,
    pub(crate) meta: Value,
}

/// What it works on, open, where that is not its project.
#[derive(Debug)]
pub(crate) enum OpenGround {
    Project,
    Agent(Tree),
    Session(Session),
}

type Prepared = Result<Ready, Told>;

/// What became of an intent.
type Intended = Result<IntentResult, ringwall_record::Error>;

/// What was made before the intent was on record, if anything.
type Early = Option<Prepared>;

/// What is known of an exec when its box is gone, or was never there.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) told: Told,
    pub(crate) duration: Option<Duration>,
    pub(crate) protections: Option<Value>,
    pub(crate) cpu: Option<Duration>,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) stdout: StoredOutput,
    pub(crate) stderr: StoredOutput,
}

impl Ran {
    pub(crate) fn never(told: Told) -> Self {
        Self {
            told,
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
            status: self.told.status,
            exit_code: self.told.exit_code,
            error_reason: self.told.reason,
            ended_at: now(),
            duration_ms: self.duration.map(milliseconds),
            protections: self.protections,
            stdout: self.stdout,
            stderr: self.stderr,
            cpu_ms: self.cpu.map(milliseconds),
            max_rss_bytes: self.peak_memory_bytes,
        }
    }

    /// What it left could not be collected. Whoever failed before stays failed for that.
    fn uncollected(self) -> Self {
        if self.told.reason.is_some() {
            return self;
        }
        let told = Told::failed(RUNTIME_ERROR, "what it left could not be collected; the server's log says why");
        Ran { told: Told { exit_code: self.told.exit_code, ..told }, ..self }
    }
}

impl Exec {
    /// The whole life. A fault of ours on the way is an ending too, for this one alone.
    pub(crate) async fn live_to_the_end(
        self,
        entrance: Entrance,
        answer: oneshot::Sender<Result<Submitted, Error>>,
        intending: impl Future<Output = Intended>,
    ) {
        let (store, exec_id) = (self.service.inner.store.clone(), self.intent.exec_id.clone());
        let whose = ExecOwner::from(&self.intent);
        if AssertUnwindSafe(self.live(entrance, answer, intending)).catch_unwind().await.is_err() {
            tracing::error!(%exec_id, "the task of an exec has panicked");
            let told = Told::failed(RUNTIME_ERROR, "a fault of this server ended it; the server's log says more");
            // Whatever it had was let go of, its box with everything in it. One that is not on record needs no ending.
            let _ = store.finish(whose, &Ran::never(told).ending()).await;
        }
    }

    /// Whoever asked is answered when the intent is on record, or with the ending.
    async fn live(
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
                let known = self.service.known(&self.order, exec_id, body_digest).await;
                let _ = answer.send(known);
                return;
            }
            Err(error) => {
                // It may be on record all the same; then it must not stay there without an ending.
                let is_unclear = matches!(error, ringwall_record::Error::Unconfirmed(_));
                // Nothing of it is left when it is said that it was refused.
                drop(entrance);
                discard(early).await;
                let _ = answer.send(Err(error.into()));
                if is_unclear {
                    let told = Told::failed(RUNTIME_ERROR, "the record did not confirm the intent, so nothing was run");
                    self.conclude(Ran::never(told), None, None).await;
                }
                return;
            }
        }
        let status = self.intent.start.status();
        self.live.set_stage(Stage::At(status));
        // Whoever is told that a person is asked finds the question.
        let asked = match &entrance {
            Entrance::Asking(ask) => Some(self.put_question(ask).await),
            Entrance::Admitted(_) => None,
        };
        let _late = self.answered.tell(answer, Submitted { exec_id, status, known: false });
        let mut admission = match (entrance, asked) {
            (Entrance::Admitted(admission), _) => Ok(admission),
            (Entrance::Asking(ask), Some(asked)) => self.await_approval(ask, asked).await,
            (Entrance::Asking(_), None) => Err(Told::failed(RUNTIME_ERROR, "nobody was asked")),
        };
        let mut early = early;
        loop {
            let turn = match admission {
                Ok(admission) => self.take_turn(admission).await,
                Err(told) => Err(told),
            };
            let slot = match turn {
                Ok(slot) => slot,
                Err(told) => {
                    discard(early).await;
                    return self.conclude(Ran::never(told), None, None).await;
                }
            };
            let mut slot = Some(slot);
            match self.run(early, &mut slot).await {
                Turn::Over(over) => {
                    let (ran, remains) = *over;
                    return self.conclude(ran, remains, slot).await;
                }
                // Whoever waits for a person holds up nobody.
                Turn::Asks(ask, ready) => {
                    drop(slot);
                    early = Some(Ok(*ready));
                    admission = self.ask_again(ask).await;
                }
            }
        }
    }

    /// Waits for the intent. Empty files are made meanwhile where the exec starts at once: that takes no time then, and what
    /// a refused intent leaves is removed. Inputs are written only when the intent is on record.
    async fn intend(&self, entrance: &Entrance, intending: impl Future<Output = Intended>) -> (Intended, Early) {
        match entrance {
            Entrance::Admitted(Admission::Now(_)) if !self.order.has_inputs() && self.order.idempotency.is_none() => {
                let (intended, prepared) = tokio::join!(intending, self.prepare(Vec::new()));
                (intended, Some(prepared))
            }
            Entrance::Admitted(Admission::Now(_) | Admission::Later(_)) | Entrance::Asking(_) => {
                (intending.await, None)
            }
        }
    }

    async fn take_turn(&mut self, admission: Admission) -> Result<Slot, Told> {
        let slot = match (admission, &self.intent.start) {
            (Admission::Now(slot), Start::Running { .. }) => return Ok(slot),
            (Admission::Now(slot), Start::Queued | Start::AwaitingApproval | Start::Denied(_)) => slot,
            (Admission::Later(mut place), _) => {
                let slot = tokio::select! {
                    biased;
                    by = self.live.cancelled() => return Err(Told::cancelled(by)),
                    slot = place.turn() => slot,
                };
                slot.ok_or_else(|| Told::failed(RUNTIME_ERROR, "the queue was closed"))?
            }
        };
        let started_at = now();
        match self.service.inner.store.begin(&self.intent.exec_id, started_at).await {
            Ok(()) => {
                self.intent.start = Start::Running { started_at };
                self.live.set_stage(Stage::At(Status::Running));
                Ok(slot)
            }
            Err(error) => {
                tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record a start");
                Err(Told::failed(RUNTIME_ERROR, "its start could not be recorded, so it was not run"))
            }
        }
    }

    /// What is left to be put away comes along where that cannot change how it ended.
    async fn run(&mut self, early: Early, slot: &mut Option<Slot>) -> Turn {
        let mut hold = match self.hold_session(slot).await {
            Ok(hold) => hold,
            Err(told) => {
                discard(early).await;
                return Turn::over(Ran::never(told), None);
            }
        };
        // What its user shares with others does not change beneath it.
        let _staying = match self.order.ground {
            Ground::Agent { .. } => {
                let boxes = &self.service.inner.agent_boxes;
                Some(boxes.stay(&self.order.user_id, &self.order.agent_id).await)
            }
            Ground::Project { .. } | Ground::Session { .. } | Ground::Code(_) => None,
        };
        let prepared = match early {
            Some(prepared) => prepared,
            None => {
                let inputs = self.order.take_inputs();
                self.prepare(inputs).await
            }
        };
        let mut ready = match prepared {
            Ok(ready) => ready,
            Err(told) => return Turn::over(Ran::never(told), None),
        };
        let mut mounts = Vec::new();
        let mut ran = match self.grant(&mut ready).await {
            Ok(Granted::Now(grant)) => {
                mounts = host_mounts(&grant);
                let unseen = unseen(&grant);
                let ran = self.run_box(*grant, &ready.files, &ready.disks, slot, &mut hold).await;
                Ran { told: ran.told.with_unseen(unseen), ..ran }
            }
            Ok(Granted::Asks(ask)) => return Turn::Asks(ask, Box::new(ready)),
            Err(told) => Ran::never(told),
        };
        if let Ground::Agent { needs: Needs::Network } | Ground::Session { needs: Needs::Network, .. } =
            self.order.ground
            && self.net == NetMode::None
        {
            ran.told = ran.told.without_network();
        }
        let meta = self.meta(&ran, mounts);
        // Its box had no directory for artifacts, so there is nothing to be found that could be too large.
        if let Ground::Code(_) = self.order.ground {
            let told = ran.told.clone();
            return Turn::over(ran, Some(Remains { ready, told, meta }));
        }
        let ran = match block_in_place(|| self.collect(ready.files, ran.told.clone(), meta)) {
            Ok(told) => Ran { told, ..ran },
            Err(_) => ran.uncollected(),
        };
        if let OpenGround::Agent(tree) = ready.ground {
            self.heal(tree).await;
        }
        ready.disks.iter().for_each(Disk::measure_later);
        Turn::over(ran, None)
    }

    /// Whatever a script did, a skill's own file is where it belongs when the exec is over.
    async fn heal(&self, tree: Tree) {
        let (user, agent) = (&self.order.user_id, &self.order.agent_id);
        let healed = match self.service.inner.agent_locks.read(user, agent).await {
            Ok(_reading) => blocking::in_place(|| Ok(tree.heal_skills()?)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = healed {
            // Whoever lists the skills heals them too.
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not look after the skills");
        }
    }

    async fn prepare(&self, inputs: Vec<Input>) -> Prepared {
        let workspaces = self.service.inner.workspaces.clone();
        let (user, agent) = (self.intent.user_id.as_str().to_owned(), self.intent.agent_id.as_str().to_owned());
        let (project, owner) = (self.order.project_id.clone(), self.owner);
        let exec_id = self.intent.exec_id.as_str().to_owned();
        let is_much = !inputs.is_empty() || matches!(&self.order.ground, Ground::Code(code) if code.has_files());
        let prepare = move || -> Result<Ready, Error> {
            let exec_id: ringwall_workspace::ExecId = exec_id.parse()?;
            let workspace = workspaces.workspace(&user.parse()?, &agent.parse()?, owner)?;
            let disk = self.service.disk(&self.intent.user_id, &self.intent.agent_id, &workspace);
            let own = self.order.session().map(|session| self.service.session_disk(&disk, session));
            let disks = std::iter::once(disk).chain(own).map(|disk| disk.for_box()).collect::<Result<Vec<_>, _>>()?;
            let sizes = inputs.iter().map(|input| Usage::of_file(input.content.len() as u64));
            let mut more = sizes.fold(Usage::default(), Usage::plus);
            if let Ground::Code(code) = &self.order.ground {
                more = more.plus(code.size());
            }
            let rooms = disks.iter().map(|disk| disk.reserve(more)).collect::<Result<Vec<Room>, _>>()?;
            let mut before = None;
            let ground = match &self.order.ground {
                Ground::Project { .. } => OpenGround::Project,
                Ground::Agent { .. } => OpenGround::Agent(workspace.tree()?),
                Ground::Session { session, .. } => OpenGround::Session(workspace.session(session)?),
                Ground::Code(code) => {
                    let session = workspace.session(code.session())?;
                    // On an AIO service files are written and looked for there.
                    if self.order.backend == Backend::AioService {
                        session.create_directories()?;
                    } else {
                        if code.has_files() {
                            session.create_directories()?;
                            code.write_files(&session)?;
                        }
                        let found = among_names(|most| session.names_with_directories(most))?;
                        before = Some(found.map_or(Before::TooMany, Before::These));
                    }
                    OpenGround::Session(session)
                }
            };
            let project = workspace.project(&project)?;
            project.write_inputs(&exec_id, &inputs)?;
            rooms.into_iter().for_each(|room| room.settle(more));
            let files = match &self.order.ground {
                // Nothing that code leaves is taken over: it stays in its session.
                Ground::Code(_) => project.begin_output(&exec_id)?,
                Ground::Project { .. } | Ground::Agent { .. } | Ground::Session { .. } => project.begin(&exec_id)?,
            };
            let verdict = match (&self.order.ground, &ground) {
                (Ground::Code(_), OpenGround::Session(session)) => {
                    self.order.decide(&Places::code(session.work().path()), self.owner).ok()
                }
                _ => None,
            };
            Ok(Ready { project, ground, files, disks, before, verdict })
        };
        let prepared = if is_much { block_in_place(prepare) } else { briefly(prepare) };
        let ready = prepared.map_err(|error| Told::failed(error.code(), error.to_string()))?;
        let [stdout, stderr] = [Stream::Stdout, Stream::Stderr].map(|stream| ready.files.output(stream).clone());
        self.live.set_output(stdout, stderr);
        Ok(ready)
    }
}

/// Asks about the names of a session. The thread of the event loop on which that happens is relieved where they are many.
pub(crate) fn among_names<T>(
    ask: impl Fn(usize) -> Result<Option<T>, ringwall_workspace::Error>,
) -> Result<Option<T>, ringwall_workspace::Error> {
    match ask(NAMES_FEW)? {
        None => block_in_place(|| ask(MAX_NAMES)),
        few => Ok(few),
    }
}

/// What became of a turn.
enum Turn {
    Over(Box<(Ran, Option<Remains>)>),
    /// Something that it needs is not allowed any more. Its files are kept for the next turn.
    Asks(Ask, Box<Ready>),
}

impl Turn {
    fn over(ran: Ran, remains: Option<Remains>) -> Self {
        Turn::Over(Box::new((ran, remains)))
    }
}

/// Takes back what was made for an exec that is not to be.
async fn discard(early: Early) {
    if let Some(Ok(Ready { project, files, .. })) = early {
        // A failure is logged where it becomes an error; nothing is lost by it but an empty directory.
        let _ = blocking::in_place(move || Ok(project.remove_artifacts(files.exec())?)).await;
    }
}
