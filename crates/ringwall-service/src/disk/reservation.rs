//! Reservations of quota for data that is being written.
//!
//! A writer whose bytes no measurement sees yet (an upload, the replacement of a file) reserves
//! room first, as does one that writes much at once. A change that needs no more than it frees
//! needs no reservation, also when the quota is exceeded.

use ringwall_workspace::Usage;

use crate::error::Error;

use super::quota::Disk;

/// A reservation, released when dropped.
#[derive(Debug)]
pub(crate) struct DiskReservation {
    disk: Disk,
    kept: Usage,
}

impl Disk {
    /// Reserves room for `more`. May measure the workspace, which blocks.
    pub(crate) fn reserve(&self, more: Usage) -> Result<DiskReservation, Error> {
        let mut room = DiskReservation { disk: self.clone(), kept: Usage::default() };
        room.reach(more)?;
        Ok(room)
    }

    /// Runs `work`, which adds `more`, if there is room.
    pub(crate) fn adding<T>(&self, more: Usage, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let room = self.reserve(more)?;
        let done = work()?;
        room.settle(more);
        Ok(done)
    }
}

impl DiskReservation {
    /// Extends the reservation to `wanted`. After an error it is unchanged.
    pub(crate) fn reach(&mut self, wanted: Usage) -> Result<(), Error> {
        let more = wanted.minus(self.kept);
        if more != Usage::default() {
            self.disk.keep(more)?;
            self.kept = self.kept.plus(more);
        }
        Ok(())
    }

    /// The data is written and added `grown` to the usage.
    pub(crate) fn settle(self, grown: Usage) {
        self.disk.add(grown);
    }
}

impl Drop for DiskReservation {
    fn drop(&mut self) {
        self.disk.release(self.kept);
    }
}
