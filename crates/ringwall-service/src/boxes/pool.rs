//! The pool's boxes: session boxes and warm boxes, counted together.
//!
//! A warm box only saves start-up time: if none fits, a box is made from scratch and the client
//! sees no difference. With `pool.min_instances` of 0 no warm box is made.

use std::fs::File;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ringwall_executor::Executor;
use ringwall_executor::docker::{ContainerShape, Docker, WarmContainer};
use ringwall_executor::pool::{Pace, Pool, PoolBoxes, Sort};
use ringwall_executor::warm::{WarmBox, WarmSpec};

use super::pooled_box::{BoxKey, PooledBox};
use crate::error::causes;

pub(crate) type BoxPool = Pool<Boxes>;

/// The backends that make boxes. Dropping it waits for the end of every box.
#[derive(Debug)]
pub(crate) struct BoxBackends {
    pub(crate) executor: Executor,
    pub(crate) docker: Docker,
    /// The lock of the data directory, held because boxes keep files there.
    pub(crate) _lock: Arc<File>,
}

/// Makes and ends boxes for the pool. The reference is weak, so that the pool does not keep the
/// server alive.
#[derive(Debug)]
pub(crate) struct Boxes {
    backends: Weak<BoxBackends>,
}

impl Boxes {
    pub(crate) fn of(backends: &Arc<BoxBackends>) -> Self {
        Self { backends: Arc::downgrade(backends) }
    }
}

/// The kinds of warm boxes: native boxes for single execs, and containers for session boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BoxSort {
    Native(WarmSpec),
    Container(ContainerShape),
}

#[derive(Debug)]
pub(crate) enum BackendWarmBox {
    Native(Box<WarmBox>),
    Container(Box<WarmContainer>),
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

impl PoolBoxes for Boxes {
    type Key = BoxKey;
    type Kind = BoxSort;
    type SessionBox = PooledBox;
    type WarmBox = BackendWarmBox;
    type Tools = Arc<BoxBackends>;

    fn tools(&self) -> Option<Arc<BoxBackends>> {
        self.backends.upgrade()
    }

    async fn make_warm_box(backends: &Arc<BoxBackends>, sort: &BoxSort) -> Option<BackendWarmBox> {
        let was_possible = backends.docker.is_for_warm_boxes();
        let (made, kind) = match sort {
            BoxSort::Native(sort) => {
                let made = backends.executor.prepare_warm_box(sort).await;
                (made.map(|warm_box| BackendWarmBox::Native(Box::new(warm_box))), format!("{:?}", sort.kind))
            }
            BoxSort::Container(shape) => {
                let made = backends.docker.prepare_warm_box(&backends.executor, shape).await;
                (made.map(|warm_box| BackendWarmBox::Container(Box::new(warm_box))), "Container".to_owned())
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

    fn is_alive(warm_box: &BackendWarmBox) -> bool {
        match warm_box {
            BackendWarmBox::Native(warm_box) => warm_box.is_alive(),
            BackendWarmBox::Container(warm_box) => warm_box.is_alive(),
        }
    }

    async fn end_warm_box(warm_box: BackendWarmBox) {
        match warm_box {
            BackendWarmBox::Native(warm_box) => warm_box.end().await,
            BackendWarmBox::Container(warm_box) => warm_box.end().await,
        }
    }

    async fn died(session_box: &PooledBox) {
        session_box.session_box.died().await;
    }

    async fn end(session_box: Arc<PooledBox>) {
        session_box.session_box.end().await;
        // The connections of the box are recorded before this returns.
        if let Some(way) = &session_box.way {
            way.closed().await;
        }
    }
}
