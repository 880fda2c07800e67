//! How many boxes there may be, and for how long and how often one serves.

use std::time::Duration;

/// The bounds of a pool. They can change while it lives; boxes that are in use then stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub max_instances: u32,
    /// How many spares wait at least, of the sort that is kept and of each that is asked for. Where it is 0, none is made.
    pub min_instances: u32,
    /// A session's box ends that nobody has used for so long, and so do spares that nobody has asked for and that
    /// are not kept.
    pub idle_timeout: Duration,
    /// After how many uses a session's box is replaced by a fresh one.
    pub max_use_count: u32,
    pub acquire_timeout: Duration,
}
