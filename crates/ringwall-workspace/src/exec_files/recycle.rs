//! Recycles artifacts directories: one that its box did not use serves the next exec of the
//! workspace.
//!
//! Most boxes leave no artifacts, and on file systems such as ext4 creating an inode is slow where
//! others were just deleted. At most one directory is kept, under the name `warm_box` in `.staging`; a
//! rename decides which exec gets it.
//!
//! A recycled directory must equal a new one, and no box may hold a descriptor of it. So it is not
//! kept if another box ran at the same time or if processes of its box may still run. No box can
//! reach `warm_box`, but it is checked again before use, because it survives a restart.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat};
use rustix::io::{Errno, Result};

use crate::fs::erase::erase;
use crate::fs::listing::Walk;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::workspaces::Owner;

const RECYCLED: &str = "spare";

/// Result of [`keep`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recycling {
    Kept,
    /// It was not moved.
    NotKept,
}

/// Creates the artifacts directory `name` in `.staging`, from the recycled directory if that is
/// usable. Returns its `Stat` too.
pub(crate) fn create(staging: &OwnedFd, name: &str, owner: Owner) -> Result<(OwnedFd, Stat)> {
    if let Some(created) = take_recycled(staging, name, owner)? {
        return Ok(created);
    }
    rustix::fs::mkdirat(staging, name, PRIVATE_DIRECTORY)?;
    let handle = beneath::open_directory(staging, name)?;
    if owner != Owner::server() {
        beneath::set_owner(&handle, owner.uid, owner.gid)?;
    }
    let status = rustix::fs::fstat(&handle)?;
    Ok((handle, status))
}

fn take_recycled(staging: &OwnedFd, name: &str, owner: Owner) -> Result<Option<(OwnedFd, Stat)>> {
    // There is no recycled directory, or `name` exists; the caller's `mkdir` reports the latter.
    if rustix::fs::renameat_with(staging, RECYCLED, staging, name, RenameFlags::NOREPLACE).is_err() {
        return Ok(None);
    }
    match check_recycled(staging, name, owner) {
        Ok(Some(created)) => Ok(Some(created)),
        Ok(None) | Err(_) => {
            erase(staging, name)?;
            Ok(None)
        }
    }
}

fn check_recycled(staging: &OwnedFd, name: &str, owner: Owner) -> Result<Option<(OwnedFd, Stat)>> {
    let handle = beneath::open_directory(staging, name)?;
    let status = rustix::fs::fstat(&handle)?;
    let as_created = Mode::from_raw_mode(status.st_mode) == PRIVATE_DIRECTORY
        && (status.st_uid, status.st_gid) == (owner.uid, owner.gid)
        && has_no_directories(&status);
    Ok((as_created && is_empty(&handle)?).then_some((handle, status)))
}

/// Keeps the directory of a dead box if it is unchanged since its creation.
pub(crate) fn keep(staging: &OwnedFd, name: &str, handle: &OwnedFd, created: &Stat) -> Recycling {
    let kept = || {
        // The kernel sets the change time, so anything that the box did and undid shows in it.
        // Before Linux 6.13 a change within the clock tick of the creation does not, so the content
        // is checked too.
        let status = rustix::fs::statat(staging, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_unchanged(created, &status) || !has_no_directories(&status) || !is_empty(handle)? {
            return Ok(Recycling::NotKept);
        }
        // Does not replace another directory, which would have to be deleted.
        rustix::fs::renameat_with(staging, name, staging, RECYCLED, RenameFlags::NOREPLACE)?;
        Result::Ok(Recycling::Kept)
    };
    kept().unwrap_or(Recycling::NotKept)
}

fn is_unchanged(before: &Stat, now: &Stat) -> bool {
    let identity = |status: &Stat| (status.st_dev, status.st_ino);
    let rights = |status: &Stat| (status.st_mode, status.st_uid, status.st_gid);
    // On many file systems a directory that was large once stays large.
    let extent = |status: &Stat| (status.st_nlink, status.st_size, status.st_blocks);
    let modified = |status: &Stat| (status.st_mtime, status.st_mtime_nsec);
    let changed = |status: &Stat| (status.st_ctime, status.st_ctime_nsec);
    identity(before) == identity(now)
        && rights(before) == rights(now)
        && extent(before) == extent(now)
        && modified(before) == modified(now)
        && changed(before) == changed(now)
}

/// A directory without subdirectories has two links, its name and `.`; file systems that do not
/// count them report one.
fn has_no_directories(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory && matches!(status.st_nlink, 1 | 2)
}

/// True if the directory has no entries and no extended attributes, which include access control
/// lists.
fn is_empty(directory: &OwnedFd) -> Result<bool> {
    match rustix::fs::flistxattr_query(directory) {
        Ok(0) | Err(Errno::NOTSUP) => {}
        Ok(_) => return Ok(false),
        Err(errno) => return Err(errno),
    }
    Ok(Walk::new(0).enter(directory, b"")? == 0)
}
