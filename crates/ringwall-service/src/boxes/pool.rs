//! The pool's boxes: session boxes and warm boxes, counted together.
//!
//! A warm box only saves start-up time: if none fits, a box is made from scratch and the client
//! sees no difference. With `pool.min_instances` of 0 no warm box is made.

use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ringwall_executor::Executor;
use ringwall_executor::docker::{ContainerShape, ContainerSpare, Docker};
use ringwall_executor::pool::{Maker, Pace, Pool, Sort};
use ringwall_executor::warm::{Spare, SpareSort};

use super::session_box::{BoxKey, SessionBox};
use crate::error::causes;

pub(crate) type BoxPool = Pool<Boxes>;

/// The backends that make boxes. Dropping it waits for the end of every box.
#[derive(Debug)]
pub(crate) struct Makers {
    pub(crate) executor: Executor,
    pub(crate) docker: Docker,
    /// The lock of the data directory, held because boxes keep files there.
    pub(crate) _lock: Arc<File>,
}

/// Makes and ends boxes for the pool. The reference is weak, so that the pool does not keep the
/// server alive.
#[derive(Debug)]
pub(crate) struct Boxes {
    makers: Weak<Makers>,
}

impl Boxes {
    pub(crate) fn of(makers: &Arc<Makers>) -> Self {
        Self { makers: Arc::downgrade(makers) }
    }
}

/// The kinds of warm boxes: native boxes for single execs, and containers for session boxes.
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
    type Tools = Arc<Makers>;

    fn tools(&self) -> Option<Arc<Makers>> {
        self.makers.upgrade()
    }

    async fn make_spare(makers: &Arc<Makers>, sort: &BoxSort) -> Option<SpareBox> {
        let was_possible = makers.docker.is_for_spares();
        let (made, kind) = match sort {
            BoxSort::Native(sort) => {
                let made = makers.executor.prepare_spare(sort).await;
                (made.map(|spare| SpareBox::Native(Box::new(spare))), format!("{:?}", sort.kind))
            }
            BoxSort::Container(shape) => {
                let made = makers.docker.prepare_spare(&makers.executor, shape).await;
                (made.map(|spare| SpareBox::Container(Box::new(spare))), "Container".to_owned())
            }
        };
        let failed = |error: &ringwall_executor::Error| match (sort, was_possible) {
            // Already logged when warm containers turned out not to work here.
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
        // The connections of the box are recorded before this returns.
        if let Some(way) = &resident.way {
            way.closed().await;
        }
    }
}
