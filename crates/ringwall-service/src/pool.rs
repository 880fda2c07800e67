//! The boxes that this server keeps, in one account: those of sessions, and those that were made ahead.
//!
//! A box made ahead, a *spare*, only saves time. Whatever one cannot do, a box made from nothing does, and nobody is told the
//! difference. Where the settings want no instance at least (`pool.min_instances` of 0), none is made.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use ringwall_executor::docker::{ContainerShape, ContainerSpare, Runtime};
use ringwall_executor::pool::{Maker, Pace, Pool, Sort};
use ringwall_executor::session_box::Resident;
use ringwall_executor::warm::{Spare, SpareSort};
use ringwall_executor::{Options, RunningBox};
use ringwall_policy::Grant;

use crate::error::causes;
use crate::service::Inner;
use crate::session::context::{BoxKey, SessionBox};

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

/// What is made ahead: boxes on the host's system for single runs, and containers for sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BoxSort {
    Native(SpareSort),
    Container(ContainerShape),
}

#[derive(Debug)]
pub(crate) enum SpareBox {
    Native(Box<Spare>),
    Container(Box<ContainerSpare>),
}

impl Sort for BoxSort {
    fn pause(&self, waiting: usize) -> Duration {
        match self {
            BoxSort::Native(sort) => sort.pause(waiting),
            BoxSort::Container(shape) => shape.pause(waiting),
        }
    }

    fn pace(&self) -> Pace {
        match self {
            BoxSort::Native(sort) => sort.pace(),
            BoxSort::Container(shape) => shape.pace(),
        }
    }
}

impl Maker for Boxes {
    type Key = BoxKey;
    type Kind = BoxSort;
    type Resident = SessionBox;
    type Spare = SpareBox;
    type Tools = Arc<Inner>;

    fn tools(&self) -> Option<Arc<Inner>> {
        self.server.upgrade()
    }

    async fn make_spare(server: &Arc<Inner>, sort: &BoxSort) -> Option<SpareBox> {
        let was_possible = server.docker.is_for_spares();
        let (made, kind) = match sort {
            BoxSort::Native(sort) => {
                let made = server.executor.prepare_spare(sort).await;
                (made.map(|spare| SpareBox::Native(Box::new(spare))), format!("{:?}", sort.kind))
            }
            BoxSort::Container(shape) => {
                let made = server.docker.prepare_spare(&server.executor, shape).await;
                (made.map(|spare| SpareBox::Container(Box::new(spare))), "Container".to_owned())
            }
        };
        let failed = |error: &ringwall_executor::Error| match (sort, was_possible) {
            // It was said when that was found out.
            (BoxSort::Container(_), false) => {}
            (BoxSort::Native(_) | BoxSort::Container(_), _) => {
                tracing::info!(%kind, error = %causes(error), "could not make a box ahead");
            }
        };
        made.inspect_err(failed).ok()
    }

    fn is_alive(spare: &SpareBox) -> bool {
        match spare {
            SpareBox::Native(spare) => spare.is_alive(),
            SpareBox::Container(spare) => spare.is_alive(),
        }
    }

    async fn end_spare(spare: SpareBox) {
        match spare {
            SpareBox::Native(spare) => spare.end().await,
            SpareBox::Container(spare) => spare.end().await,
        }
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
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<RunningBox, ringwall_executor::Error> {
        let sort = if self.makes_spares() { self.executor.sort_for(&grant) } else { None };
        if let Some(SpareBox::Native(spare)) = sort.and_then(|sort| self.boxes.take_spare(&BoxSort::Native(sort))) {
            match self.executor.start_spare(*spare, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a box made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.executor.start(grant, Options::default()).await
    }

    /// A session's box by docker: a container that waits for one, or one made from nothing under this name. It is the
    /// pool's by the place of its session from before this is called, so that what is taken out here is never uncounted.
    pub(crate) async fn settle_on_docker(
        &self,
        mut grant: Grant,
        name: &str,
    ) -> Result<Resident, ringwall_executor::Error> {
        let shape = if self.makes_spares() { self.docker.shape_for(&self.executor, &grant).await } else { None };
        let spare = shape.and_then(|shape| self.boxes.take_spare(&BoxSort::Container(shape)));
        if let Some(SpareBox::Container(spare)) = spare {
            match self.docker.start_resident_in(&self.executor, *spare, grant).await {
                Ok(resident) => return Ok(resident),
                Err(unserved) => {
                    tracing::info!(error = %causes(&unserved.error), "a container made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.docker.start_resident(grant, name, Runtime::Usual).await
    }

    fn makes_spares(&self) -> bool {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).pool.bounds().min_instances > 0
    }
}
