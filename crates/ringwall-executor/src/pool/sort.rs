//! The properties of a kind of warm boxes that the pool needs.

use std::fmt::Debug;
use std::time::Duration;

/// Warm boxes of equal kind are interchangeable.
pub trait Sort: Clone + Eq + Debug + Send + Sync {
    /// How long no exec may have asked for a warm box before one more is made, if `waiting` are
    /// ready. Making one takes CPU from running execs.
    fn pause(&self, waiting: usize) -> Duration;

    fn pace(&self) -> Pace;
}

/// How long making one takes. One box of each pace is made at a time, so quick ones do not wait for
/// slow ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Short enough that a waiter for the slot can wait until it is made.
    Quick,
    /// Too long for a waiter.
    Slow,
}
