//! Keeps the cgroups of ended boxes for the next box with the same limits.
//!
//! Used on cgroup v1 only, where a box has several directories and its counters can be reset. A set
//! is reused only if no process is left in it, its memory is uncharged and no OOM kill was counted,
//! so a box sees nothing of the one before. Other sets stay until there are more than
//! [`MAX_COUNT`].

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_jail::plan::Cgroups;
use ringwall_jail::report::ProtectionName;
use rustix::fs::OFlags;

use crate::cgroup::groups::{Groups, open_at};

/// Each set holds about a dozen descriptors.
const MAX_COUNT: usize = 16;
/// The kernel charges memory in batches per CPU, so an unused group may still show this much.
const MAX_RESIDUE: u64 = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct CgroupCache {
    kept: Mutex<Vec<Kept>>,
}

#[derive(Debug)]
struct Kept {
    groups: Groups,
    /// `pids.current`: the number of processes, dying ones included.
    processes: OwnedFd,
    memory: Option<MemoryFiles>,
}

#[derive(Debug)]
struct MemoryFiles {
    usage: OwnedFd,
    peak: OwnedFd,
    sockets: OwnedFd,
}

/// The cgroups of a starting or running box. Dropping the value puts them into the cache. Without a
/// cache the spawner, or the reaper of `ringwall run`, removes them after the box has ended.
#[derive(Debug)]
pub(crate) struct ReusableGroups {
    groups: Groups,
    cache: Option<Arc<CgroupCache>>,
}

impl ReusableGroups {
    pub(crate) fn new(groups: Groups, cache: Option<Arc<CgroupCache>>) -> Self {
        ReusableGroups { groups, cache }
    }
}

impl Deref for ReusableGroups {
    type Target = Groups;

    fn deref(&self) -> &Groups {
        &self.groups
    }
}

impl DerefMut for ReusableGroups {
    fn deref_mut(&mut self) -> &mut Groups {
        &mut self.groups
    }
}

impl Drop for ReusableGroups {
    fn drop(&mut self) {
        if let Some(cache) = &self.cache {
            cache.put(std::mem::take(&mut self.groups));
        }
    }
}

impl CgroupCache {
    /// A set with the limits of `plan` whose counters could be reset.
    pub(crate) fn take(&self, plan: &Cgroups) -> Option<Groups> {
        let mut kept = self.kept.lock();
        let found =
            kept.iter().position(|kept| kept.groups.matches(plan) && kept.is_empty() && kept.reset_counters())?;
        Some(kept.swap_remove(found).groups)
    }

    /// Processes of the box may still be dying; `take` checks for them.
    pub(crate) fn put(&self, groups: Groups) {
        let Some(new) = Kept::open(groups) else { return };
        let mut kept = self.kept.lock();
        if kept.len() >= MAX_COUNT
            && let Some(oldest) = kept.iter().position(Kept::is_empty)
        {
            kept.remove(oldest).groups.remove_empty();
        }
        kept.push(new);
    }
}

impl Kept {
    /// `None` if the groups were removed or cannot be checked for processes. The latter are removed
    /// with the executor.
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

    /// Resets the counters; false if one cannot be reset.
    fn reset_counters(&self) -> bool {
        let Some(memory) = &self.memory else { return true };
        let is_small = |file| number(file).is_some_and(|bytes| bytes <= MAX_RESIDUE);
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

    /// A group with a process limit, as an ordinary directory in `parent` whose `pids.current` says
    /// 0.
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
        let cache = Arc::new(CgroupCache::default());
        assert!(cache.take(&plan).is_none());
        drop(ReusableGroups::new(groups, Some(Arc::clone(&cache))));
        assert!(cache.take(&plan).is_some());
    }
}
