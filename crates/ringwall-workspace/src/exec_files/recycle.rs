//! A box's directory that is kept for the next exec of its workspace, because its box did nothing with it.
//!
//! Most boxes leave no artifacts, and a file system such as ext4 is slow to make an inode where others were just removed:
//! a server that removes one for every exec slows itself down. So there is at most one spare among the staged, under a
//! name that no exec has, and a rename decides who gets it.
//! It must be as good as new, and nobody else may have it. Whoever was handed a descriptor of it would be in the next
//! box's directory; so a box that had company does not leave a spare, nor one that may still live. A spare lies where no
//! box can reach it, also over a restart, and is looked at again all the same before it is given away.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat};
use rustix::io::{Errno, Result};

use crate::fs::erase::erase;
use crate::fs::listing::Walk;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::workspaces::Owner;

const SPARE: &str = "spare";

/// What became of a directory that might have been kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Kept,
    /// It is where it was.
    Refused,
}

/// Makes the directory of a box among the staged, of the spare if there is a good one. How it then looks comes with it.
pub(crate) fn make(staging: &OwnedFd, name: &str, owner: Owner) -> Result<(OwnedFd, Stat)> {
    if let Some(made) = take(staging, name, owner)? {
        return Ok(made);
    }
    rustix::fs::mkdirat(staging, name, PRIVATE_DIRECTORY)?;
    let handle = beneath::open_directory(staging, name)?;
    if owner != Owner::server() {
        beneath::give(&handle, owner.uid, owner.gid)?;
    }
    let status = rustix::fs::fstat(&handle)?;
    Ok((handle, status))
}

fn take(staging: &OwnedFd, name: &str, owner: Owner) -> Result<Option<(OwnedFd, Stat)>> {
    // None is there, or the name is taken; making a directory says which.
    if rustix::fs::renameat_with(staging, SPARE, staging, name, RenameFlags::NOREPLACE).is_err() {
        return Ok(None);
    }
    match inspect(staging, name, owner) {
        Ok(Some(made)) => Ok(Some(made)),
        Ok(None) | Err(_) => {
            erase(staging, name)?;
            Ok(None)
        }
    }
}

fn inspect(staging: &OwnedFd, name: &str, owner: Owner) -> Result<Option<(OwnedFd, Stat)>> {
    let handle = beneath::open_directory(staging, name)?;
    let status = rustix::fs::fstat(&handle)?;
    let as_made = Mode::from_raw_mode(status.st_mode) == PRIVATE_DIRECTORY
        && (status.st_uid, status.st_gid) == (owner.uid, owner.gid)
        && has_no_directories(&status);
    Ok((as_made && is_bare(&handle)?).then_some((handle, status)))
}

/// Keeps the directory of a box that is gone, if it is exactly what the box was given.
pub(crate) fn keep(staging: &OwnedFd, name: &str, handle: &OwnedFd, made: &Stat) -> Fate {
    let kept = || {
        // The time of the last change is the kernel's to set: whatever a box did and undid, it is seen by it. (Before
        // Linux 6.13 not within the tick of the making, so that the rest is looked at too.)
        let status = rustix::fs::statat(staging, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_unchanged(made, &status) || !has_no_directories(&status) || !is_bare(handle)? {
            return Ok(Fate::Refused);
        }
        // Not over another spare, which would be removing one.
        rustix::fs::renameat_with(staging, name, staging, SPARE, RenameFlags::NOREPLACE)?;
        Result::Ok(Fate::Kept)
    };
    kept().unwrap_or(Fate::Refused)
}

fn is_unchanged(before: &Stat, now: &Stat) -> bool {
    let identity = |status: &Stat| (status.st_dev, status.st_ino);
    let rights = |status: &Stat| (status.st_mode, status.st_uid, status.st_gid);
    // A directory that once was large stays so on many file systems, and tells.
    let extent = |status: &Stat| (status.st_nlink, status.st_size, status.st_blocks);
    let modified = |status: &Stat| (status.st_mtime, status.st_mtime_nsec);
    let changed = |status: &Stat| (status.st_ctime, status.st_ctime_nsec);
    identity(before) == identity(now)
        && rights(before) == rights(now)
        && extent(before) == extent(now)
        && modified(before) == modified(now)
        && changed(before) == changed(now)
}

/// Two links are its name and its own `.`; a file system that does not count them says one.
fn has_no_directories(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory && matches!(status.st_nlink, 1 | 2)
}

/// Without attributes, of which an access control list is one, and without names.
fn is_bare(directory: &OwnedFd) -> Result<bool> {
    match rustix::fs::flistxattr_query(directory) {
        Ok(0) | Err(Errno::NOTSUP) => {}
        Ok(_) => return Ok(false),
        Err(errno) => return Err(errno),
    }
    Ok(Walk::new(0).enter(directory, b"")? == 0)
}
