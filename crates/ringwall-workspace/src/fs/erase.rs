//! Deletes a directory tree that a box created, of any depth and with any modes, without following
//! symlinks.
//!
//! It does not recurse: the files of each directory at the top are deleted and its subdirectories
//! are moved to the top, until the top is empty. Two handles suffice, and trees deeper than
//! PATH_MAX need no stack. Entries that another process removes meanwhile count as removed. If a
//! process keeps adding entries, the deletion fails with EBUSY after a limit.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use ringwall_ids::random_digits;
use rustix::fs::{AtFlags, Dir, RenameFlags};
use rustix::io::{Errno, Result};

use crate::fs::beneath::take_ownership;

/// Above this number the tree is being filled while it is deleted.
const MAX_NAMES: u64 = 100_000_000;

/// Prefix of names in `.staging` that are being deleted and belong to no exec.
pub(crate) const REMOVED_PREFIX: &str = "removed-";

/// Moves an entry to `staging` and returns its new name there, so that a reader finds all of it or
/// nothing. The caller erases it; if the server dies before, a sweep does.
pub(crate) fn move_to_staging(from: impl AsFd, name: &str, staging: &OwnedFd) -> Result<String> {
    let staging_name = format!("{REMOVED_PREFIX}{}", random_digits::<16>().map_err(|_| Errno::AGAIN)?);
    rustix::fs::renameat_with(from, name, staging, staging_name.as_str(), RenameFlags::NOREPLACE)?;
    Ok(staging_name)
}

/// Deletes the file or directory `name` after moving it to `staging`. Succeeds if it does not exist.
pub(crate) fn erase_in_staging(from: impl AsFd, name: &str, staging: &OwnedFd) -> Result<()> {
    match move_to_staging(from, name, staging) {
        Ok(staging_name) => erase(staging, &staging_name),
        Err(errno) => ignore_missing(Err(errno)),
    }
}

/// Deletes the file or directory `name`. Succeeds if it does not exist.
pub(crate) fn erase(parent: impl AsFd, name: &str) -> Result<()> {
    erase_within(parent, name, MAX_NAMES)
}

/// Fails with EBUSY after `max_names` names.
fn erase_within(parent: impl AsFd, name: &str, max_names: u64) -> Result<()> {
    // Most directories are empty.
    match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::NOTDIR) => return ignore_missing(rustix::fs::unlinkat(&parent, name, AtFlags::empty())),
        Err(Errno::NOTEMPTY | Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let top = match take_ownership(&parent, name) {
        Err(Errno::NOENT) => return Ok(()),
        outcome => outcome?,
    };
    let mut eraser = Eraser { top, moved: 0, remaining: max_names };
    loop {
        ignore_missing(eraser.visit_top())?;
        match rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) => eraser.count()?,
            outcome => return ignore_missing(outcome),
        }
    }
}

struct Eraser {
    top: OwnedFd,
    moved: u64,
    remaining: u64,
}

impl Eraser {
    /// Visits each name at the top once.
    fn visit_top(&mut self) -> Result<()> {
        let mut names = Dir::read_from(&self.top)?;
        while let Some(entry) = names.read() {
            let entry = entry?;
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            self.count()?;
            match rustix::fs::unlinkat(&self.top, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => ignore_missing(self.flatten(name))?,
                outcome => ignore_missing(outcome)?,
            }
        }
        Ok(())
    }

    /// Deletes a directory at the top after moving its subdirectories to the top.
    fn flatten(&mut self, name: &CStr) -> Result<()> {
        let directory = match take_ownership(&self.top, name) {
            // Removed, or replaced by something else that the next round deletes.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            outcome => outcome?,
        };
        let mut names = Dir::read_from(&directory)?;
        while let Some(entry) = names.read() {
            let entry = entry?;
            let inner = entry.file_name();
            if is_dots(inner) {
                continue;
            }
            self.count()?;
            match rustix::fs::unlinkat(&directory, inner, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => self.move_up(&directory, inner)?,
                outcome => ignore_missing(outcome)?,
            }
        }
        match rustix::fs::unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            // The listing missed an entry, or one was added; the next round deletes it.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(()),
            outcome => ignore_missing(outcome),
        }
    }

    fn move_up(&mut self, from: &OwnedFd, name: &CStr) -> Result<()> {
        // Moving a directory changes its `..` entry and needs write permission on it.
        match take_ownership(from, name) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            outcome => drop(outcome?),
        }
        loop {
            self.moved += 1;
            let free = format!("moved-{}", self.moved);
            match rustix::fs::renameat_with(from, name, &self.top, free.as_str(), RenameFlags::NOREPLACE) {
                // The tree contains this name already; try the next number.
                Err(Errno::EXIST) => self.count()?,
                outcome => return ignore_missing(outcome),
            }
        }
    }

    fn count(&mut self) -> Result<()> {
        self.remaining = self.remaining.checked_sub(1).ok_or(Errno::BUSY)?;
        Ok(())
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

fn ignore_missing(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{Mode, OFlags};

    use super::*;

    fn open(directory: &tempfile::TempDir) -> OwnedFd {
        rustix::fs::open(directory.path(), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
    }

    #[test]
    fn erase_removes_trees_and_follows_no_symlink() {
        let directory = tempfile::tempdir().unwrap();
        let parent = open(&directory);
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("canary"), "alive").unwrap();
        fs::write(directory.path().join("file"), "x").unwrap();
        symlink(outside.path(), directory.path().join("link")).unwrap();
        fs::create_dir_all(directory.path().join("tree/moved-1/moved-1/moved-2")).unwrap();
        fs::create_dir_all(directory.path().join("tree/moved-2/a")).unwrap();
        symlink(outside.path(), directory.path().join("tree/moved-1/link")).unwrap();
        fs::set_permissions(directory.path().join("tree/moved-1"), fs::Permissions::from_mode(0o000)).unwrap();
        for name in ["file", "link", "tree", "missing"] {
            erase(&parent, name).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(outside.path().join("canary")).unwrap(), "alive");
    }

    #[test]
    fn tree_deeper_than_path_max_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let parent = open(&directory);
        let mut deepest = parent.try_clone().unwrap();
        for _ in 0..10_000 {
            rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
            rustix::fs::mkdirat(&deepest, "beside", Mode::empty()).unwrap();
            deepest = rustix::fs::openat(&deepest, "d", OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap();
        }
        drop(deepest);
        erase(&parent, "d").unwrap();
        erase(&parent, "beside").unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn tree_beyond_name_limit_is_busy() {
        let directory = tempfile::tempdir().unwrap();
        let parent = open(&directory);
        fs::create_dir(directory.path().join("tree")).unwrap();
        for number in 0..20 {
            fs::write(directory.path().join(format!("tree/{number}")), "x").unwrap();
        }
        assert_eq!(erase_within(&parent, "tree", 10), Err(Errno::BUSY));
        erase_within(&parent, "tree", 11).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
