//! One exec, from its recorded intent to its one recorded outcome.
//!
//! The order is the contract:
//! 1. The intent is on record before a box starts. If it cannot be recorded, nothing runs.
//! 2. A question is on record before the caller learns that the exec waits for an approval.
//! 3. The policy that a box runs under is on record before the box starts.
//! 4. Files are collected after the last process of the box is dead.
//! 5. The outcome is on record, and the slot is free, before waiting callers learn of the end.
//!
//! After step 1 every failure is an outcome: steps return [`Step`], and `?` ends the exec with the
//! result that it carries. A panic is an outcome too. If the server dies, its next start records
//! `LOST` for each intent without an outcome.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::OptionFuture;
use ringwall_policy::{Ask, Grant, Limits, NetMode, Verdict};
use ringwall_record::{ExecOwner, IntentResult, NewExec, Start, Status};
use ringwall_workspace::{Owner, Tree};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

use crate::approvals::PendingApproval;
use crate::blocking;
use crate::blocking::briefly;
use crate::disk::Disk;
use crate::error::{Error, causes};
use crate::exec::authorize::Directories;
use crate::exec::collect::CodeFiles;
use crate::exec::files::{OpenTarget, PreparedFiles, discard};
use crate::exec::host_paths::{host_mounts, unseen};
use crate::exec::outcome::{self, ExecResult};
use crate::exec::queue::{Admission, Slot};
use crate::exec::registry::{EndedExec, ExecState, Registration, RunningExec};
use crate::exec::spec::{ExecSpec, Target, control};
use crate::exec::submit::Submitted;
use crate::service::Service;
use crate::time::now;

/// A step of the sequence. The error is the result that ends the exec.
pub(crate) type Step<T> = Result<T, Box<ExecResult>>;

/// Result of recording the intent.
type Intended = Result<IntentResult, ringwall_record::Error>;

/// Tells `submit` that the exec is recorded or refused.
type Accepted = oneshot::Sender<Result<Submitted, Error>>;

/// How `submit` admitted the exec.
#[derive(Debug)]
pub(crate) enum Entry {
    Queue(Admission),
    /// Needs a person's approval first. Holds no slot and no queue position meanwhile.
    Approval(Ask),
}

/// One exec, owned by its task.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) service: Service,
    pub(crate) spec: ExecSpec,
    pub(crate) owner: Owner,
    /// As recorded; `start` and `policy_snapshot` change together with the record.
    pub(crate) intent: NewExec,
    /// State, cancellation and output, shared with the API.
    pub(crate) running: Arc<RunningExec>,
    pub(crate) registration: Registration,
    pub(crate) limits: Limits,
    pub(crate) net: NetMode,
    /// Number of approval questions so far.
    pub(crate) questions: u32,
    /// Prepared while the intent was being recorded, or kept while a person is asked again.
    pub(crate) early_files: Option<Step<PreparedFiles>>,
}

/// What the exec waits for next.
enum Position {
    Queue(Admission),
    Approval(Step<PendingApproval>),
}

enum Authorized {
    Run(Box<Grant>),
    /// Something that the exec needs is no longer allowed.
    Ask(Ask),
}

struct Finished {
    result: ExecResult,
    /// Stored while the outcome is being recorded.
    code_files: Option<CodeFiles>,
    slot: Option<Slot>,
}

impl From<Box<ExecResult>> for Finished {
    fn from(result: Box<ExecResult>) -> Self {
        Self { result: *result, code_files: None, slot: None }
    }
}

impl Exec {
    /// Spawned by `submit`. A caller that disconnects does not cancel the exec.
    pub(crate) async fn run_to_completion(
        self,
        entry: Entry,
        intending: impl Future<Output = Intended>,
        accepted: Accepted,
    ) {
        let (store, exec_id) = (self.service.inner.store.clone(), self.intent.exec_id.clone());
        let exec_owner = ExecOwner::from(&self.intent);
        if AssertUnwindSafe(self.run(entry, intending, accepted)).catch_unwind().await.is_err() {
            // Unwinding dropped the exec: its box is killed, its slot free, its registration gone.
            tracing::error!(%exec_id, "the task of an exec panicked");
            let result = ExecResult::internal("internal error; see the server's log");
            // Fails if the intent was never recorded or an outcome exists. Both are fine.
            let _ = store.finish(exec_owner, &result.to_row()).await;
        }
    }

    async fn run(mut self, entry: Entry, intending: impl Future<Output = Intended>, accepted: Accepted) {
        // An exec that starts at once has its empty files prepared while the intent is recorded.
        // Inputs are written only after the intent, and a request with an idempotency key may be a
        // repetition.
        let starts_now = matches!(entry, Entry::Queue(Admission::Immediate(_)));
        let is_early = starts_now && !self.spec.has_inputs() && self.spec.idempotency.is_none();
        let prepare = OptionFuture::from(is_early.then(|| self.prepare_files(Vec::new())));
        let (intended, early_files) = tokio::join!(intending, prepare);
        self.early_files = early_files;
        match intended {
            Ok(IntentResult::Recorded) => {}
            Ok(IntentResult::Known { exec_id, body_digest }) => {
                // Slot and files are freed before the caller gets the earlier exec.
                drop(entry);
                discard(self.early_files.take()).await;
                let _ = accepted.send(self.service.known(&self.spec, exec_id, body_digest).await);
                return;
            }
            Err(error) => {
                // An unconfirmed write may have been stored. Such an intent needs an outcome.
                let may_be_recorded = matches!(error, ringwall_record::Error::Unconfirmed(_));
                drop(entry);
                discard(self.early_files.take()).await;
                let _ = accepted.send(Err(error.into()));
                if may_be_recorded {
                    let result = ExecResult::internal("the database did not confirm the intent, so nothing was run");
                    self.record_outcome(Box::new(result).into()).await;
                }
                return;
            }
        }
        let status = self.intent.start.status();
        self.running.set_state(ExecState::At(status));
        let position = match entry {
            Entry::Queue(admission) => Position::Queue(admission),
            Entry::Approval(ask) => Position::Approval(self.open_approval(ask).await),
        };
        // Fails if the caller has disconnected; the exec runs regardless.
        let _ = accepted.send(Ok(Submitted { exec_id: self.intent.exec_id.clone(), status, known: false }));
        let finished = match self.attempt(position).await {
            Ok(finished) => finished,
            Err(result) => {
                discard(self.early_files.take()).await;
                result.into()
            }
        };
        self.record_outcome(finished).await;
    }

    /// The sequence between intent and outcome. Repeats if the last authorization asks a person
    /// again, because the path list or a covered file changed after the answer or in the queue.
    async fn attempt(&mut self, mut position: Position) -> Step<Finished> {
        loop {
            let admission = match position {
                Position::Queue(admission) => admission,
                Position::Approval(pending) => self.await_approval(pending?).await?,
            };
            let mut slot = Some(self.await_slot(admission).await?);
            let mut session_hold = self.hold_session(&mut slot).await?;
            // Held until the box has ended: meanwhile no update of the agent's shared skills is
            // written to the workspace.
            let _agent_box = match self.spec.target {
                Target::Agent { .. } => {
                    let boxes = &self.service.inner.agent_boxes;
                    Some(boxes.stay(&self.spec.user_id, &self.spec.agent_id).await)
                }
                Target::Project { .. } | Target::Session { .. } | Target::Code(_) => None,
            };
            let files = self.prepared_files().await?;
            let mut mounts = Vec::new();
            let result = match self.authorize_start(&files).await {
                Ok(Authorized::Run(grant)) => {
                    mounts = host_mounts(&grant);
                    let missing_path = unseen(&grant);
                    self.run_box(*grant, &files, &mut slot, &mut session_hold).await.with_missing_path(missing_path)
                }
                Ok(Authorized::Ask(ask)) => {
                    // Free for other execs while this one waits.
                    drop((slot, session_hold));
                    self.early_files = Some(Ok(files));
                    self.return_to_approval().await?;
                    position = Position::Approval(self.open_approval(ask).await);
                    continue;
                }
                Err(result) => *result,
            };
            let result = if self.spec.lacks_network(self.net) { result.without_network() } else { result };
            let meta = self.meta(&result, mounts);
            // Code has no artifacts directory, so collecting its files cannot change the result.
            if let Target::Code(_) = self.spec.target {
                return Ok(Finished { code_files: Some(CodeFiles { files, meta }), result, slot });
            }
            let PreparedFiles { target, files, disks, .. } = files;
            let result = block_in_place(|| self.collect_artifacts(files, result, meta));
            if let OpenTarget::Agent(tree) = target {
                self.heal_skills(tree).await;
            }
            disks.iter().for_each(Disk::measure_later);
            return Ok(Finished { result, code_files: None, slot });
        }
    }

    /// Waits in the queue if needed and records the start.
    async fn await_slot(&mut self, admission: Admission) -> Step<Slot> {
        let slot = match (admission, &self.intent.start) {
            // The intent was recorded as RUNNING.
            (Admission::Immediate(slot), Start::Running { .. }) => return Ok(slot),
            (Admission::Immediate(slot), Start::Queued | Start::AwaitingApproval | Start::Denied(_)) => slot,
            (Admission::Queued(ticket), _) => {
                let slot = tokio::select! {
                    biased;
                    reason = self.running.cancelled() => return Err(ExecResult::cancelled(reason).into()),
                    slot = ticket.wait() => slot,
                };
                slot.ok_or_else(|| ExecResult::internal("the exec queue was closed"))?
            }
        };
        let started_at = now();
        let begun = self.service.inner.store.begin(&self.intent.exec_id, started_at).await;
        begun.map_err(|error| self.not_recorded("the start", &error))?;
        self.intent.start = Start::Running { started_at };
        self.running.set_state(ExecState::At(Status::Running));
        Ok(slot)
    }

    /// Decides again with the opened directories and the current path list, and records the policy
    /// if it differs from the one in the intent.
    async fn authorize_start(&mut self, files: &PreparedFiles) -> Step<Authorized> {
        self.check_covered_files().await?;
        let grant = match self.service.authorize(&self.spec, self.owner, Directories::Opened(files)).await {
            Ok(Verdict::Allow(grant)) => grant,
            Ok(Verdict::Ask(ask)) => return Ok(Authorized::Ask(ask)),
            Ok(Verdict::Deny(_)) | Err(_) => {
                tracing::error!(exec_id = %self.intent.exec_id, "the policy refuses to mount the exec's directories");
                let message = "the exec's directories cannot be mounted into a box; see the server's log";
                return Err(ExecResult::internal(message).into());
            }
        };
        // Only an approval or the path list of a session can change the policy.
        if self.questions > 0 || matches!(self.spec.target, Target::Session { .. }) {
            let snapshot = self.spec.snapshot(grant.effective(), control(&grant));
            if snapshot != self.intent.policy_snapshot {
                let recorded = self.service.inner.store.record_policy(&self.intent, &snapshot, now()).await;
                recorded.map_err(|error| self.not_recorded("the policy", &error))?;
                self.intent.policy_snapshot = snapshot;
            }
        }
        Ok(Authorized::Run(Box::new(grant)))
    }

    pub(crate) fn not_recorded(&self, what: &str, error: &ringwall_record::Error) -> Box<ExecResult> {
        tracing::error!(exec_id = %self.intent.exec_id, error = %causes(error), "could not record {what}");
        ExecResult::internal(format!("could not record {what}, so nothing was run; see the server's log")).into()
    }

    /// Moves a `SKILL.md` that a script misplaced back to the root of its skill.
    async fn heal_skills(&self, tree: Tree) {
        let (user, agent) = (&self.spec.user_id, &self.spec.agent_id);
        let healed = match self.service.inner.agent_locks.read(user, agent).await {
            Ok(_reading) => blocking::in_place(|| Ok(tree.heal_skills()?)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = healed {
            // Listing the skills repairs them too.
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not repair misplaced skills");
        }
    }

    /// Records the one outcome and announces it.
    async fn record_outcome(self, Finished { mut result, code_files, slot }: Finished) {
        let write = outcome::write(&self.service.inner.store, &self.intent, result.to_row());
        let store_files = async { code_files.map(|files| briefly(|| self.store_code_files(files, &result))) };
        // `biased` sends the outcome to the record before the files are stored.
        let (view, created_files) = tokio::join!(biased; write, store_files);
        if let Some(created_files) = created_files {
            result.notes.created_files = created_files;
        }
        // A client that submits its next exec when it learns of the end finds the slot free.
        drop(slot);
        if let Some(view) = view {
            self.service.inner.counters.ended(&view.summary.user_id, view.summary.status, &view.summary.backend);
            self.running.set_state(ExecState::Over(Some(Arc::new(EndedExec { view, notes: result.notes }))));
        }
        // When the last registration is gone, the data directory can be opened again, so the
        // service, which locks it, goes first.
        let Self { service, registration, .. } = self;
        drop(service);
        drop(registration);
    }
}

impl From<Error> for Box<ExecResult> {
    fn from(error: Error) -> Self {
        ExecResult::failed(error.code(), error.to_string()).into()
    }
}
