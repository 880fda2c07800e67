//! What a sort of spares has to say of itself.

use std::fmt::Debug;
use std::time::Duration;

/// Spares of one sort can stand in for each other.
pub trait Sort: Clone + Eq + Debug + Send + Sync {
    /// For how long nobody may have asked for a spare before one more is made, where so many of this sort wait. Making
    /// takes a processor away from those who run.
    fn pause(&self, waiting: usize) -> Duration;

    fn pace(&self) -> Pace;
}

/// How long making one takes. Of each pace one is made at a time, so that those who are quick do not wait for the slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A moment: whoever needs the place can wait for it.
    Quick,
    /// Nobody should wait for that.
    Slow,
}
