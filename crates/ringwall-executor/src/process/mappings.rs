//! A cache of user namespaces for id-mapped mounts, which show a workspace's files to a warm box as
//! its own. Making one needs a process and takes longer than all other work when a warm box is
//! taken. No process of a box is ever in one.

use std::os::fd::OwnedFd;

use parking_lot::Mutex;
use ringwall_jail::plan::Owner;
use rustix::io::Result;

/// Enough for the workspaces in use at one time, each with a few uids.
const MAX_COUNT: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Keyed by owner of the files and uid of the box, least recently used first.
    kept: Mutex<Vec<((Owner, Owner), OwnedFd)>>,
}

impl Mappings {
    pub(crate) fn get(&self, owner: Owner, host: Owner, make: impl FnOnce() -> Result<OwnedFd>) -> Result<OwnedFd> {
        let copy = |namespace: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(namespace, 0);
        if let Some(found) = self.take((owner, host)) {
            let copied = copy(&found);
            self.keep((owner, host), found);
            return copied;
        }
        let made = make()?;
        let copied = copy(&made);
        self.keep((owner, host), made);
        copied
    }

    fn take(&self, whose: (Owner, Owner)) -> Option<OwnedFd> {
        let mut kept = self.kept.lock();
        let found = kept.iter().position(|(known, _)| *known == whose)?;
        Some(kept.remove(found).1)
    }

    fn keep(&self, whose: (Owner, Owner), namespace: OwnedFd) {
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_COUNT {
            kept.remove(0);
        }
        kept.push((whose, namespace));
    }
}
