//! How much may be done for one content: an amount that follows from its length, and never from a clock.
//!
//! Everything that looks at a part of a text, or copies one, counts it here first. Whoever finds nothing left stops, and the
//! content is too complex to be judged: the same content always is, whatever else the machine does. So no shape, known or not,
//! can cost more than its bytes allow.

use std::cell::Cell;

/// What any content may take, and what each byte of it adds, up to so many bytes: four contents are judged at a time, and others
/// wait. A unit is about ten nanoseconds, what it takes to look at one node of a tree. Ordinary code takes an eighth of it:
/// `what_people_write_is_far_below_the_bound`.
const ANY: usize = 1_000_000;
const PER_BYTE: usize = 160;
const MAX_BYTES: usize = 256 * 1024;

/// Reports of a parser times the length of its text, where a step may copy all that was read so far: a pipe of a hundred thousand
/// commands takes gigabytes otherwise. All texts within a content together may take twice as much as one.
pub(crate) const MAX_COPIED: usize = 4_000_000;

#[derive(Debug)]
pub(crate) struct Work {
    left: Cell<usize>,
    /// What is left of the copying.
    copying: Cell<usize>,
    is_spent: Cell<bool>,
}

impl Work {
    pub(crate) fn for_length(length: usize) -> Self {
        let (left, copying) = (Cell::new(Self::most(length)), Cell::new(2 * MAX_COPIED));
        Work { left, copying, is_spent: Cell::new(false) }
    }

    /// All that a content of this length may take.
    pub(crate) fn most(length: usize) -> usize {
        ANY + PER_BYTE * length.min(MAX_BYTES)
    }

    /// Counts something that is about to be done. Once there was not enough left, there is nothing left.
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

    /// Counts a text that is about to be copied or searched, which goes many bytes at a time.
    pub(crate) fn spend_text(&self, length: usize) -> bool {
        self.spend(1 + length / 8)
    }

    /// Counts what a step of a parser copied.
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

    /// What is left.
    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.left.get()
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
