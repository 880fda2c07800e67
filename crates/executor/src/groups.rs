//! The cgroups of one box: made with their limits, held open to be counted, and removed if nobody else does.
//!
//! Removing them is the spawner's task, or the undertaker's, who outlive this process should it be killed; they are
//! told of them before they are made.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use jail::cgroups::{Counted, Group};
use jail::plan::{CgroupDirectory, CgroupVersion, Cgroups};
use jail::report::{Failure, Protection, ProtectionName, Step};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

/// How often the removal of a dying box's group is tried.
const REMOVALS: u32 = 400;

/// The groups of one box, held open.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    made: Vec<Made>,
    /// Files into which PID 1 writes itself (version 1).
    pub(crate) doors: Vec<OwnedFd>,
    /// Files that count, for PID 1 to read when all others are gone, and for us if it cannot.
    pub(crate) counters: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Made {
    path: CString,
    directory: OwnedFd,
}

/// What a plan will make, for a spawner that was given these directories.
pub(crate) fn named(plan: &Cgroups, parents: &[CString]) -> Vec<Group> {
    let group = |directory: &CgroupDirectory| {
        let parent = parents.iter().position(|parent| *parent == directory.parent)?;
        Some(Group { parent, name: directory.name.clone() })
    };
    plan.directories.iter().filter_map(group).collect()
}

/// The same by their full names.
pub(crate) fn paths(plan: &Cgroups) -> Vec<CString> {
    plan.directories.iter().map(path).collect()
}

impl Groups {
    /// Makes the directories and sets their limits. Limits that the kernel refuses are reported as missing.
    pub(crate) fn make(plan: &Cgroups, protections: &mut Vec<Protection>) -> std::result::Result<Self, Failure> {
        let mut groups = Groups::default();
        for directory in &plan.directories {
            if let Err(failure) = groups.make_one(plan.version, directory, protections) {
                groups.remove_now();
                return Err(failure);
            }
        }
        Ok(groups)
    }

    fn make_one(
        &mut self,
        version: CgroupVersion,
        plan: &CgroupDirectory,
        protections: &mut Vec<Protection>,
    ) -> std::result::Result<(), Failure> {
        let path = path(plan);
        let fail = |errno| Failure::new(Step::MakeCgroups, path.to_string_lossy(), errno);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).map_err(fail)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
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
        if version == CgroupVersion::V1 {
            self.doors.push(open_at(directory.as_fd(), c"tasks", OFlags::WRONLY).map_err(fail)?);
        }
        if plan.settings.iter().any(|setting| setting.protects == Some(ProtectionName::MemoryLimit)) {
            let files: &[&CStr] = match version {
                CgroupVersion::V1 => &[c"memory.max_usage_in_bytes", c"memory.oom_control"],
                CgroupVersion::V2 => &[c"memory.peak", c"memory.events", c"cpu.stat"],
            };
            self.counters.extend(files.iter().filter_map(|file| open_at(directory.as_fd(), file, OFlags::RDONLY).ok()));
        }
        self.made.push(Made { path, directory });
        Ok(())
    }

    /// The group into which PID 1 is born (version 2).
    pub(crate) fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        self.made.first().map(|made| made.directory.as_fd())
    }

    pub(crate) fn count(&self) -> Counted {
        Counted::read(&self.counters)
    }

    /// Removes the groups once the box's last process is gone, which is soon. The spawner does the same, unless it was
    /// killed.
    pub(crate) async fn remove(&self) {
        for made in &self.made {
            for _ in 0..REMOVALS {
                match rustix::fs::rmdir(&made.path) {
                    Err(Errno::BUSY) => tokio::time::sleep(Duration::from_millis(5)).await,
                    _ => break,
                }
            }
        }
    }

    /// The same for groups that nobody has entered.
    fn remove_now(&self) {
        for made in &self.made {
            let _ = rustix::fs::rmdir(&made.path);
        }
    }
}

fn path(plan: &CgroupDirectory) -> CString {
    // Neither part contains a NUL byte.
    CString::new([plan.parent.as_bytes(), b"/", plan.name.as_bytes()].concat()).unwrap_or_default()
}

fn open_at(directory: BorrowedFd<'_>, file: &CStr, access: OFlags) -> Result<OwnedFd> {
    rustix::fs::openat(directory, file, access | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(directory: BorrowedFd<'_>, file: &CStr, content: &[u8]) -> Result<()> {
    rustix::io::write(open_at(directory, file, OFlags::WRONLY)?, content).map(drop)
}
