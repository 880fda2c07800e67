//! Room on the disk that is kept for what is on its way, until it is there or given up.
//!
//! Whoever writes where no look sees it (an upload, a file that is to replace another) keeps room for it first, and so does
//! whoever writes much at once. What needs no more than there is needs no room, also where there is none.

use ringwall_workspace::Usage;

use crate::error::Error;

use super::quota::Disk;

/// Dropped, it gives the room back.
#[derive(Debug)]
pub(crate) struct Room {
    disk: Disk,
    kept: Usage,
}

impl Disk {
    /// Keeps room for so much more. Blocks where that has to be looked at.
    pub(crate) fn reserve(&self, more: Usage) -> Result<Room, Error> {
        let mut room = Room { disk: self.clone(), kept: Usage::default() };
        room.reach(more)?;
        Ok(room)
    }

    /// Does what adds so much, if there is room for it.
    pub(crate) fn adding<T>(&self, more: Usage, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let room = self.reserve(more)?;
        let done = work()?;
        room.settle(more);
        Ok(done)
    }
}

impl Room {
    /// Has at least so much. After an error it has what it had.
    pub(crate) fn reach(&mut self, wanted: Usage) -> Result<(), Error> {
        let more = wanted.minus(self.kept);
        if more != Usage::default() {
            self.disk.keep(more)?;
            self.kept = self.kept.plus(more);
        }
        Ok(())
    }

    /// What it was kept for is there now, and this is by how much there is more.
    pub(crate) fn settle(self, grown: Usage) {
        self.disk.add(grown);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.disk.release(self.kept);
    }
}
