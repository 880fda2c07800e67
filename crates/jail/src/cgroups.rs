//! Control groups: made with their limits before the box exists, left by nobody, removed at the end.
//!
//! PID 1 is never migrated by another process. On version 2 it is born in its group; on version 1 it writes
//! itself, as its only thread, into `tasks`, which unlike `cgroup.procs` takes no lock that waits for every
//! processor (0.1 ms instead of 10). Counters are read by the warden, after everything in the group is gone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::plan::{CgroupDirectory, CgroupVersion, Cgroups};
use crate::report::{Closing, Failure, Protection, Step};

/// How often a removal is tried: the kernel lets go of the last task a moment after it was reaped.
const REMOVALS: u32 = 200;

/// The groups of one box, held open.
pub(crate) struct Groups<'a> {
    plan: &'a Cgroups,
    made: Vec<Made<'a>>,
}

struct Made<'a> {
    plan: &'a CgroupDirectory,
    parent: OwnedFd,
    directory: OwnedFd,
}

impl<'a> Groups<'a> {
    /// Makes the directories and sets their limits. Limits that the kernel refuses are reported as missing.
    pub(crate) fn make(plan: &'a Cgroups, protections: &mut Vec<Protection>) -> std::result::Result<Self, Failure> {
        let mut groups = Groups { plan, made: Vec::new() };
        for directory in &plan.directories {
            match groups.make_one(directory, protections) {
                Ok(()) => {}
                Err(failure) => {
                    groups.remove();
                    return Err(failure);
                }
            }
        }
        Ok(groups)
    }

    fn make_one(
        &mut self,
        plan: &'a CgroupDirectory,
        protections: &mut Vec<Protection>,
    ) -> std::result::Result<(), Failure> {
        let name = format!("{}/{}", plan.parent.to_string_lossy(), plan.name.to_string_lossy());
        let fail = |errno| Failure::new(Step::MakeCgroups, name.clone(), errno);
        let parent = open_directory(rustix::fs::CWD, &plan.parent).map_err(fail)?;
        rustix::fs::mkdirat(&parent, &plan.name, Mode::from_raw_mode(0o755)).map_err(fail)?;
        let directory = open_directory(parent.as_fd(), &plan.name).map_err(fail)?;
        let made = Made { plan, parent, directory };
        for setting in &plan.settings {
            let outcome = write_at(made.directory.as_fd(), &setting.file, setting.value.as_bytes());
            let Some(name) = setting.protects else { continue };
            protections.push(match outcome {
                Ok(()) => Protection::enforced(name),
                Err(errno) => Protection::not_available(
                    name,
                    format!("the kernel refused {} for {}: {errno}", setting.value, setting.file.to_string_lossy()),
                ),
            });
        }
        self.made.push(made);
        Ok(())
    }

    /// The group into which PID 1 is born (version 2).
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        match self.plan.version {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => self.made.first().map(|made| made.directory.as_fd()),
        }
    }

    /// The files into which PID 1 writes itself (version 1).
    pub(crate) fn doors(&self) -> std::result::Result<Vec<OwnedFd>, Failure> {
        if self.plan.version == CgroupVersion::V2 {
            return Ok(Vec::new());
        }
        let open = |made: &Made<'_>| open_for_writing(made.directory.as_fd(), c"tasks");
        let doors: Result<Vec<_>> = self.made.iter().map(open).collect();
        doors.map_err(|errno| Failure::new(Step::MakeCgroups, "tasks", errno))
    }

    /// Reads what is known only now, and removes the groups.
    pub(crate) fn close(&mut self, closing: &mut Closing) {
        for made in &self.made {
            let directory = made.directory.as_fd();
            let peak =
                read_number(directory, c"memory.peak").or_else(|| read_number(directory, c"memory.max_usage_in_bytes"));
            closing.peak_memory_bytes = closing.peak_memory_bytes.or(peak);
            closing.oom_kills += read_key(directory, c"memory.events", "oom_kill")
                .or_else(|| read_key(directory, c"memory.oom_control", "oom_kill"))
                .unwrap_or(0);
        }
        closing.left_behind = self.remove();
    }

    /// Removes the directories and returns those that would not go.
    fn remove(&mut self) -> Vec<CString> {
        let mut left = Vec::new();
        for made in self.made.drain(..) {
            let gone = (0..REMOVALS).any(|_| {
                let removed = rustix::fs::unlinkat(&made.parent, &made.plan.name, AtFlags::REMOVEDIR);
                if removed == Err(Errno::BUSY) {
                    let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                    let _ = rustix::thread::nanosleep(&pause);
                }
                matches!(removed, Ok(()) | Err(Errno::NOENT))
            });
            if !gone {
                left.push(made.plan.name.clone());
            }
        }
        left
    }
}

/// Joins the version 1 groups: the caller, its only thread, writes itself in.
pub(crate) fn join(doors: &[OwnedFd]) -> std::result::Result<(), Failure> {
    for door in doors {
        rustix::io::write(door, b"0").map_err(|errno| Failure::new(Step::JoinCgroups, "", errno))?;
    }
    Ok(())
}

fn open_directory(at: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

fn open_for_writing(directory: BorrowedFd<'_>, file: &CStr) -> Result<OwnedFd> {
    rustix::fs::openat(directory, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(directory: BorrowedFd<'_>, file: &CStr, content: &[u8]) -> Result<()> {
    rustix::io::write(open_for_writing(directory, file)?, content).map(drop)
}

fn read_text(directory: BorrowedFd<'_>, file: &CStr) -> Option<String> {
    let file = rustix::fs::openat(directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 4096];
    let count = rustix::io::read(&file, &mut buffer).ok()?;
    String::from_utf8(buffer[..count].to_vec()).ok()
}

fn read_number(directory: BorrowedFd<'_>, file: &CStr) -> Option<u64> {
    read_text(directory, file)?.trim().parse().ok()
}

fn read_key(directory: BorrowedFd<'_>, file: &CStr, key: &str) -> Option<u64> {
    let text = read_text(directory, file)?;
    text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
}
