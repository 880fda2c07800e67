//! Runs the box of an exec: starts it, waits for its end or stops it, and classifies the result.
//!
//! Every started box is waited for, also after a cancellation or a full disk.

use std::sync::Arc;
use std::time::Instant;

use ringwall_executor::aio_service::{AioError, AioService};
use ringwall_executor::docker::Runtime;
use ringwall_executor::pool::Lease;
use ringwall_executor::{Outcome, RunningBox, Streams};
use ringwall_ids::{AgentId, UserId};
use ringwall_policy::{Grant, Root};
use ringwall_workspace::Stream;
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::boxes::{Boxes, Hold, PooledBox};
use crate::disk::{Disk, watch_all};
use crate::egress::ExecGate;
use crate::error::causes;
use crate::exec::files::PreparedFiles;
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::{ExecResult, RunNotes, RunSummary};
use crate::exec::output::{capture, feed};
use crate::exec::queue::Slot;
use crate::exec::registry::{Cancellation, Lifetime};
use crate::exec::spec::{Backend, GvisorHome, Target};
use crate::service::Inner;

/// A started box and how this exec uses it.
#[derive(Debug)]
pub(crate) struct StartedBox {
    pub(crate) running: RunningBox,
    /// Set for a command in a session box, which outlives this exec.
    pub(crate) session: Option<SessionUse>,
    /// Receives a value before the box has ended, if the box reports more than its outcome.
    pub(crate) notes: Option<oneshot::Receiver<RunNotes>>,
}

/// The session resources of a command in a session box. The box is released when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionUse {
    pub(crate) session_box: Arc<PooledBox>,
    /// Decides on the box's connections while this command uses it.
    pub(crate) gate: Option<Arc<ExecGate>>,
    /// Receives the output of the command's terminal.
    pub(crate) screen: Option<mpsc::Sender<Vec<u8>>>,
    pub(crate) _stay: Stay,
}

/// A command's use of its session box. Released when dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held until it is dropped")]
pub(crate) enum Stay {
    /// Exclusive: no other command may start in the box.
    UntilStopped(Lease<Boxes>),
    /// Shared: other commands may start in the box.
    Beside(ringwall_executor::pool::Hold<Boxes>),
}

impl From<RunningBox> for StartedBox {
    fn from(running: RunningBox) -> Self {
        Self { running, session: None, notes: None }
    }
}

/// How a box ended, and the message if a full disk ended it.
type BoxEnd = (Result<Outcome, ringwall_executor::Error>, Option<String>);

impl Exec {
    pub(crate) async fn run_box(
        &self,
        grant: Grant,
        files: &PreparedFiles,
        slot: &mut Option<Slot>,
        session_hold: &mut Hold,
    ) -> ExecResult {
        let requested_at = Instant::now();
        let net = grant.effective().net.clone();
        // A cancellation does not interrupt the start: a box that comes up is stopped and waited
        // for, and a start that fails ends soon.
        let mut started = match (self.start_box(grant).await, self.running.cancellation()) {
            (Ok(started), _) => started,
            (Err(_), Some(reason)) => return ExecResult::cancelled(reason),
            (Err(error), None) => return self.explain(&error),
        };
        self.service.inner.counters.set_up(requested_at.elapsed());
        let mut memory_mb = self.limits.memory_mb;
        let (mut session_gate, mut screen) = (None, None);
        if let Some(session) = &mut started.session {
            memory_mb = session.session_box.session_box.memory_mb();
            (session_gate, screen) = (session.gate.clone(), session.screen.take());
            self.running.set_session_box(&session.session_box);
            // An exec that takes the session exclusively pauses the session's boxes, so it need
            // not wait for this one.
            *session_hold = Hold::Nothing;
            // Processes and terminals run until they are stopped. Their box counts against the
            // pool, so they free the slot for other execs.
            if self.running.lifetime() == Lifetime::UntilStopped {
                *slot = None;
            }
        }
        let notes = started.notes.take();
        let protections = json!(started.running.protections);
        let Streams { stdin, stdout, stderr } = started.running.take_streams();
        // A single-use box has its own egress proxy. A session box shares one, with a gate per exec.
        let proxy = self.proxy_socket(&net, started.running.proxy_socket.take());
        let ended = CancellationToken::new();
        let wait = async {
            let end = self.wait_for_end(started, &files.disks).await;
            ended.cancel();
            end
        };
        let serve_proxy = async { Some(proxy?.serve(ended.cancelled()).await) };
        let capture = |output, screen, stream: Stream, limit| {
            capture(output, screen, stream, files.files.output(stream).clone(), limit, &self.running, &ended)
        };
        // `biased` polls the box first: after it has ended, all other branches finish in the same
        // poll.
        let ((end, disk_full), gate, (), stdout, stderr) = tokio::join!(
            biased;
            wait,
            serve_proxy,
            feed(stdin, self.spec.stdin(), &ended),
            capture(stdout, screen, Stream::Stdout, self.limits.stdout_bytes),
            capture(stderr, None, Stream::Stderr, self.limits.stderr_bytes),
        );
        let refused_host = match gate.or(session_gate) {
            Some(gate) => self.record_connections(&gate).await,
            None => None,
        };
        let result = match (self.running.cancellation(), &end) {
            (Some(reason), _) => ExecResult::cancelled(reason),
            (None, Ok(outcome)) => ExecResult::of_outcome(outcome, self.limits.timeout_ms, memory_mb)
                .with_full_disk(disk_full)
                .with_refused_host(refused_host),
            (None, Err(error)) => self.explain(error),
        };
        let outcome = end.ok();
        let run = RunSummary {
            duration: outcome.as_ref().map_or_else(|| requested_at.elapsed(), |outcome| outcome.duration),
            protections,
            cpu: outcome.as_ref().and_then(|outcome| outcome.usage.cpu),
            peak_memory_bytes: outcome.as_ref().and_then(|outcome| outcome.usage.peak_memory_bytes),
            stdout,
            stderr,
        };
        let notes = notes.and_then(|mut notes| notes.try_recv().ok()).unwrap_or_default();
        ExecResult { run: Some(Box::new(run)), notes, ..result }
    }

    /// The backend was chosen at submit; no other one replaces it if it is unavailable. The
    /// assignment of the AIO service is checked again.
    async fn start_box(&self, grant: Grant) -> Result<StartedBox, ringwall_executor::Error> {
        let (inner, exec_id) = (&self.service.inner, self.intent.exec_id.as_str());
        let Target::Code(code) = &self.spec.target else {
            return Ok(inner.start_single_use(self.spec.backend, grant, exec_id).await?.into());
        };
        let service = inner.service_for(&self.spec.user_id, &self.spec.agent_id);
        match (self.spec.backend, service, code.context()) {
            (Backend::AioService, Some(service), _) => {
                let (report, notes) = oneshot::channel();
                let on_created = Box::new(|created: Result<Vec<String>, AioError>| {
                    if let Err(error) = &created {
                        tracing::warn!(%error, "could not list the files that code created on the AIO service");
                    }
                    let _ = report.send(RunNotes { created_files: created.ok(), cell: None });
                });
                let running = service.start(grant, exec_id, code.service_work(), on_created).await?;
                Ok(StartedBox { running, session: None, notes: Some(notes) })
            }
            (_, _, Some(context)) => self.start_cell(grant, code, context).await,
            (Backend::Aio, _, None) => self.start_in_session(grant, code).await,
            (backend, _, None) => Ok(inner.start_single_use(backend, grant, exec_id).await?.into()),
        }
    }

    /// Waits until all processes of the box are dead, also after a cancellation or a full disk.
    async fn wait_for_end(&self, started: StartedBox, disks: &[Disk]) -> BoxEnd {
        let StartedBox { running, session, .. } = started;
        let session_box = session.as_ref().map(|session| session.session_box.clone());
        let control = running.control();
        let end = async {
            let outcome = running.wait().await;
            // Releases the session box.
            drop(session);
            outcome
        };
        tokio::pin!(end);
        let reason = tokio::select! {
            biased;
            outcome = &mut end => {
                // Another exec of the session box may have filled the disk, which ends the box with
                // every exec in it.
                return (outcome, session_box.and_then(|it| it.full().map(str::to_owned)));
            }
            reason = self.running.cancelled() => reason,
            message = watch_all(disks) => {
                match &session_box {
                    Some(session_box) => session_box.end_as_full(message.clone()),
                    None => control.stop(Signal::KILL).await,
                }
                return (end.await, Some(message));
            }
        };
        let stop = async {
            // Stopping a command of a paused session box resumes the box for up to 1 s. While an
            // approved command holds the session exclusively, other processes of the box could
            // change the approved files in that time. So wait until the session is shared again.
            let _shared = match (&session_box, reason, &self.running.session) {
                (Some(_), Cancellation::ByCaller | Cancellation::HungUp, Some(name)) => {
                    Some(self.service.inner.session_gates.share(name).await)
                }
                _ => None,
            };
            match reason {
                Cancellation::ByCaller => control.stop(Signal::TERM).await,
                Cancellation::HungUp => control.stop(Signal::HUP).await,
                // No grace period: `drain` waits 12 s for all boxes together.
                Cancellation::ServerStops => control.stop(Signal::KILL).await,
            }
            std::future::pending().await
        };
        let outcome = tokio::select! {
            biased;
            outcome = &mut end => outcome,
            never = stop => never,
        };
        (outcome, session_box.and_then(|it| it.full().map(str::to_owned)))
    }

    fn explain(&self, error: &ringwall_executor::Error) -> ExecResult {
        let result = ExecResult::of_error(error);
        if result.exit_code.is_none() {
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(error), "could not create or run a box");
        }
        result
    }
}

impl Inner {
    /// The external AIO service that is assigned to this workspace, if any.
    pub(crate) fn service_for(&self, user: &UserId, agent: &AgentId) -> Option<&AioService> {
        let assigned = self.aio.as_ref().filter(|assigned| (&assigned.user, &assigned.agent) == (user, agent));
        assigned.map(|assigned| &assigned.service)
    }

    pub(crate) fn gvisor_home(&self) -> GvisorHome {
        match self.backends.executor.gvisor() {
            Ok(_) => GvisorHome::Host,
            Err(_) => GvisorHome::Docker,
        }
    }

    /// Starts a box that ends with its command.
    pub(crate) async fn start_single_use(
        &self,
        backend: Backend,
        grant: Grant,
        exec_id: &str,
    ) -> Result<RunningBox, ringwall_executor::Error> {
        match backend {
            Backend::Native => self.start_native(grant).await,
            Backend::Docker => self.backends.docker.start(grant, exec_id, Runtime::Default).await,
            // Docker runs its own images with gVisor as the runtime.
            Backend::Gvisor => match grant.root() {
                Root::Docker(_) => self.backends.docker.start(grant, exec_id, Runtime::Gvisor).await,
                Root::Host | Root::Image(_) => self.backends.executor.start_on_gvisor(grant).await,
            },
            Backend::Aio => Err(ringwall_executor::Error::NotForThisBox { what: "files" }),
            Backend::AioService => Err(AioError::NotForService("anything but code of its own workspace").into()),
        }
    }
}
