//! Recycles artifacts directories: one that its box did not use serves the next exec of the
//! workspace.
//!
//! Most boxes leave no artifacts, and on file systems such as ext4 creating an inode is slow where
//! others were just deleted. At most one directory is kept, under the name `spare` in `.staging`; a
//! rename decides which exec gets it.
//!
//! A recycled directory must equal a new one, and no box may hold a descriptor of it. Two boxes of a
//! workspace can pass each other descriptors through a socket in `work`, so a directory is not kept
//! if another box ran at the same time ([`OverlapTracker`]) or if processes of its box may still run.
//! No box can reach `spare`, but it is checked again before use, because it survives a restart.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat};
use rustix::io::{Errno, Result};

use crate::exec_files::collect::Processes;
use crate::fs::beneath::{self, PRIVATE_DIRECTORY};
use crate::fs::erase::erase;
use crate::fs::listing::Walk;
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
    beneath::set_owner_of_new(&handle, owner)?;
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

/// Tells if another box of the workspace ran at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlap {
    Alone,
    Concurrent,
}

/// The workspaces with running execs.
///
/// An exec enters when its files are created. It leaves when it is collected and its processes are
/// known to be dead. An exec that was dropped, or whose box may still run, never leaves and
/// overlaps all later execs of the workspace until the server ends. Workspaces are identified by
/// device and inode, because on a case-insensitive file system two names can mean one workspace.
#[derive(Debug, Clone, Default)]
pub(crate) struct OverlapTracker {
    workspaces: Arc<Mutex<HashMap<Identity, PresentExecs>>>,
}

/// Device and inode of the workspace's `.staging`.
type Identity = (u64, u64);

#[derive(Debug)]
struct PresentExecs {
    count: u64,
    /// `Concurrent` from the time two execs are present until all have left.
    overlap: Overlap,
}

/// One exec in a workspace. Dropping it does not leave.
#[derive(Debug)]
pub(crate) struct ExecPresence {
    overlaps: OverlapTracker,
    identity: Identity,
}

impl OverlapTracker {
    pub(crate) fn enter(&self, staging: &OwnedFd) -> rustix::io::Result<ExecPresence> {
        let status = rustix::fs::fstat(staging)?;
        let identity = (status.st_dev, status.st_ino);
        let mut workspaces = self.lock();
        let execs = workspaces.entry(identity).or_insert(PresentExecs { count: 0, overlap: Overlap::Alone });
        execs.count += 1;
        if execs.count > 1 {
            execs.overlap = Overlap::Concurrent;
        }
        drop(workspaces);
        Ok(ExecPresence { overlaps: self.clone(), identity })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Identity, PresentExecs>> {
        self.workspaces.lock()
    }
}

impl ExecPresence {
    /// Leaves, if the processes are dead, and returns whether another exec was present meanwhile.
    pub(crate) fn leave(&self, processes: Processes) -> Overlap {
        match processes {
            Processes::Uncertain => Overlap::Concurrent,
            Processes::Dead => {
                let mut workspaces = self.overlaps.lock();
                let Some(execs) = workspaces.get_mut(&self.identity) else {
                    return Overlap::Concurrent;
                };
                let overlap = execs.overlap;
                execs.count -= 1;
                if execs.count == 0 {
                    workspaces.remove(&self.identity);
                }
                overlap
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn overlap_lasts_until_all_execs_have_left() {
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [here, elsewhere] = directories.each_ref().map(|path| OwnedFd::from(File::open(path).unwrap()));
        let overlaps = OverlapTracker::default();
        let (first, other) = (overlaps.enter(&here).unwrap(), overlaps.enter(&elsewhere).unwrap());
        assert_eq!(first.leave(Processes::Dead), Overlap::Alone);
        assert_eq!(other.leave(Processes::Dead), Overlap::Alone);
        // The second exec overlaps the first and the third; the first and the third do not meet.
        let (one, two) = (overlaps.enter(&here).unwrap(), overlaps.enter(&here).unwrap());
        assert_eq!(one.leave(Processes::Dead), Overlap::Concurrent);
        let three = overlaps.enter(&here).unwrap();
        assert_eq!(two.leave(Processes::Dead), Overlap::Concurrent);
        assert_eq!(three.leave(Processes::Dead), Overlap::Concurrent);
        assert!(overlaps.lock().is_empty());
        // An exec with uncertain processes does not leave.
        assert_eq!(overlaps.enter(&here).unwrap().leave(Processes::Uncertain), Overlap::Concurrent);
        drop(overlaps.enter(&elsewhere).unwrap());
        for staging in [&here, &elsewhere] {
            assert_eq!(overlaps.enter(staging).unwrap().leave(Processes::Dead), Overlap::Concurrent);
        }
    }
}
