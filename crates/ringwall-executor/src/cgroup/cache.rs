//! Cgroups whose box has ended, kept for one with the same limits.
//!
//! On version 1 alone, where a box has three directories and the kernel can be told to forget what they counted. Nothing
//! of one box reaches the next: groups are given away only when no process is left in them, their memory is given back
//! and nothing was ever killed in them. Others stay until there are too many.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ringwall_jail::plan::Cgroups;
use ringwall_jail::report::ProtectionName;
use rustix::fs::OFlags;

use crate::cgroup::groups::{Groups, open_at};

/// More than run at once in most servers; each is a dozen descriptors.
const MAX_COUNT: usize = 16;
/// What the kernel may still have on the account of a group that uses nothing: it charges ahead, per processor.
const NOTHING_BYTES: u64 = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Shelf {
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    groups: Groups,
    /// How many processes are in them, dying ones included.
    processes: OwnedFd,
    memory: Option<MemoryFiles>,
}

#[derive(Debug)]
struct MemoryFiles {
    usage: OwnedFd,
    peak: OwnedFd,
    sockets: OwnedFd,
}

/// The groups of a box that is being made or runs. Dropping the value gives them back to the shelf. Without a shelf
/// the spawner, or the undertaker of `ringwall run`, removes them when the box has ended.
#[derive(Debug)]
pub(crate) struct ShelvedGroups {
    groups: Groups,
    shelf: Option<Arc<Shelf>>,
}

impl ShelvedGroups {
    pub(crate) fn new(groups: Groups, shelf: Option<Arc<Shelf>>) -> Self {
        ShelvedGroups { groups, shelf }
    }
}

impl Deref for ShelvedGroups {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl DerefMut for ShelvedGroups {
    fn deref_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }
}

impl Drop for ShelvedGroups {
    fn drop(&mut self) {
        if let Some(shelf) = &self.shelf {
            shelf.put(std::mem::take(&mut self.groups));
        }
    }
}

impl Shelf {
    /// Groups that are as good as new, if there are any.
    pub(crate) fn take(&self, plan: &Cgroups) -> Option<Groups> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().position(|kept| kept.groups.serve(plan) && kept.is_empty() && kept.renew())?;
        Some(kept.swap_remove(found).groups)
    }

    /// The box need not be gone to its last process yet.
    pub(crate) fn put(&self, groups: Groups) {
        let Some(new) = Kept::open(groups) else { return };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_COUNT
            && let Some(oldest) = kept.iter().position(Kept::is_empty)
        {
            kept.remove(oldest).groups.remove_now();
        }
        kept.push(new);
    }
}

impl Kept {
    /// `None` for groups that were removed, or of which one cannot know whether they are empty; those go with the
    /// executor.
    fn open(groups: Groups) -> Option<Self> {
        let pids = groups.with(ProtectionName::PidsLimit)?.directory.as_fd();
        let processes = open_at(pids, c"pids.current", OFlags::RDONLY).ok()?;
        let memory = match groups.with(ProtectionName::MemoryLimit) {
            Some(made) => Some(MemoryFiles {
                usage: open_at(made.directory.as_fd(), c"memory.usage_in_bytes", OFlags::RDONLY).ok()?,
                peak: open_at(made.directory.as_fd(), c"memory.max_usage_in_bytes", OFlags::WRONLY).ok()?,
                sockets: open_at(made.directory.as_fd(), c"memory.kmem.tcp.usage_in_bytes", OFlags::RDONLY).ok()?,
            }),
            None => None,
        };
        Some(Kept { groups, processes, memory })
    }

    fn is_empty(&self) -> bool {
        number(&self.processes) == Some(0)
    }

    /// Forgets what was counted; `false` where there is something that cannot be forgotten.
    fn renew(&self) -> bool {
        let Some(memory) = &self.memory else { return true };
        let is_small = |file| number(file).is_some_and(|bytes| bytes <= NOTHING_BYTES);
        is_small(&memory.usage)
            && is_small(&memory.sockets)
            && self.groups.count().oom_kills == 0
            && rustix::io::pwrite(&memory.peak, b"0", 0).is_ok()
    }
}

fn number(file: &OwnedFd) -> Option<u64> {
    let mut buffer = [0; 32];
    let count = rustix::io::pread(file, &mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..count]).ok()?.trim().parse().ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use ringwall_jail::plan::{CgroupDirectory, CgroupSetting, CgroupVersion};

    use super::*;
    use crate::c_string::literal;

    /// One group with a process limit. Its directory lies in `parent`, an ordinary directory, and has the one file that
    /// says how many processes are in the group: none.
    pub(crate) fn empty_group(parent: &Path) -> (Cgroups, Groups) {
        let setting = CgroupSetting {
            file: literal("pids.max"),
            value: "1".to_owned(),
            protects: Some(ProtectionName::PidsLimit),
        };
        let parent = parent.to_str().unwrap();
        let directory = CgroupDirectory { parent: literal(parent), name: literal("box"), settings: vec![setting] };
        let plan = Cgroups { version: CgroupVersion::V2, directories: vec![directory] };
        let groups = Groups::make(&plan).unwrap();
        std::fs::write(format!("{parent}/box/pids.current"), "0\n").unwrap();
        (plan, groups)
    }

    #[test]
    fn dropped_groups_are_given_to_the_next_box() {
        let parent = tempfile::tempdir().unwrap();
        let (plan, groups) = empty_group(parent.path());
        let shelf = Arc::new(Shelf::default());
        assert!(shelf.take(&plan).is_none());
        drop(ShelvedGroups::new(groups, Some(Arc::clone(&shelf))));
        assert!(shelf.take(&plan).is_some());
    }
}
