//! Who is in a workspace at the same time, because two boxes that are can hand each other descriptors through a socket in
//! `work`. A directory that one of them had is then safe from the other only when it is removed.
//!
//! An exec enters when its files are made, and leaves when it is collected and its processes are known to be dead. One
//! that never leaves, because it was dropped or nobody can say whether its box is gone, is company to all that come after
//! it for as long as the server lives. Kept by the identity of a directory, not by names that a file system may confuse.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exec_files::collect::Processes;

/// Whether any other box of the workspace lived while this one did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Alone,
    Accompanied,
}

/// The workspaces in which somebody is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Presence {
    workspaces: Arc<Mutex<HashMap<Identity, Present>>>,
}

/// Device and inode of what is staged in a workspace.
type Identity = (u64, u64);

#[derive(Debug)]
struct Present {
    count: u64,
    /// Of everybody who is here: two that ever were at the same time have not both left since.
    company: Company,
}

/// One exec that is in a workspace. Dropping it is not leaving.
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
    /// Ends a stay, if it can be ended, and says whether it was a lonely one.
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
    fn company_lasts_until_all_have_left() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [here, elsewhere] = directories.each_ref().map(|path| OwnedFd::from(File::open(path).unwrap()));
        let presence = Presence::default();
        let (first, other) = (presence.enter(&here).unwrap(), presence.enter(&elsewhere).unwrap());
        assert_eq!(first.leave(Processes::Dead), Company::Alone);
        assert_eq!(other.leave(Processes::Dead), Company::Alone);
        // Each of these three meets the one before it, and the first and the last never meet.
        let (one, two) = (presence.enter(&here).unwrap(), presence.enter(&here).unwrap());
        assert_eq!(one.leave(Processes::Dead), Company::Accompanied);
        let three = presence.enter(&here).unwrap();
        assert_eq!(two.leave(Processes::Dead), Company::Accompanied);
        assert_eq!(three.leave(Processes::Dead), Company::Accompanied);
        assert!(presence.lock().is_empty());
        // Whoever does not leave stays.
        assert_eq!(presence.enter(&here).unwrap().leave(Processes::Uncertain), Company::Accompanied);
        drop(presence.enter(&elsewhere).unwrap());
        for place in [&here, &elsewhere] {
            assert_eq!(presence.enter(place).unwrap().leave(Processes::Dead), Company::Accompanied);
        }
    }
}
