//! The pool's boxes: session boxes and warm boxes, counted together.
//!
//! A warm box only saves start-up time: if none fits, a box is made from scratch and the client
//! sees no difference. With `pool.min_instances` of 0 no warm box is made.

use std::fs::File;
use std::sync::{Arc, Weak};

use ringwall_executor::Executor;
use ringwall_executor::docker::Docker;
use ringwall_executor::pool::{Pool, PoolBoxes};
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

impl PoolBoxes for Boxes {
    type Key = BoxKey;
    type Kind = WarmSpec;
    type SessionBox = PooledBox;
    type WarmBox = WarmBox;
    type Tools = Arc<BoxBackends>;

    fn tools(&self) -> Option<Arc<BoxBackends>> {
        self.backends.upgrade()
    }

    async fn make_warm_box(backends: &Arc<BoxBackends>, sort: &WarmSpec) -> Option<WarmBox> {
        let made = backends.executor.prepare_warm_box(sort).await;
        let failed = |error: &ringwall_executor::Error| {
            tracing::info!(kind = ?sort.kind, error = %causes(error), "could not make a warm box");
        };
        made.inspect_err(failed).ok()
    }

    fn is_alive(warm_box: &WarmBox) -> bool {
        warm_box.is_alive()
    }

    async fn end_warm_box(warm_box: WarmBox) {
        warm_box.end().await;
    }

    async fn died(session_box: &PooledBox) {
        session_box.session_box.died().await;
    }

    async fn end(session_box: Arc<PooledBox>) {
        session_box.session_box.end().await;
        // The connections of the box are recorded before this returns.
        if let Some(proxy) = &session_box.proxy {
            proxy.closed().await;
        }
    }
}
