//! Counts the names and blocks beneath a directory that boxes may be changing.
//!
//! Memory and open handles are bounded for trees of any width and depth. A directory is read in
//! portions: some names of subdirectories are collected, these are walked, then reading continues.
//! Below a depth of 64 a portion is one name. The last 32 directories on the path are held open;
//! the others are reopened through `..`, and if that leads to another inode, because a directory
//! was moved, the walk gives up the rest of that path.
//!
//! Entries that disappear or change their type are skipped, symlinks are not followed, and
//! permissions that the owner removed from a directory are restored.

use std::collections::HashSet;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, RawDir, SeekFrom, Stat};
use rustix::io::{Errno, Result};

use crate::exec_files::begin::exec_of_output;
use crate::fs::beneath::{open_listing, restore_owner_access};
use crate::fs::durable::TEMP_PREFIX;
use crate::project::ARTIFACTS;
use crate::tree::WRITE_PREFIX;
use crate::usage::Usage;

/// The unit of `st_blocks`, independent of the file system.
pub(crate) const BLOCK_UNIT: u64 = 512;
/// Number of directories on the path that are held open.
const MAX_OPEN_HANDLES: usize = 32;
/// Above this depth a portion is large.
const SHALLOW: usize = 64;
const WIDE: Portion = Portion { listing: 32 * 1024, names: 32 * 1024 };
/// The buffer fits the longest name.
const NARROW: Portion = Portion { listing: 1024, names: 1 };

/// How much of a directory is read at once, in bytes.
struct Portion {
    listing: usize,
    /// Total length of the collected names of subdirectories.
    names: usize,
}

/// Entries that are not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Skip {
    Nothing,
    /// The directory of this name in each directory at the top.
    ProjectArtifacts,
    /// At the top: uploads and files that are being written, and output. No box has access to
    /// these.
    ServerFiles,
}

impl Skip {
    fn skips(self, depth: usize, name: &[u8]) -> bool {
        match self {
            Skip::Nothing => false,
            Skip::ProjectArtifacts => depth == 1 && name == ARTIFACTS.as_bytes(),
            Skip::ServerFiles => {
                let is_output = || str::from_utf8(name).is_ok_and(|name| exec_of_output(name).is_some());
                depth == 0
                    && ([WRITE_PREFIX, TEMP_PREFIX].iter().any(|own| name.starts_with(own.as_bytes())) || is_output())
            }
        }
    }
}

pub(crate) struct Meter {
    usage: Usage,
    max_files: u64,
    /// Files with several hard links, by device and inode.
    seen: HashSet<Identity>,
    buffer: Vec<MaybeUninit<u8>>,
}

type Identity = (u64, u64);

/// A directory on the current path.
struct Level {
    handle: Handle,
    names: Vec<CString>,
    next: Position,
}

enum Handle {
    Open(OwnedFd),
    Closed(Identity),
}

/// The position at which reading a directory continues.
#[derive(Clone, Copy)]
enum Position {
    At(u64),
    End,
}

impl Level {
    fn new(directory: OwnedFd) -> Self {
        Self { handle: Handle::Open(directory), names: Vec::new(), next: Position::At(0) }
    }
}

impl Meter {
    pub(crate) fn new(max_files: u64) -> Self {
        let buffer = vec![MaybeUninit::uninit(); WIDE.listing];
        Self { usage: Usage::default(), max_files, seen: HashSet::new(), buffer }
    }

    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// True if more than `max_files` names were found.
    pub(crate) fn exceeds_limit(&self) -> bool {
        self.usage.files > self.max_files
    }

    pub(crate) fn count(&mut self, status: &Stat) {
        self.usage.files += 1;
        let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        if is_directory || status.st_nlink <= 1 || self.seen.insert((status.st_dev, status.st_ino)) {
            let blocks = u64::try_from(status.st_blocks).unwrap_or(0);
            self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK_UNIT));
        }
    }

    /// Counts everything beneath `top`, but not `top` itself. The walk moves the file offset of
    /// `top`, so no one else may list through this handle.
    pub(crate) fn walk(&mut self, top: OwnedFd, skip: Skip) -> Result<()> {
        let mut levels = vec![Level::new(top)];
        while let Some(depth) = levels.len().checked_sub(1) {
            let level = &mut levels[depth];
            let Handle::Open(directory) = &level.handle else { return Ok(()) };
            if let Some(name) = level.names.pop() {
                match open_listing(directory, name.as_c_str()) {
                    Ok(inner) => levels.push(Level::new(inner)),
                    // Removed, replaced by something else, or owned by another user.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {}
                    Err(errno) => return Err(errno),
                }
                close_oldest_handle(&mut levels)?;
                continue;
            }
            match level.next {
                Position::At(position) => {
                    let (names, next) = self.read(directory, depth, position, skip)?;
                    (level.names, level.next) = (names, next);
                    if self.exceeds_limit() {
                        return Ok(());
                    }
                }
                Position::End => return_to_parent(&mut levels)?,
            }
        }
        Ok(())
    }

    /// Counts a portion of a directory's names. Returns the subdirectories in it and the next
    /// position.
    fn read(&mut self, directory: &OwnedFd, depth: usize, from: u64, skip: Skip) -> Result<(Vec<CString>, Position)> {
        let portion = if depth < SHALLOW { WIDE } else { NARROW };
        if from > 0 {
            rustix::fs::seek(directory, SeekFrom::Start(from))?;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut names, mut taken, mut next) = (Vec::new(), 0, Position::End);
        let mut entries = RawDir::new(directory, &mut buffer[..portion.listing]);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The directory was removed meanwhile.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            if skip.skips(depth, name.to_bytes()) || matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(status) = look(directory, name) else { continue };
            self.count(&status);
            if self.exceeds_limit() {
                break;
            }
            if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
                taken += name.to_bytes().len();
                names.push(name.to_owned());
                if taken >= portion.names {
                    next = Position::At(entry.next_entry_cookie());
                    break;
                }
            }
        }
        self.buffer = buffer;
        Ok((names, next))
    }
}

/// Closes the handle that exceeds [`MAX_OPEN_HANDLES`]. The first handle stays open, because nothing leads to
/// it through `..`.
fn close_oldest_handle(levels: &mut [Level]) -> Result<()> {
    let Some(index) = levels.len().checked_sub(MAX_OPEN_HANDLES + 1).filter(|index| *index > 0) else { return Ok(()) };
    if let Handle::Open(directory) = &levels[index].handle {
        levels[index].handle = Handle::Closed(identify(directory)?);
    }
    Ok(())
}

/// Returns to the parent directory. If that was moved, only the top remains.
fn return_to_parent(levels: &mut Vec<Level>) -> Result<()> {
    let Some(Level { handle: Handle::Open(below), .. }) = levels.pop() else { return Ok(()) };
    let Some(above) = levels.last_mut() else { return Ok(()) };
    if let Handle::Closed(identity) = above.handle {
        match open_listing(&below, c"..") {
            Ok(found) if identify(&found)? == identity => above.handle = Handle::Open(found),
            Ok(_) | Err(_) => levels.truncate(1),
        }
    }
    Ok(())
}

fn identify(directory: &OwnedFd) -> Result<Identity> {
    let status = rustix::fs::fstat(directory)?;
    Ok((status.st_dev, status.st_ino))
}

fn look(directory: &OwnedFd, name: &std::ffi::CStr) -> Result<Stat> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        // The directory can be listed but not searched.
        Err(Errno::ACCESS) => {
            restore_owner_access(directory);
            rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        }
        outcome => outcome,
    }
}
