//! The boxes that this server keeps, in one account: those of sessions, and those that were made ahead.
//!
//! A box made ahead, a *spare*, only saves time. Whatever one cannot do, a box made from nothing does, and nobody is told the
//! difference. Where the settings want no instance at least (`pool.min_instances` of 0), none is made.

use std::sync::{Arc, PoisonError, Weak};

use executor::pool::{Maker, Pool};
use executor::warm::{Spare, SpareSort};
use executor::{Options, Running};
use policy::Grant;

use crate::contexts::{BoxKey, SessionBox};
use crate::error::causes;
use crate::service::Inner;

pub(crate) type BoxPool = Pool<Boxes>;

/// The pool's hands.
#[derive(Debug)]
pub(crate) struct Boxes {
    server: Weak<Inner>,
}

impl Boxes {
    pub(crate) fn of(server: &Weak<Inner>) -> Self {
        Self { server: server.clone() }
    }
}

impl Maker for Boxes {
    type Key = BoxKey;
    type Kind = SpareSort;
    type Resident = SessionBox;
    type Spare = Spare;
    type Tools = Arc<Inner>;

    fn tools(&self) -> Option<Arc<Inner>> {
        self.server.upgrade()
    }

    async fn make_spare(server: &Arc<Inner>, sort: &SpareSort) -> Option<Spare> {
        let made = server.executor.prepare_spare(sort).await;
        made.inspect_err(|error| {
            tracing::info!(kind = ?sort.kind, error = %causes(error), "could not make a box ahead");
        })
        .ok()
    }

    fn is_alive(spare: &Spare) -> bool {
        spare.is_alive()
    }

    async fn end_spare(spare: Spare) {
        spare.end().await;
    }

    async fn died(resident: &SessionBox) {
        resident.resident.died().await;
    }

    async fn end(resident: Arc<SessionBox>) {
        resident.resident.end().await;
        // What it asked of the network is on record when it is gone.
        if let Some(way) = &resident.way {
            way.closed().await;
        }
    }
}

impl Inner {
    /// A native box for this grant: a spare that serves it, or one made from nothing.
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<Running, executor::Error> {
        let are_made = self.settings.read().unwrap_or_else(PoisonError::into_inner).pool.bounds().min_instances > 0;
        let sort = if are_made { self.executor.sort_for(&grant) } else { None };
        let spare = sort.and_then(|sort| self.boxes.take_spare(&sort));
        if let Some(spare) = spare {
            match self.executor.start_spare(spare, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a box made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.executor.start(grant, Options::default()).await
    }
}
