//! Limits of a pool: number of boxes, their idle time and their number of uses.

use std::time::Duration;

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
