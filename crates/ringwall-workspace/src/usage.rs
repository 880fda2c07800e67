//! How much of the disk a workspace takes: the blocks of everything in it, and how many names there are.
//!
//! Counted is what its user and its boxes put there: `files/`, `skills/`, `sessions/`, inputs and work of all projects, and
//! what boxes that run put among the staged. Not artifacts, which have a limit and an end of their own, nor the server's index
//! of baselines, nor what the server itself writes among the staged: whoever writes there has kept room for it, and a file
//! that replaces another would count twice. A file with several names takes its blocks once. What can be done to a tree by those who are measured is the walk's business
//! (`meter`); what they move while it is walked may be missed or counted twice, so only the measure of a workspace in which
//! nothing runs is exact.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Stat, StatVfs};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::meter::{BLOCK_UNIT, Meter, Skip, open};
use crate::tree::Section;
use crate::workspaces::{PROJECTS, STAGING, Workspace};

pub(crate) const SESSIONS: &str = "sessions";
/// What file systems give out at least.
const BLOCK: u64 = 4096;

/// What something takes on the disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: u64,
    /// Every name: files, directories, links and anything else.
    pub files: u64,
}

impl Usage {
    /// What one new file with so much in it will take, about.
    pub fn of_file(length: u64) -> Self {
        Self { bytes: length.div_ceil(BLOCK).saturating_mul(BLOCK), files: 1 }
    }

    /// What a file that is there takes. Blocks are counted as they are given out, also where a file system says fewer of a
    /// very short file.
    pub(crate) fn of_blocks(status: &Stat) -> Self {
        let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
        Self::of_file(blocks.saturating_mul(BLOCK_UNIT))
    }

    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(more.bytes), files: self.files.saturating_add(more.files) }
    }

    /// What is left of it, which is never less than nothing.
    #[must_use]
    pub fn minus(self, less: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(less.bytes), files: self.files.saturating_sub(less.files) }
    }

    /// The greater of both in each respect.
    #[must_use]
    pub fn or_more(self, other: Self) -> Self {
        Self { bytes: self.bytes.max(other.bytes), files: self.files.max(other.files) }
    }

    /// Whether so much can be added. What is not wanted more of may be too much already.
    pub fn has_room(self, more: Self, most: Self) -> bool {
        let Self { bytes, files } = self.plus(more);
        (more.bytes == 0 || bytes <= most.bytes) && (more.files == 0 || files <= most.files)
    }

    /// Whether it is at most the other in both respects.
    pub fn fits(self, most: Self) -> bool {
        self.bytes <= most.bytes && self.files <= most.files
    }
}

impl Workspace {
    /// Looks at everything, but stops at the first name beyond so many: a full workspace needs no exact figure, and
    /// nobody shall be kept busy by how much fuller it is.
    pub fn measure(&self, files_most: u64) -> Result<Usage, Error> {
        let mut meter = Meter::new(files_most);
        let tops = [Section::Files.name(), Section::Skills.name(), SESSIONS, STAGING, PROJECTS];
        for name in tops {
            let skip = match name {
                PROJECTS => Skip::ArtifactsOfProjects,
                STAGING => Skip::WhatTheServerWrites,
                _ => Skip::Nothing,
            };
            match open(self.directory(), name) {
                Ok(top) => meter.walk(top, skip),
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            }
            .map_err(|errno| Error::Measure(errno.into()))?;
            if meter.is_over() {
                break;
            }
        }
        Ok(meter.usage())
    }

    /// How many bytes the file system of this workspace still has for anybody. Cheap.
    pub fn free_bytes(&self) -> Result<u64, Error> {
        let StatVfs { f_bavail, f_frsize, .. } =
            rustix::fs::fstatvfs(self.directory()).map_err(|errno| Error::Measure(errno.into()))?;
        Ok(f_bavail.saturating_mul(f_frsize))
    }
}

/// What one name takes, with everything beneath it. Nothing, if it is not there.
pub(crate) fn measure_name(parent: &OwnedFd, name: &str) -> rustix::io::Result<Usage> {
    let status = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(Usage::default()),
        outcome => outcome?,
    };
    let mut meter = Meter::new(u64::MAX);
    meter.count(&status);
    if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
        meter.walk(open(parent, name)?, Skip::Nothing)?;
    }
    Ok(meter.usage())
}
