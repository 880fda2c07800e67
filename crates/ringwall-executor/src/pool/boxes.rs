//! The operations that a pool needs from its boxes. The pool makes warm boxes itself; the caller
//! who acquires a session box passes the future that makes it.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// A kind of warm boxes. Warm boxes of equal kind are interchangeable.
pub trait Sort: Clone + Eq + Debug + Send + Sync {
    /// How long no exec may have asked for a warm box before one more is made, if `waiting` are
    /// ready. Making one takes CPU from running execs.
    fn pause(&self, waiting: usize) -> Duration;
}

/// Makes warm boxes and ends both kinds.
pub trait PoolBoxes: Debug + Send + Sync + 'static {
    /// Identifies a session.
    type Key: Clone + Ord + Debug + Send + Sync;
    /// A kind of warm boxes.
    type Kind: Sort;
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
