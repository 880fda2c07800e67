//! Gets a session box from the pool, or creates it. Two concurrent callers get the same box, one
//! after the other.
//!
//! The box has its own grant: the most that the settings allow any code of the session. For each
//! exec the box checks that the exec's grant fits into it.

use ringwall_executor::docker::Runtime;
use ringwall_executor::pool::{Lease, OnBusy, Refused};
use ringwall_policy::{Field, Grant, Isolation, Layers, Request, Root, UNLIMITED, Verdict};

use crate::boxes::Boxes;
use crate::boxes::{BoxKey, PooledBox};
use crate::egress::SessionWay;
use crate::exec::code::CodeSpec;
use crate::exec::lifecycle::Exec;
use crate::service::Service;

/// The argv of the box's grant, which is replaced by the agent.
const AGENT: &str = "ringwall-agent";

impl Exec {
    /// Exclusive use of the session box, with the isolation that was chosen.
    pub(crate) async fn enter_session_box(
        &self,
        grant: &Grant,
        code: &CodeSpec,
    ) -> Result<Lease<Boxes>, ringwall_executor::Error> {
        let key = BoxKey::new(&code.place, code.home);
        let home = || home_grant(grant, &self.spec.layers, &[AGENT.to_owned()]);
        let name = format!("box-{}", self.intent.exec_id);
        tokio::select! {
            biased;
            lease = self.service.enter_box(&key, code.home, home, name, code.on_busy()) => lease,
            // A cancelled exec stops waiting for the box.
            _ = self.running.cancelled() => Err(ringwall_executor::Error::PoolStopped),
        }
    }
}

impl Service {
    /// Exclusive use of a session box. Only if there is none yet, `home` decides its grant and the
    /// box is created under `name`.
    pub(crate) async fn enter_box(
        &self,
        key: &BoxKey,
        isolation: Isolation,
        home: impl FnOnce() -> Result<Grant, ringwall_executor::Error>,
        name: String,
        on_busy: OnBusy,
    ) -> Result<Lease<Boxes>, ringwall_executor::Error> {
        let make = || {
            let (service, key, home) = (self.clone(), key.clone(), home());
            async move { make(service, key, isolation, home?, name).await }
        };
        self.inner.boxes.acquire(key, on_busy, make).await.map_err(refused)
    }
}

/// The grant of a session box or of an interpreter in it: the most that the session's code may
/// have. It has no timeout, because each exec has its own.
pub(crate) fn home_grant(grant: &Grant, layers: &Layers, argv: &[String]) -> Result<Grant, ringwall_executor::Error> {
    let request = Request {
        argv: argv.iter().map(Into::into).collect(),
        env: Default::default(),
        cwd: Some(grant.cwd().to_owned()),
        root: grant.root().clone(),
        workspace: grant.workspace().clone(),
        read_only: grant.read_only().to_vec(),
    };
    let mut layers = layers.clone();
    // Limits of one exec do not apply to the box. Other narrowing, in particular of the network,
    // stays.
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
    isolation: Isolation,
    grant: Grant,
    name: String,
) -> Result<PooledBox, ringwall_executor::Error> {
    let inner = &service.inner;
    let unknown = || ringwall_executor::Error::NotForThisBox { what: "files" };
    let place = key.place().ok_or_else(unknown)?;
    let workspace = service.session_workspace(&place.name).await.map_err(|_| unknown())?;
    let session_box = match (isolation, grant.root()) {
        (Isolation::Native, _) => inner.backends.executor.start_session_box(grant).await,
        (Isolation::Gvisor, Root::Host | Root::Image(_)) => {
            inner.backends.executor.start_session_box_on_gvisor(grant).await
        }
        (Isolation::Gvisor, Root::Docker(_)) => {
            inner.backends.docker.start_session_box(grant, &name, Runtime::Gvisor).await
        }
        (Isolation::Docker, _) => inner.settle_on_docker(grant, &name).await,
    };
    let mut session_box = session_box?;
    let lifted = || service.settings_now().egress.allowed_hosts.clone();
    let way = session_box
        .proxy_socket
        .take()
        .map(|listener| SessionWay::open(listener, lifted(), session_box.gone(), service.record_late_networks()));
    Ok(PooledBox::new(session_box, way, workspace))
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
