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
use crate::report::{Closing, Failure, Protection, ProtectionName, Step};

/// How often a removal is tried: the kernel lets go of the last task a moment after it was reaped.
const REMOVALS: u32 = 200;

/// The groups of one box, held open.
pub(crate) struct Groups {
    version: CgroupVersion,
    made: Vec<Made>,
}

struct Made {
    parent: OwnedFd,
    name: CString,
    directory: OwnedFd,
    /// This one knows how much memory the box has used.
    counts: bool,
}

impl Groups {
    pub(crate) fn new(plan: &Cgroups) -> Self {
        Groups { version: plan.version, made: Vec::new() }
    }

    /// Makes the directories and sets their limits. Limits that the kernel refuses are reported as missing.
    pub(crate) fn make(
        &mut self,
        plan: &Cgroups,
        protections: &mut Vec<Protection>,
    ) -> std::result::Result<(), Failure> {
        for directory in &plan.directories {
            self.make_one(directory, protections)?;
        }
        Ok(())
    }

    fn make_one(
        &mut self,
        plan: &CgroupDirectory,
        protections: &mut Vec<Protection>,
    ) -> std::result::Result<(), Failure> {
        let name = format!("{}/{}", plan.parent.to_string_lossy(), plan.name.to_string_lossy());
        let fail = |errno| Failure::new(Step::MakeCgroups, name.clone(), errno);
        let parent = open_directory(rustix::fs::CWD, &plan.parent).map_err(fail)?;
        rustix::fs::mkdirat(&parent, &plan.name, Mode::from_raw_mode(0o755)).map_err(fail)?;
        let directory = open_directory(parent.as_fd(), &plan.name).map_err(fail)?;
        for setting in &plan.settings {
            let outcome = write_at(directory.as_fd(), &setting.file, setting.value.as_bytes());
            let Some(name) = setting.protects else { continue };
            protections.push(match outcome {
                Ok(()) => Protection::enforced(name),
                Err(errno) => Protection::not_available(
                    name,
                    format!("the kernel refused {} for {}: {errno}", setting.value, setting.file.to_string_lossy()),
                ),
            });
        }
        let counts = plan.settings.iter().any(|setting| setting.protects == Some(ProtectionName::MemoryLimit));
        self.made.push(Made { parent, name: plan.name.clone(), directory, counts });
        Ok(())
    }

    /// The group into which PID 1 is born (version 2).
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        match self.version {
            CgroupVersion::V1 => None,
            CgroupVersion::V2 => self.made.first().map(|made| made.directory.as_fd()),
        }
    }

    /// Moves a PID 1 that was born elsewhere into its group (version 2). This waits for every processor, so births
    /// are arranged so that it is not needed; but a box without its limits would be worse than a slow one.
    pub(crate) fn adopt(&self, pid: rustix::process::Pid) -> std::result::Result<(), Failure> {
        if self.version == CgroupVersion::V1 {
            return Ok(());
        }
        for made in &self.made {
            write_at(made.directory.as_fd(), c"cgroup.procs", pid.as_raw_nonzero().to_string().as_bytes())
                .map_err(|errno| Failure::new(Step::JoinCgroups, "", errno))?;
        }
        Ok(())
    }

    /// The files into which PID 1 writes itself (version 1).
    pub(crate) fn doors(&self) -> std::result::Result<Vec<OwnedFd>, Failure> {
        if self.version == CgroupVersion::V2 {
            return Ok(Vec::new());
        }
        let open = |made: &Made| open_for_writing(made.directory.as_fd(), c"tasks");
        let doors: Result<Vec<_>> = self.made.iter().map(open).collect();
        doors.map_err(|errno| Failure::new(Step::MakeCgroups, "tasks", errno))
    }

    /// Files that count, opened so that PID 1 can read them when all others are gone.
    pub(crate) fn counters(&self) -> Vec<OwnedFd> {
        let files: &[&CStr] = match self.version {
            CgroupVersion::V1 => &[c"memory.max_usage_in_bytes", c"memory.oom_control"],
            CgroupVersion::V2 => &[c"memory.peak", c"memory.events", c"cpu.stat"],
        };
        let counting = self.made.iter().filter(|made| made.counts);
        counting
            .flat_map(|made| files.iter().filter_map(|file| open_for_reading(made.directory.as_fd(), file).ok()))
            .collect()
    }

    /// Reads what the groups have counted.
    pub(crate) fn count(&self, closing: &mut Closing) {
        let counted = Counted::read(&self.counters());
        closing.peak_memory_bytes = counted.peak_memory_bytes;
        closing.oom_kills = counted.oom_kills;
        closing.cpu_microseconds = counted.cpu_microseconds;
    }

    /// Removes the directories; what will not go is swept by the next executor.
    pub(crate) fn remove(&mut self) {
        for made in self.made.drain(..) {
            for _ in 0..REMOVALS {
                match rustix::fs::unlinkat(&made.parent, &made.name, AtFlags::REMOVEDIR) {
                    Err(Errno::BUSY) => {
                        let pause = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
                        let _ = rustix::thread::nanosleep(&pause);
                    }
                    _ => break,
                }
            }
        }
    }
}

/// What a box's groups know about what it used.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) oom_kills: u64,
    /// Version 2 only.
    pub(crate) cpu_microseconds: u64,
}

impl Counted {
    /// A file with one number is the peak; the others have keys.
    pub(crate) fn read(counters: &[OwnedFd]) -> Self {
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

fn open_for_reading(directory: BorrowedFd<'_>, file: &CStr) -> Result<OwnedFd> {
    rustix::fs::openat(directory, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
