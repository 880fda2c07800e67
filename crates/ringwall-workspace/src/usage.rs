//! Measures how much disk space and how many names a workspace uses.
//!
//! Counted are `files/`, `skills/`, `sessions/`, inputs and work of all projects, and what boxes
//! have put into `.staging`. Not counted are artifacts, which have a limit and a retention of their
//! own, the index of baselines, and what the server itself writes to `.staging`: the caller has
//! reserved space for it, and a file that replaces another would count twice. A file with several
//! hard links counts its blocks once.
//!
//! The walk ([`crate::fs::meter`]) tolerates concurrent changes, but entries that move meanwhile
//! may be missed or counted twice. Only the measure of an idle workspace is exact.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Stat, StatVfs};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath::open_listing;
use crate::fs::meter::{BLOCK_UNIT, Meter, Skip};
use crate::tree::Section;
use crate::workspaces::{PROJECTS, STAGING, Workspace};

pub(crate) const SESSIONS: &str = "sessions";
/// The usual block size of file systems.
const BLOCK: u64 = 4096;

/// Disk usage in bytes and names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// Names: files, directories, symlinks and other entries.
    pub files: u64,
}

impl Usage {
    /// Estimates the usage of a new file of `length` bytes.
    pub fn of_file(length: u64) -> Self {
        Self { bytes: length.div_ceil(BLOCK).saturating_mul(BLOCK), files: 1 }
    }

    /// The usage of an existing file, rounded up to whole blocks because some file systems report
    /// less for very short files.
    pub(crate) fn of_blocks(status: &Stat) -> Self {
        let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
        Self::of_file(blocks.saturating_mul(BLOCK_UNIT))
    }

    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    /// Saturates at 0.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), files: self.files.saturating_sub(less.files) }
    }

    /// The maximum in each dimension.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    /// True if `more` can be added within `max`. A dimension in which `more` is 0 may already
    /// exceed `max`.
    pub fn has_room(self, more: Self, max: Self) -> bool {
        let Self { bytes, files } = self.plus(more);
        (more.bytes == 0 || bytes <= max.bytes) && (more.files == 0 || files <= max.files)
    }

    /// True if both dimensions are at most those of `max`.
    pub fn fits(self, max: Self) -> bool {
        self.bytes <= max.bytes && self.files <= max.files
    }
}

impl Workspace {
    /// Measures the workspace. Stops at the first name beyond `max_files`, so that the cost is
    /// bounded when a workspace is far beyond its quota.
    pub fn measure(&self, max_files: u64) -> Result<Usage, Error> {
        let mut meter = Meter::new(max_files);
        let names = [Section::Files.name(), Section::Skills.name(), SESSIONS, STAGING, PROJECTS];
        for name in names {
            let skip = match name {
                PROJECTS => Skip::ProjectArtifacts,
                STAGING => Skip::ServerFiles,
                _ => Skip::Nothing,
            };
            match open_listing(self.directory(), name) {
                Ok(top) => meter.walk(top, skip),
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            }
            .map_err(|errno| Error::Measure(errno.into()))?;
            if meter.exceeds_limit() {
                break;
            }
        }
        Ok(meter.usage())
    }

    /// Bytes that unprivileged users can still allocate in the workspace's file system. One system
    /// call.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let StatVfs { f_bavail, f_frsize, .. } =
            rustix::fs::fstatvfs(self.directory()).map_err(|errno| Error::Measure(errno.into()))?;
        Ok(f_bavail.saturating_mul(f_frsize))
    }
}

/// Measures one entry with everything beneath it. Zero if it does not exist.
pub(crate) fn measure_name(parent: &OwnedFd, name: &str) -> rustix::io::Result<Usage> {
    let status = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Usage::default()),
        outcome => outcome?,
    };
    let mut meter = Meter::new(u64::MAX);
    meter.count(&status);
    if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
        meter.walk(open_listing(parent, name)?, Skip::Nothing)?;
    }
    Ok(meter.usage())
}
