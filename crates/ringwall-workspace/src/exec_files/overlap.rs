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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exec_files::collect::Processes;

/// Tells if another box of the workspace ran at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Accompanied,
}

/// The workspaces with running execs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence {
    workspaces: Arc<Mutex<HashMap<Identity, Present>>>,
}

/// Device and inode of the workspace's `.staging`.
type Identity = (u64, u64);

#[derive(Debug)]
struct Present {
    count: u64,
    /// `Accompanied` from the time two execs are present until all have left.
    company: Company,
}

/// One exec in a workspace. Dropping it does not leave.
#[derive(Debug)]
pub(crate) struct Stay {
    presence: Presence,
    identity: Identity,
}

impl Presence {
    pub(crate) fn enter(&self, staging: &OwnedFd) -> rustix::io::Result<Stay> {
        let status = rustix::fs::fstat(staging)?;
        let identity = (status.st_dev, status.st_ino);
        let mut workspaces = self.lock();
        let present = workspaces.entry(identity).or_insert(Present { count: 0, company: Company::Alone });
        present.count += 1;
        if present.count > 1 {
            present.company = Company::Accompanied;
        }
        drop(workspaces);
        Ok(Stay { presence: self.clone(), identity })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, Present>> {
        self.workspaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stay {
    /// Leaves, if the processes are dead, and returns whether another exec was present meanwhile.
    pub(crate) fn leave(&self, processes: Processes) -> Company {
        match processes {
            Processes::Uncertain => Company::Accompanied,
            Processes::Dead => {
                let mut workspaces = self.presence.lock();
                let Some(present) = workspaces.get_mut(&self.identity) else {
                    return Company::Accompanied;
                };
                let company = present.company;
                present.count -= 1;
                if present.count == 0 {
                    workspaces.remove(&self.identity);
                }
                company
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
        let presence = Presence::default();
        let (first, other) = (presence.enter(&here).unwrap(), presence.enter(&elsewhere).unwrap());
        assert_eq!(first.leave(Processes::Dead), Company::Alone);
        assert_eq!(other.leave(Processes::Dead), Company::Alone);
        // The second exec overlaps the first and the third; the first and the third do not meet.
        let (one, two) = (presence.enter(&here).unwrap(), presence.enter(&here).unwrap());
        assert_eq!(one.leave(Processes::Dead), Company::Accompanied);
        let three = presence.enter(&here).unwrap();
        assert_eq!(two.leave(Processes::Dead), Company::Accompanied);
        assert_eq!(three.leave(Processes::Dead), Company::Accompanied);
        assert!(presence.lock().is_empty());
        // An exec with uncertain processes does not leave.
        assert_eq!(presence.enter(&here).unwrap().leave(Processes::Uncertain), Company::Accompanied);
        drop(presence.enter(&elsewhere).unwrap());
        for place in [&here, &elsewhere] {
            assert_eq!(presence.enter(place).unwrap().leave(Processes::Dead), Company::Accompanied);
        }
    }
}
