//! Joins, reads, thaws and removes cgroups. The executor creates them and sets their limits.
//!
//! No process is migrated by another. On cgroup v2 PID 1 is cloned into its group. On v1 it writes
//! `0`, as the only thread of its process, to `tasks`: that skips the kernel's global threadgroup
//! lock, which `cgroup.procs` takes (0.1 ms instead of 10 ms).

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::protocol::report::{Failure, Step};

/// Freezer file of a cgroup v1 directory.
pub const FREEZER: &CStr = c"freezer.state";
pub const FROZEN: &[u8] = b"FROZEN";
pub const THAWED: &[u8] = b"THAWED";

/// A cgroup directory to remove.
#[derive(Debug, Clone)]
pub(crate) struct GroupDirectory {
    /// Index of the parent directory in the spawner's list.
    pub(crate) parent: usize,
    pub(crate) name: CString,
}

/// All directories in `parents` whose name begins with `prefix`.
pub(crate) fn find(parents: &[OwnedFd], prefix: &CStr) -> Vec<GroupDirectory> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut found = Vec::new();
    for (parent, directory) in parents.iter().enumerate() {
        let opened = rustix::fs::openat(directory, c".", flags, Mode::empty());
        for entry in opened.and_then(Dir::new).into_iter().flatten().flatten() {
            if entry.file_name().to_bytes().starts_with(prefix.to_bytes()) {
                found.push(GroupDirectory { parent, name: entry.file_name().to_owned() });
            }
        }
    }
    found
}

/// Thaws all frozen v1 groups with this prefix. On v1 a frozen process does not even die from
/// SIGKILL.
pub(crate) fn thaw(parents: &[OwnedFd], prefix: &CStr) {
    for GroupDirectory { parent, name } in find(parents, prefix) {
        let Some(parent) = parents.get(parent) else { continue };
        let Ok(file) = CString::new([name.as_bytes(), b"/", FREEZER.to_bytes()].concat()) else { continue };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(state) = rustix::fs::openat(parent, file, flags, Mode::empty()) {
            let _ = rustix::io::write(state, THAWED);
        }
    }
}

/// Removes a cgroup without processes.
pub(crate) fn remove(parents: &[OwnedFd], group: &GroupDirectory) -> Result<()> {
    let parent = parents.get(group.parent).ok_or(Errno::BADF)?;
    rustix::fs::unlinkat(parent, &group.name, AtFlags::REMOVEDIR)
}

/// Usage counters of a box's cgroups.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CgroupUsage {
    pub peak_memory_bytes: Option<u64>,
    pub oom_kills: u64,
    /// Only on cgroup v2.
    pub cpu_microseconds: u64,
}

impl CgroupUsage {
    /// Reads each file: a single number is the peak memory; other files have one `key value` per
    /// line.
    pub fn read(counters: &[OwnedFd]) -> Self {
        let mut usage = CgroupUsage::default();
        for counter in counters {
            let mut buffer = [0; 1024];
            let Ok(count) = rustix::io::pread(counter, &mut buffer, 0) else { continue };
            let Ok(text) = std::str::from_utf8(&buffer[..count]) else { continue };
            match text.trim().parse() {
                Ok(number) => usage.peak_memory_bytes = Some(number),
                Err(_) => {
                    let value = |key: &str| -> u64 {
                        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
                    };
                    usage.oom_kills += value("oom_kill ");
                    usage.cpu_microseconds += value("usage_usec ");
                }
            }
        }
        usage
    }
}

/// Joins the v1 groups: moves the calling thread, the only one of its process, into each.
pub(crate) fn join(tasks_files: &[OwnedFd]) -> std::result::Result<(), Failure> {
    for tasks_file in tasks_files {
        rustix::io::write(tasks_file, b"0").map_err(|errno| Failure::new(Step::JoinCgroups, "", errno))?;
    }
    Ok(())
}
