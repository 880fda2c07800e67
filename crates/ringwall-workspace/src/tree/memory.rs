//! Limits the memory for file contents in responses, over all workspaces. Short texts are not
//! counted; a request for a long one that does not fit is rejected as busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Texts up to this length are not counted.
pub(super) const MAX_UNCOUNTED_BYTES: u64 = 1 << 20;
/// Eight texts of the maximum length.
const MAX_TOTAL_BYTES: u64 = 512 << 20;

/// The memory in use. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextMemory {
    taken: Arc<AtomicU64>,
}

/// A share of the memory, released when dropped.
#[derive(Debug)]
pub(super) struct TextShare {
    memory: TextMemory,
    bytes: u64,
}

impl TextMemory {
    pub(super) fn acquire(&self, bytes: u64) -> Option<TextShare> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= MAX_TOTAL_BYTES);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(TextShare { memory: self.clone(), bytes })
    }
}

impl Drop for TextShare {
    fn drop(&mut self) {
        self.memory.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
