//! How much text of files is in memory at the same time, in answers of all workspaces together. Short texts are not counted;
//! whoever wants a long one where too much is there already is told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is not counted.
pub(super) const SHORT: u64 = 1 << 20;
/// Eight of the longest.
const MAX_COUNT: u64 = 512 << 20;

/// What is taken of it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextMemory {
    taken: Arc<AtomicU64>,
}

/// A part of it, given back when it is dropped.
#[derive(Debug)]
pub(super) struct TextShare {
    memory: TextMemory,
    bytes: u64,
}

impl TextMemory {
    pub(super) fn take(&self, bytes: u64) -> Option<TextShare> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= MAX_COUNT);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(TextShare { memory: self.clone(), bytes })
    }
}

impl Drop for TextShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
