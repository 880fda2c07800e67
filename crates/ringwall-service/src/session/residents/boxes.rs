//! The way into a session's box: found in the pool, or made. Two who want it at once get the same one, one after the other.
//!
//! The box has a grant of its own, as wide as the settings let any code of the session be; what an exec was granted is held
//! against it once more, by the box.

use ringwall_executor::docker::Runtime;
use ringwall_executor::pool::{Lease, OnBusy, Refused};
use ringwall_policy::{Field, Grant, Isolation, Layers, Request, Root, UNLIMITED, Verdict};

use crate::boxes::Boxes;
use crate::boxes::{BoxKey, SessionBox};
use crate::egress::SessionWay;
use crate::exec::code::CodeOrder;
use crate::exec::lifecycle::Exec;
use crate::service::Service;

/// What the box's own command is called, before it is the agent.
const AGENT: &str = "ringwall-agent";

impl Exec {
    /// The sole use of its session's box, as strong as was decided.
    pub(crate) async fn enter_session_box(
        &self,
        grant: &Grant,
        code: &CodeOrder,
    ) -> Result<Lease<Boxes>, ringwall_executor::Error> {
        let key = BoxKey::new(&code.place, code.home);
        let home = || home_grant(grant, &self.order.layers, &[AGENT.to_owned()]);
        let name = format!("box-{}", self.intent.exec_id);
        tokio::select! {
            biased;
            lease = self.service.enter_box(&key, code.home, home, name, code.on_busy()) => lease,
            // Whoever gives up does not wait for others.
            _ = self.live.cancelled() => Err(ringwall_executor::Error::PoolStopped),
        }
    }
}

impl Service {
    /// The sole use of a session's box, made by this grant and under this name where there is none. Most have one: then nothing
    /// is decided.
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

/// A grant for a command that stays in the session's box: all that the session's code may have at most, and no time limit
/// but each run's own.
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
    // A run's own limits are not the box's; whatever else was narrowed, the network above all, stays so.
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
) -> Result<SessionBox, ringwall_executor::Error> {
    let inner = &service.inner;
    let unknown = || ringwall_executor::Error::NotForThisBox { what: "files" };
    let place = key.place().ok_or_else(unknown)?;
    let workspace = service.session_workspace(&place.name).await.map_err(|_| unknown())?;
    let resident = match (isolation, grant.root()) {
        (Isolation::Native, _) => inner.makers.executor.start_resident(grant).await,
        (Isolation::Gvisor, Root::Host | Root::Image(_)) => inner.makers.executor.start_resident_on_gvisor(grant).await,
        (Isolation::Gvisor, Root::Docker(_)) => inner.makers.docker.start_resident(grant, &name, Runtime::Gvisor).await,
        (Isolation::Docker, _) => inner.settle_on_docker(grant, &name).await,
    };
    let mut resident = resident?;
    let lifted = || service.settings_now().egress.allowed_hosts.clone();
    let way = resident
        .proxy_socket
        .take()
        .map(|listener| SessionWay::open(listener, lifted(), resident.gone(), service.record_late_networks()));
    Ok(SessionBox::new(resident, way, workspace))
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
