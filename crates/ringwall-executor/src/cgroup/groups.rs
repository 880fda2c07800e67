//! The cgroups of one box: made with their limits, held open to read their counters, and removed.
//!
//! If this process is killed, the spawner or the cgroup reaper, which outlive it, remove them. On
//! cgroup v1 a server reuses them for the next box (`cache`), because making three directories
//! takes a seventh of the time of a box.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::cgroup::freezer::Freezer;
use ringwall_jail::cgroups::CgroupUsage;
use ringwall_jail::plan::{CgroupDirectory, CgroupVersion, Cgroups};
use ringwall_jail::report::{Failure, Protection, ProtectionName, ProtectionState, Step};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};

/// Attempts to remove the group of a dying box.
const REMOVE_ATTEMPTS: u32 = 400;

/// The groups of one box, held open.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    list: Vec<Group>,
    /// The state of each limit.
    pub(crate) protections: Vec<Protection>,
    /// The files into which PID 1 writes its PID to join (version 1).
    pub(crate) join_files: Vec<OwnedFd>,
    /// Counter files. PID 1 reads them after all other processes have ended; the executor reads
    /// them if PID 1 cannot.
    pub(crate) counters: Vec<OwnedFd>,
    /// Bytes in TCP and UDP queues, which version 1 counts separately.
    pub(crate) socket_counter: Option<OwnedFd>,
}

#[derive(Debug)]
pub(crate) struct Group {
    path: CString,
    pub(crate) plan: CgroupDirectory,
    pub(crate) directory: OwnedFd,
}

/// The full paths of the groups of a plan.
pub(crate) fn paths(plan: &Cgroups) -> Vec<CString> {
    plan.directories.iter().map(path).collect()
}

impl Groups {
    /// Makes the directories and sets their limits. Limits that the kernel refuses are reported as
    /// missing.
    pub(crate) fn make(plan: &Cgroups) -> std::result::Result<Self, Failure> {
        let mut groups = Groups::default();
        for directory in &plan.directories {
            if let Err(failure) = groups.make_one(plan.version, directory) {
                groups.remove_empty();
                return Err(failure);
            }
        }
        Ok(groups)
    }

    fn make_one(&mut self, version: CgroupVersion, plan: &CgroupDirectory) -> std::result::Result<(), Failure> {
        let path = path(plan);
        let fail = |errno| Failure::new(Step::MakeCgroups, path.to_string_lossy(), errno);
        rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).map_err(fail)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = rustix::fs::open(&path, flags, Mode::empty()).map_err(fail)?;
        for setting in &plan.settings {
            let outcome = write_at(directory.as_fd(), &setting.file, setting.value.as_bytes());
            let Some(name) = setting.protects else { continue };
            let refused = |errno: Errno| {
                format!("the kernel refused {} for {}: {errno}", setting.value, setting.file.to_string_lossy())
            };
            // The first setting of a protection is the limit itself. If a later one is refused, the
            // protection is partial.
            match (self.protections.iter_mut().find(|known| known.name == name), outcome) {
                (None, Ok(())) if version == CgroupVersion::V1 && name == ProtectionName::IoLimit => {
                    let why = "cgroup version 1 does not count writes that the kernel performs later";
                    self.protections.push(Protection::partial(name, why));
                }
                (None, Ok(())) => self.protections.push(Protection::enforced(name)),
                (None, Err(errno)) => self.protections.push(Protection::not_available(name, refused(errno))),
                (Some(known), Err(errno)) if known.state == ProtectionState::Enforced => {
                    *known = Protection::partial(name, refused(errno));
                }
                (Some(_), _) => {}
            }
        }
        if version == CgroupVersion::V1 {
            self.join_files.push(open_at(directory.as_fd(), c"tasks", OFlags::WRONLY).map_err(fail)?);
        }
        if limits(plan, ProtectionName::MemoryLimit) {
            let files: &[&CStr] = match version {
                CgroupVersion::V1 => &[c"memory.max_usage_in_bytes", c"memory.oom_control"],
                CgroupVersion::V2 => &[c"memory.peak", c"memory.events", c"cpu.stat"],
            };
            self.counters.extend(files.iter().filter_map(|file| open_at(directory.as_fd(), file, OFlags::RDONLY).ok()));
            self.socket_counter = open_at(directory.as_fd(), c"memory.kmem.tcp.usage_in_bytes", OFlags::RDONLY).ok();
        }
        self.list.push(Group { path, plan: plan.clone(), directory });
        Ok(())
    }

    /// The group with this limit.
    pub(crate) fn with(&self, limit: ProtectionName) -> Option<&Group> {
        self.list.iter().find(|group| limits(&group.plan, limit))
    }

    /// True if `plan` would make the same groups, apart from their names.
    pub(crate) fn matches(&self, plan: &Cgroups) -> bool {
        let matches = |(group, plan): (&Group, &CgroupDirectory)| {
            group.plan.parent == plan.parent && group.plan.settings == plan.settings
        };
        self.list.len() == plan.directories.len() && self.list.iter().zip(&plan.directories).all(matches)
    }

    /// The freezer of the box, if there is one.
    pub(crate) fn freezer(&self) -> Option<Freezer> {
        self.list.iter().find_map(|group| Freezer::open(group.directory.as_fd()))
    }

    /// Duplicates of the counter files, to read them while the box runs.
    pub(crate) fn copy_counters(&self) -> Vec<OwnedFd> {
        self.counters.iter().filter_map(|counter| counter.try_clone().ok()).collect()
    }

    /// The group in which PID 1 is created (version 2).
    pub(crate) fn entry(&self) -> Option<BorrowedFd<'_>> {
        self.list.first().map(|group| group.directory.as_fd())
    }

    pub(crate) fn count(&self) -> CgroupUsage {
        CgroupUsage::read(&self.counters)
    }

    /// Removes the groups when the box's last process is gone, and gives up after 2 s.
    pub(crate) async fn remove(&mut self) {
        for group in self.list.drain(..) {
            for _ in 0..REMOVE_ATTEMPTS {
                match rustix::fs::rmdir(&group.path) {
                    Err(Errno::BUSY) => tokio::time::sleep(Duration::from_millis(5)).await,
                    _ => break,
                }
            }
        }
    }

    /// Removes groups without processes.
    pub(crate) fn remove_empty(&self) {
        for group in &self.list {
            let _ = rustix::fs::rmdir(&group.path);
        }
    }
}

fn limits(plan: &CgroupDirectory, limit: ProtectionName) -> bool {
    plan.settings.iter().any(|setting| setting.protects == Some(limit))
}

fn path(plan: &CgroupDirectory) -> CString {
    // Neither part contains a NUL byte.
    CString::new([plan.parent.as_bytes(), b"/", plan.name.as_bytes()].concat()).unwrap_or_default()
}

pub(crate) fn open_at(directory: BorrowedFd<'_>, file: &CStr, access: OFlags) -> Result<OwnedFd> {
    rustix::fs::openat(directory, file, access | OFlags::CLOEXEC, Mode::empty())
}

fn write_at(directory: BorrowedFd<'_>, file: &CStr, content: &[u8]) -> Result<()> {
    rustix::io::write(open_at(directory, file, OFlags::WRONLY)?, content).map(drop)
}
