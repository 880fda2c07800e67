//! User namespaces for mounts that show somebody's files to a spare as its own. Making one takes a process, and longer
//! than everything else that is done when a spare is taken; so they are kept. Nothing of a box is ever in one.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use ringwall_jail::plan::Owner;
use rustix::io::Result;

/// As many workspaces as are at work at once, times a few users.
const MAX_COUNT: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// Whose files, shown to whom; the one used last comes last.
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
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|(known, _)| *known == whose)?;
        Some(kept.remove(found).1)
    }

    fn keep(&self, whose: (Owner, Owner), namespace: OwnedFd) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_COUNT {
            kept.remove(0);
        }
        kept.push((whose, namespace));
    }
}
