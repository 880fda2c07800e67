//! Control groups, as the jail sees them: PID 1 enters and reads them, the spawner removes them.
//!
//! Their maker is the executor, which also sets the limits. PID 1 is never migrated by another process. On version
//! 2 it is born in its group; on version 1 it writes itself, as its only thread, into `tasks`, which unlike
//! `cgroup.procs` takes no lock that waits for every processor (0.1 ms instead of 10).

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::protocol::report::{Failure, Step};

/// The file by which a version 1 group is held still, and let go again.
pub const FREEZER: &CStr = c"freezer.state";
pub const FROZEN: &[u8] = b"FROZEN";
pub const THAWED: &[u8] = b"THAWED";

/// One directory, for whoever removes it.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Which of the directories that the spawner was given.
    pub(crate) parent: usize,
    pub(crate) name: CString,
}

/// Every directory in these whose name begins like this.
pub(crate) fn find(parents: &[OwnedFd], prefix: &CStr) -> Vec<Group> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut found = Vec::new();
    for (parent, directory) in parents.iter().enumerate() {
        let opened = rustix::fs::openat(directory, c".", flags, Mode::empty());
        for entry in opened.and_then(Dir::new).into_iter().flatten().flatten() {
            if entry.file_name().to_bytes().starts_with(prefix.to_bytes()) {
                found.push(Group { parent, name: entry.file_name().to_owned() });
            }
        }
    }
    found
}

/// Lets whoever is held still in these groups go on: on version 1 they could not even be ended otherwise.
pub(crate) fn thaw(parents: &[OwnedFd], prefix: &CStr) {
    for Group { parent, name } in find(parents, prefix) {
        let Some(parent) = parents.get(parent) else { continue };
        let Ok(file) = CString::new([name.as_bytes(), b"/", FREEZER.to_bytes()].concat()) else { continue };
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(state) = rustix::fs::openat(parent, file, flags, Mode::empty()) {
            let _ = rustix::io::write(state, THAWED);
        }
    }
}

/// Removes an empty group; one that is not there needs no removal.
pub(crate) fn remove(parents: &[OwnedFd], group: &Group) -> Result<()> {
    let parent = parents.get(group.parent).ok_or(Errno::BADF)?;
    rustix::fs::unlinkat(parent, &group.name, AtFlags::REMOVEDIR)
}

/// What a box's groups know about what it used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub peak_memory_bytes: Option<u64>,
    pub oom_kills: u64,
    /// Version 2 only.
    pub cpu_microseconds: u64,
}

impl Counted {
    /// A file with one number is the peak; the others have keys.
    pub fn read(counters: &[OwnedFd]) -> Self {
        let mut counted = Counted::default();
        for counter in counters {
            let mut buffer = [0; 1024];
            let Ok(count) = rustix::io::pread(counter, &mut buffer, 0) else { continue };
            let Ok(text) = std::str::from_utf8(&buffer[..count]) else { continue };
            match text.trim().parse() {
                Ok(number) => counted.peak_memory_bytes = Some(number),
                Err(_) => {
                    let value = |key: &str| -> u64 {
                        text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
                    };
                    counted.oom_kills += value("oom_kill ");
                    counted.cpu_microseconds += value("usage_usec ");
                }
            }
        }
        counted
    }
}

/// Joins the version 1 groups: the caller, its only thread, writes itself in.
pub(crate) fn join(doors: &[OwnedFd]) -> std::result::Result<(), Failure> {
    for door in doors {
        rustix::io::write(door, b"0").map_err(|errno| Failure::new(Step::JoinCgroups, "", errno))?;
    }
    Ok(())
}
