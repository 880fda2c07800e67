//! The pool: warm boxes, which are single-use, and session boxes.
//!
//! `slots` holds the pure rules: which waiter gets which box, what to start and what to end.
//! `demand` says how many warm boxes are wanted. `keeper` owns the boxes and carries the rules out. A
//! session box never serves another session. A warm box serves one exec and leaves the pool when it
//! is taken. The pool makes warm boxes itself; the caller who acquires a session box passes the
//! future that makes it.

mod demand;
mod keeper;
mod slots;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

pub use keeper::{Hold, Lease, Pool, Present, Refused};
pub use slots::OnBusy;

/// A kind of warm boxes. Warm boxes of equal kind are interchangeable.
pub trait PoolKind: Clone + Eq + Debug + Send + Sync {
    /// The pause after the last request for a warm box before one more is made, if `waiting` are
    /// ready. Making one takes CPU from running execs.
    fn pause(&self, waiting: usize) -> Duration;
}

/// Makes warm boxes and ends both kinds.
pub trait PoolBoxes: Debug + Send + Sync + 'static {
    /// Identifies a session.
    type Key: Clone + Ord + Debug + Send + Sync;
    /// A kind of warm boxes.
    type Kind: PoolKind;
    type SessionBox: Debug + Send + Sync;
    type WarmBox: Debug + Send;
    /// Shared parts needed to make a warm box. The task drops them after the box is in its slot, so
    /// an owner that shuts down can wait for the boxes first.
    type Tools: Send + Sync;

    /// `None` after the owner has shut down.
    fn tools(&self) -> Option<Self::Tools>;

    /// `None` if it failed; the implementation logs the reason.
    fn make_warm_box(tools: &Self::Tools, kind: &Self::Kind) -> impl Future<Output = Option<Self::WarmBox>> + Send;

    fn is_alive(warm_box: &Self::WarmBox) -> bool;

    /// Returns when no process of it is left.
    fn end_warm_box(warm_box: Self::WarmBox) -> impl Future<Output = ()> + Send;

    /// Returns when the box is dead, for any reason.
    fn died(session_box: &Self::SessionBox) -> impl Future<Output = ()> + Send;

    /// Returns when no process of the box is left. The box may have died before.
    fn end(session_box: Arc<Self::SessionBox>) -> impl Future<Output = ()> + Send;
}

/// Limits of a pool. If they change, boxes in use stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub max_instances: u32,
    /// Minimum number of idle warm boxes, for the kept kind and for each kind in demand. With 0 no
    /// warm box is made.
    pub min_instances: u32,
    /// A session box that was idle for this long ends. Warm boxes end if no exec asked for their
    /// kind for this long, except those of the kept kind.
    pub idle_timeout: Duration,
    /// A session box is replaced after this many uses.
    pub max_use_count: u32,
    pub acquire_timeout: Duration,
}

/// Counters of a pool, taken under one lock, so that they add up. `total` is `busy + idle + warming` and at most `max`, unless `max` was just lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub total: u32,
    /// In use, assigned to a waiter, or ending.
    pub busy: u32,
    pub idle: u32,
    /// Being made.
    pub warming: u32,
    pub max: u32,
    /// How many acquisitions found a box ready, and how many did not.
    pub hits: u64,
    pub misses: u64,
    /// The part of these numbers that is warm boxes.
    pub warm_boxes: WarmFigures,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WarmFigures {
    pub idle: u32,
    pub warming: u32,
    pub hits: u64,
    pub misses: u64,
}
