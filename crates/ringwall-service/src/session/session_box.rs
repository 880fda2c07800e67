//! Session boxes: an exec with the backend `aio` runs in the box of its session and finds the files
//! and processes that earlier execs left there.
//!
//! This file gets a box from the pool or creates it, starts execs in it, pauses and resumes it, and
//! ends it when its session's files are gone or too large.
//!
//! Two concurrent callers get the same box, one after the other. The box has its own grant: the
//! most that the settings allow any code of the session. For each exec the box checks that the
//! exec's grant fits into it.

use std::sync::Arc;
use std::time::Duration;

use ringwall_executor::RunningBox;
use ringwall_executor::docker::Runtime;
use ringwall_executor::pool::{Lease, OnBusy, Refused};
use ringwall_executor::session_box::{Enabled, ProcessOptions};
use ringwall_policy::{Field, Grant, Isolation, Layers, Request, Root, UNLIMITED, Verdict};
use ringwall_record::SessionKey;
use tokio::sync::mpsc;

use crate::auth::principal::Principal;
use crate::boxes::{BoxKey, Boxes, PooledBox, ProcessHandle, Shared};
use crate::egress::{ExecGate, SessionProxy};
use crate::error::Error;
use crate::exec::code::{CodeSpec, Input};
use crate::exec::lifecycle::Exec;
use crate::exec::registry::Cancellation;
use crate::exec::run::{SessionUse, StartedBox, Stay};
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// The argv of the box's grant, which is replaced by the agent.
const AGENT: &str = "ringwall-agent";
/// Interval of the quota checks. Background processes may write when no exec watches the disk.
const QUOTA_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl Exec {
    pub(crate) async fn start_in_session(
        &self,
        grant: Grant,
        code: &CodeSpec,
    ) -> Result<StartedBox, ringwall_executor::Error> {
        let lease = self.enter_session_box(&grant, code).await?;
        let session_box = lease.session_box().clone();
        let gate = self.open_gate(session_box.proxy.as_ref(), &grant.effective().net);
        match self.start_process(lease, grant, code).await {
            Ok((running, screen, stay)) => {
                let session = SessionUse { session_box, gate, screen, _stay: stay };
                Ok(StartedBox { running, session: Some(session), notes: None })
            }
            Err(error) => {
                self.close_gate(gate).await;
                Err(error)
            }
        }
    }

    async fn start_process(
        &self,
        lease: Lease<Boxes>,
        grant: Grant,
        code: &CodeSpec,
    ) -> Result<(RunningBox, Option<mpsc::Sender<Vec<u8>>>, Stay), ringwall_executor::Error> {
        let given = if code.input().is_empty() { Enabled::No } else { Enabled::Yes };
        let (stdin, terminal) = match &code.stdin {
            Input::Ends => (given, None),
            Input::Open => (Enabled::Yes, None),
            Input::Terminal(handle) => (Enabled::Yes, Some(handle.size)),
        };
        let options = ProcessOptions { stdin, terminal, ..ProcessOptions::default() };
        let mut started = lease.session_box().session_box.process(grant, options).await?;
        let process = started.process.clone();
        let screen = match &code.stdin {
            Input::Ends => return Ok((started.into_running(), None, Stay::UntilStopped(lease))),
            Input::Open => {
                self.running.set_process(ProcessHandle::new(process, started.streams.stdin.take()));
                None
            }
            Input::Terminal(handle) => {
                self.running.set_process(ProcessHandle::new(process.clone(), None));
                if !handle.offer(process, started.streams.stdin.take()) {
                    self.running.cancel(Cancellation::HungUp);
                }
                Some(handle.screen.clone())
            }
        };
        let ending = || ringwall_executor::Error::BoxDied { why: "it was ended meanwhile".to_owned() };
        let hold = lease.hold().ok_or_else(ending)?;
        Ok((started.into_running(), screen, Stay::Beside(hold)))
    }

    /// Records the connections of an exec that did not start: other processes of the box may have
    /// opened some while it was responsible for the box's network.
    pub(crate) async fn close_gate(&self, gate: Option<Arc<ExecGate>>) {
        if let Some(gate) = gate {
            self.record_connections(&gate).await;
        }
    }

    /// Exclusive use of the session box, with the isolation that was chosen.
    pub(crate) async fn enter_session_box(
        &self,
        grant: &Grant,
        code: &CodeSpec,
    ) -> Result<Lease<Boxes>, ringwall_executor::Error> {
        let key = BoxKey::new(&code.session, code.isolation);
        let box_grant = || session_box_grant(grant, &self.spec.layers, &[AGENT.to_owned()]);
        let name = format!("box-{}", self.intent.exec_id);
        tokio::select! {
            biased;
            lease = self.service.enter_box(&key, box_grant, name, code.on_busy()) => lease,
            // A cancelled exec stops waiting for the box.
            _ = self.running.cancelled() => Err(ringwall_executor::Error::PoolStopped),
        }
    }
}

impl Service {
    /// Exclusive use of a session box. If there is none yet, it is created under `name` with the
    /// grant that `box_grant` returns.
    pub(crate) async fn enter_box(
        &self,
        key: &BoxKey,
        box_grant: impl FnOnce() -> Result<Grant, ringwall_executor::Error>,
        name: String,
        on_busy: OnBusy,
    ) -> Result<Lease<Boxes>, ringwall_executor::Error> {
        let make = || {
            let (service, key, grant) = (self.clone(), key.clone(), box_grant());
            async move { make(service, key, grant?, name).await }
        };
        self.inner.boxes.acquire(key, on_busy, make).await.map_err(refused)
    }

    /// Freezes every process in the session's boxes. Their timeouts stop too. Every client that may
    /// use the session may pause and resume it.
    pub async fn pause_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        let (_shared, boxes) = self.boxes_of(by, address)?;
        for pooled in boxes {
            pooled.session_box.pause().await.map_err(conflict)?;
        }
        Ok(())
    }

    pub async fn resume_session(&self, by: &Principal, address: &SessionAddress) -> Result<(), Error> {
        let (_shared, boxes) = self.boxes_of(by, address)?;
        for pooled in boxes {
            pooled.session_box.resume().await.map_err(conflict)?;
        }
        Ok(())
    }

    /// Fails while an approved command has exclusive use of the session: its boxes stay paused
    /// then.
    fn boxes_of(&self, by: &Principal, address: &SessionAddress) -> Result<(Shared, Vec<Arc<PooledBox>>), Error> {
        let session = address.resolve(by)?;
        let shared = self.inner.session_gates.try_share(&session)?;
        let boxes: Vec<_> = self.session_boxes(&session).into_iter().map(|(_, pooled)| pooled).collect();
        if boxes.is_empty() {
            return Err(Error::NotFound { what: format!("box of the session {}", session.session_id) });
        }
        Ok((shared, boxes))
    }

    /// Ends the boxes of a session and waits until they are gone.
    pub(crate) async fn end_boxes(&self, session: &SessionKey) {
        for (key, pooled) in self.session_boxes(session) {
            self.inner.boxes.dismiss(&key);
            pooled.session_box.end().await;
        }
    }

    /// The existing boxes of a session, at most one per isolation.
    pub(super) fn session_boxes(&self, session: &SessionKey) -> Vec<(BoxKey, Arc<PooledBox>)> {
        let keys = Isolation::ALL.map(|isolation| BoxKey::new(session, isolation));
        keys.into_iter().filter_map(|key| Some((key.clone(), self.inner.boxes.find(&key)?))).collect()
    }

    /// Ends the browsers and boxes of sessions whose files no longer exist.
    pub(crate) async fn end_orphaned_boxes(&self) {
        for session in self.inner.browsers.unused_sessions() {
            if matches!(self.session_times(&session).await, Ok(None)) {
                self.inner.browsers.dismiss_unused(&self.inner.store, &session).await;
            }
        }
        for BoxKey { session, .. } in self.inner.boxes.keys() {
            if matches!(self.session_times(&session).await, Ok(None)) {
                self.end_boxes(&session).await;
            }
        }
    }

    /// Starts the task that ends boxes which exceed a disk quota. It holds a weak reference between
    /// checks, so that it does not keep the service alive.
    pub(crate) fn check_box_quotas_on_schedule(&self) {
        let inner = Arc::downgrade(&self.inner);
        self.run_in_background(async move {
            loop {
                tokio::time::sleep(QUOTA_CHECK_INTERVAL).await;
                let Some(inner) = inner.upgrade() else { return };
                Service { inner }.check_box_quotas().await;
            }
        });
    }

    /// Skips paused boxes: their processes cannot write.
    async fn check_box_quotas(&self) {
        let boxes = &self.inner.boxes;
        for key in boxes.keys() {
            let Some(pooled) = boxes.find(&key) else { continue };
            if pooled.session_box.is_paused() {
                continue;
            }
            for disk in self.session_disks(&key.session, &pooled.workspace) {
                if let Some(message) = disk.check_if_due().await {
                    pooled.end_as_full(message);
                    break;
                }
            }
        }
    }
}

/// The grant of a session box or of an interpreter in it: the most that the session's code may
/// have. It has no timeout, because each exec has its own.
pub(crate) fn session_box_grant(
    grant: &Grant,
    layers: &Layers,
    argv: &[String],
) -> Result<Grant, ringwall_executor::Error> {
    let request = Request {
        argv: argv.iter().map(Into::into).collect(),
        env: Default::default(),
        cwd: Some(grant.cwd().to_owned()),
        root: grant.root().clone(),
        workspace: grant.workspace().clone(),
        read_only: grant.read_only().to_vec(),
    };
    let mut layers = layers.clone();
    // Limits of one exec do not apply to the box. Other narrowing, such as that of the network,
    // does.
    layers.narrowing.iter_mut().for_each(|layer| layer.limits.clear());
    layers.operator.limits.remove(&Field::TimeoutMs);
    (layers.system.timeout_ms, layers.ceilings.limits.timeout_ms) = (UNLIMITED, UNLIMITED);
    match ringwall_policy::decide(&request, &layers) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Ask(_) | Verdict::Deny(_) => Err(ringwall_executor::Error::NotForThisBox { what: "files" }),
    }
}

async fn make(
    service: Service,
    key: BoxKey,
    grant: Grant,
    name: String,
) -> Result<PooledBox, ringwall_executor::Error> {
    let inner = &service.inner;
    let unknown = || ringwall_executor::Error::NotForThisBox { what: "files" };
    let workspace = service.session_workspace(&key.session).await.map_err(|_| unknown())?;
    let mut session_box = match (key.isolation, grant.root()) {
        (Isolation::Native, _) => inner.backends.executor.start_session_box(grant).await,
        (Isolation::Gvisor, Root::Host | Root::Image(_)) => {
            inner.backends.executor.start_session_box_on_gvisor(grant).await
        }
        (Isolation::Gvisor, Root::Docker(_)) => {
            inner.backends.docker.start_session_box(grant, &name, Runtime::Gvisor).await
        }
        (Isolation::Docker, _) => inner.backends.docker.start_session_box(grant, &name, Runtime::Default).await,
    }?;
    let proxy = session_box.proxy_socket.take().map(|listener| {
        let lifted = service.settings_now().egress.allowed_hosts.clone();
        SessionProxy::open(listener, lifted, session_box.gone(), service.record_late_networks())
    });
    Ok(PooledBox::new(session_box, proxy, workspace))
}

fn refused(refused: Refused<ringwall_executor::Error>) -> ringwall_executor::Error {
    match refused {
        Refused::Failed(error) => error,
        Refused::Busy => ringwall_executor::Error::SessionBusy,
        Refused::TimedOut => ringwall_executor::Error::PoolFull,
        Refused::Stopped => ringwall_executor::Error::PoolStopped,
        Refused::Ended => ringwall_executor::Error::BoxDied { why: "it was ended while it was being made".to_owned() },
    }
}

fn conflict(error: ringwall_executor::Error) -> Error {
    Error::Conflict { message: error.to_string() }
}
