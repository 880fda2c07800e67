//! Tracks which execs of a workspace ran at the same time.
//!
//! Two boxes of a workspace can pass each other descriptors through a socket in `work`. If their
//! execs overlapped, one may still hold a descriptor of the other's artifacts directory, so that
//! directory must not be recycled.
//!
//! An exec enters when its files are created. It leaves when it is collected and its processes are
//! known to be dead. An exec that was dropped, or whose box may still run, never leaves and
//! overlaps all later execs of the workspace until the server ends. Workspaces are identified by
//! device and inode, because on a case-insensitive file system two names can mean one workspace.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use parking_lot::MutexGuard;

use crate::exec_files::collect::Processes;

/// Tells if another box of the workspace ran at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    Alone,
    Concurrent,
}

/// The workspaces with running execs.
#[derive(Debug, Clone, Default)]
pub(crate) struct OverlapTracker {
    workspaces: Arc<Mutex<HashMap<Identity, PresentExecs>>>,
}

/// Device and inode of the workspace's `.staging`.
type Identity = (u64, u64);

#[derive(Debug)]
struct PresentExecs {
    count: u64,
    /// `Concurrent` from the time two execs are present until all have left.
    overlap: Overlap,
}

/// One exec in a workspace. Dropping it does not leave.
#[derive(Debug)]
pub(crate) struct ExecPresence {
    overlaps: OverlapTracker,
    identity: Identity,
}

impl OverlapTracker {
    pub(crate) fn enter(&self, staging: &OwnedFd) -> rustix::io::Result<ExecPresence> {
        let status = rustix::fs::fstat(staging)?;
        let identity = (status.st_dev, status.st_ino);
        let mut workspaces = self.lock();
        let execs = workspaces.entry(identity).or_insert(PresentExecs { count: 0, overlap: Overlap::Alone });
        execs.count += 1;
        if execs.count > 1 {
            execs.overlap = Overlap::Concurrent;
        }
        drop(workspaces);
        Ok(ExecPresence { overlaps: self.clone(), identity })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, PresentExecs>> {
        self.workspaces.lock()
    }
}

impl ExecPresence {
    /// Leaves, if the processes are dead, and returns whether another exec was present meanwhile.
    pub(crate) fn leave(&self, processes: Processes) -> Overlap {
        match processes {
            Processes::Uncertain => Overlap::Concurrent,
            Processes::Dead => {
                let mut workspaces = self.overlaps.lock();
                let Some(execs) = workspaces.get_mut(&self.identity) else {
                    return Overlap::Concurrent;
                };
                let overlap = execs.overlap;
                execs.count -= 1;
                if execs.count == 0 {
                    workspaces.remove(&self.identity);
                }
                overlap
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn overlap_lasts_until_all_execs_have_left() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [here, elsewhere] = directories.each_ref().map(|path| OwnedFd::from(File::open(path).unwrap()));
        let overlaps = OverlapTracker::default();
        let (first, other) = (overlaps.enter(&here).unwrap(), overlaps.enter(&elsewhere).unwrap());
        assert_eq!(first.leave(Processes::Dead), Overlap::Alone);
        assert_eq!(other.leave(Processes::Dead), Overlap::Alone);
        // The second exec overlaps the first and the third; the first and the third do not meet.
        let (one, two) = (overlaps.enter(&here).unwrap(), overlaps.enter(&here).unwrap());
        assert_eq!(one.leave(Processes::Dead), Overlap::Concurrent);
        let three = overlaps.enter(&here).unwrap();
        assert_eq!(two.leave(Processes::Dead), Overlap::Concurrent);
        assert_eq!(three.leave(Processes::Dead), Overlap::Concurrent);
        assert!(overlaps.lock().is_empty());
        // An exec with uncertain processes does not leave.
        assert_eq!(overlaps.enter(&here).unwrap().leave(Processes::Uncertain), Overlap::Concurrent);
        drop(overlaps.enter(&elsewhere).unwrap());
        for staging in [&here, &elsewhere] {
            assert_eq!(overlaps.enter(staging).unwrap().leave(Processes::Dead), Overlap::Concurrent);
        }
    }
}
