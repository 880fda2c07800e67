//! The way into a session's box: found in the pool, or made. Two who want it at once get the same one, one after the other.
//!
//! The box has a grant of its own, as wide as the settings let any code of the session be; what an exec was granted is held
//! against it once more, by the box.

use executor::docker::Runtime;
use executor::pool::{Lease, Refused};
use policy::{Grant, Isolation, Layers, Request, Root, Verdict};

use crate::code::CodeOrder;
use crate::contexts::{BoxKey, SessionBox};
use crate::pool::Boxes;
use crate::run_exec::Exec;
use crate::service::Service;

/// What the box's own command is called, before it is the agent.
const AGENT: &str = "ringwall-agent";

impl Exec {
    /// The sole use of its session's box, as strong as was decided.
    pub(crate) async fn enter_session_box(
        &self,
        grant: &Grant,
        code: &CodeOrder,
    ) -> Result<Lease<Boxes>, executor::Error> {
        let key = BoxKey::new(&code.place, code.home);
        let home = home_grant(grant, &self.order.layers, &[AGENT.to_owned()])?;
        let make = make(self.service.clone(), code.home, home, format!("box-{}", self.intent.exec_id));
        let acquiring = self.service.inner.boxes.acquire(&key, code.on_busy(), make);
        tokio::select! {
            biased;
            lease = acquiring => lease.map_err(refused),
            // Whoever gives up does not wait for others.
            _ = self.live.cancelled() => Err(executor::Error::PoolStopped),
        }
    }
}

/// A grant for a command that stays in the session's box: all that the session's code may have at most, and no time limit
/// but each run's own.
pub(crate) fn home_grant(grant: &Grant, layers: &Layers, argv: &[String]) -> Result<Grant, executor::Error> {
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
        Verdict::Ask(_) | Verdict::Deny(_) => Err(executor::Error::NotForThisBox { what: "the files" }),
    }
}

async fn make(
    service: Service,
    isolation: Isolation,
    grant: Grant,
    name: String,
) -> Result<SessionBox, executor::Error> {
    let inner = &service.inner;
    let resident = match (isolation, grant.root()) {
        (Isolation::Native, _) => inner.executor.start_resident(grant).await,
        (Isolation::Gvisor, Root::Host | Root::Image(_)) => inner.executor.start_resident_on_gvisor(grant).await,
        (Isolation::Gvisor, Root::Docker(_)) => inner.docker.start_resident(grant, &name, Runtime::Gvisor).await,
        (Isolation::Docker, _) => inner.docker.start_resident(grant, &name, Runtime::Usual).await,
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
