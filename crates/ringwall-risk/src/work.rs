//! The limit on the work for one content. It follows from the content's length, not from a clock.
//!
//! Code that examines or copies a part of a text counts it here first, and stops when nothing is
//! left. The content is then reported as too complex. The same content always has the same result,
//! and no content takes more time than its length allows.

use std::cell::Cell;

/// Limit in units: `ANY` for each content plus `PER_BYTE` for each of its first `MAX_BYTES` bytes.
/// A unit is about ten nanoseconds, the time to examine one node of a tree. Ordinary code takes
/// less than a third: `ordinary_code_takes_less_than_a_third_of_limit`.
const ANY: usize = 1_000_000;
const PER_BYTE: usize = 160;
const MAX_BYTES: usize = 256 * 1024;

/// Limit of a parser's reports times the length of its text, for grammars of which a step may copy
/// all that was read so far: without it a pipeline of a hundred thousand commands takes gigabytes.
/// All nested texts of a content together may take twice as much.
pub(crate) const MAX_COPIED: usize = 4_000_000;

#[derive(Debug)]
pub(crate) struct Work {
    left: Cell<usize>,
    /// The remaining bytes that parser steps may copy.
    copying: Cell<usize>,
    is_spent: Cell<bool>,
}

impl Work {
    pub(crate) fn for_length(length: usize) -> Self {
        let (left, copying) = (Cell::new(Self::most(length)), Cell::new(2 * MAX_COPIED));
        Work { left, copying, is_spent: Cell::new(false) }
    }

    /// The limit for a content of this length.
    pub(crate) fn most(length: usize) -> usize {
        ANY + PER_BYTE * length.min(MAX_BYTES)
    }

    /// Counts work before it is done; `false` if too little is left. Every later call returns
    /// `false`.
    pub(crate) fn spend(&self, amount: usize) -> bool {
        match self.left.get().checked_sub(amount) {
            Some(left) if !self.is_spent.get() => {
                self.left.set(left);
                true
            }
            _ => {
                self.is_spent.set(true);
                false
            }
        }
    }

    /// Counts a text before it is copied or searched. Both process eight bytes per unit.
    pub(crate) fn spend_text(&self, length: usize) -> bool {
        self.spend(1 + length / 8)
    }

    /// Counts what a parser step may have copied.
    pub(crate) fn spend_copying(&self, length: usize) -> bool {
        let left = self.copying.get().checked_sub(length);
        self.copying.set(left.unwrap_or_default());
        left.is_some()
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }

    #[cfg(test)]
    pub(crate) fn without_bound() -> Self {
        Work { left: Cell::new(usize::MAX), copying: Cell::new(2 * MAX_COPIED), is_spent: Cell::new(false) }
    }

    /// The remaining units.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.get()
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
