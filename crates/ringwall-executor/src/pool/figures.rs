//! Counters of a pool, taken under one lock, so that they add up.

/// `total` is `busy + idle + warming` and at most `max`, unless `max` was just lowered.
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
