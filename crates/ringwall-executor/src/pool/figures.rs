//! A pool in numbers, which add up at every instant.

/// `total` is `busy + idle + warming` and, unless `max` was just lowered, not more than `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub total: u32,
    /// In use, about to be, or being taken apart: whatever nobody else can have.
    pub busy: u32,
    pub idle: u32,
    /// Being made.
    pub warming: u32,
    pub max: u32,
    /// How often somebody found a box that was ready, and how often not.
    pub hits: u64,
    pub misses: u64,
    /// What of all this is spares.
    pub spares: SpareFigures,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpareFigures {
    pub idle: u32,
    pub warming: u32,
    pub hits: u64,
    pub misses: u64,
}
