//! Finds files below a directory that the server's own user may read and other users may not.
//!
//! A rootless box has the uid and the groups of the server's user, so the kernel gives it what that user may read. To show it
//! no more than any user sees, everything in this list is left out of the box. A directory that the server's user may write to
//! is left out whole: one of that user's programs could put a private file there at any time.

use std::collections::BTreeSet;
use std::fs::{DirEntry, FileType, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD};

/// A larger tree is not read to its end, and not shown.
const MAX_ENTRIES_BELOW: usize = 20_000;
/// Bounds the reading for one box to less than a second of processor time.
const MAX_ENTRIES: usize = 100_000;

const OTHERS_READ: u32 = 0o004;
const OTHERS_LIST_AND_ENTER: u32 = 0o005;

/// Reads trees, within one bound for all of them.
#[derive(Debug)]
pub(crate) struct Survey<'a> {
    /// Not entered, because the caller hides these itself.
    skip: &'a BTreeSet<PathBuf>,
    left: usize,
}

impl<'a> Survey<'a> {
    pub(crate) fn new(skip: &'a BTreeSet<PathBuf>) -> Self {
        Self { skip, left: MAX_ENTRIES }
    }

    /// The paths to hide below `top`, which must be readable for every user. An entry whose tree is too large is hidden.
    pub(crate) fn hidden_in(&mut self, top: &Path) -> BTreeSet<PathBuf> {
        let mut hidden = BTreeSet::new();
        for entry in std::fs::read_dir(top).into_iter().flatten().flatten() {
            let mut found = BTreeSet::new();
            let mut stack = Vec::new();
            check_entry(&entry, self.skip, &mut found, &mut stack);
            if self.read_all(stack, &mut found).is_none() {
                found = BTreeSet::from([entry.path()]);
            }
            hidden.append(&mut found);
        }
        hidden
    }

    /// `None` when a bound was reached.
    fn read_all(&mut self, mut stack: Vec<PathBuf>, hidden: &mut BTreeSet<PathBuf>) -> Option<()> {
        let mut below = MAX_ENTRIES_BELOW;
        while let Some(directory) = stack.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                hidden.insert(directory);
                continue;
            };
            for entry in entries {
                below = below.checked_sub(1)?;
                self.left = self.left.checked_sub(1)?;
                match entry {
                    Ok(entry) => check_entry(&entry, self.skip, hidden, &mut stack),
                    Err(_) => {
                        hidden.insert(directory.clone());
                    }
                }
            }
        }
        Some(())
    }
}

/// Hides an entry, or puts it on the stack if it is a directory to read.
fn check_entry(entry: &DirEntry, skip: &BTreeSet<PathBuf>, hidden: &mut BTreeSet<PathBuf>, stack: &mut Vec<PathBuf>) {
    let path = entry.path();
    if entry.file_type().is_ok_and(|kind: FileType| kind.is_symlink()) || skip.contains(&path) {
        return;
    }
    match entry.metadata() {
        // It was removed meanwhile or cannot be read; its successor is unknown.
        Err(_) => drop(hidden.insert(path)),
        Ok(status) if is_private(&path, &status) => drop(hidden.insert(path)),
        // A directory that is not private and that others may not enter is closed to the server's user too.
        Ok(status) if status.is_dir() && lets_others_in(&status) => stack.push(path),
        Ok(_) => {}
    }
}

/// True if the server's user has a right to it that other users do not have.
fn is_private(path: &Path, status: &Metadata) -> bool {
    if status.is_dir() {
        let may_enter = || may(path, Access::READ_OK) || may(path, Access::EXEC_OK);
        may(path, Access::WRITE_OK) || (!lets_others_in(status) && may_enter())
    } else {
        status.mode() & OTHERS_READ == 0 && may(path, Access::READ_OK)
    }
}

fn lets_others_in(directory: &Metadata) -> bool {
    directory.mode() & OTHERS_LIST_AND_ENTER == OTHERS_LIST_AND_ENTER
}

/// The kernel's answer counts ownership, groups and access lists.
fn may(path: &Path, right: Access) -> bool {
    rustix::fs::accessat(CWD, path, right, AtFlags::EACCESS).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// As root every directory is writable, so there the directory is hidden rather than the file.
    #[test]
    fn writable_directory_and_private_file_are_hidden() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        let set_mode = |name: &str, mode| std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        for name in ["writable", "closed", "skipped"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        for (name, mode) in [("public", 0o644), ("private", 0o600), ("group", 0o640)] {
            std::fs::write(at(name), "").unwrap();
            set_mode(name, mode);
        }
        set_mode("closed", 0o500);
        std::os::unix::fs::symlink("private", at("link")).unwrap();
        let hidden = Survey::new(&BTreeSet::from([at("skipped")])).hidden_in(top.path());
        assert_eq!(hidden, BTreeSet::from(["writable", "closed", "private", "group"].map(at)));
    }

    #[test]
    fn exhausted_bound_hides_the_entry() {
        let (top, skip) = (tempfile::tempdir().unwrap(), BTreeSet::new());
        std::fs::create_dir(top.path().join("large")).unwrap();
        std::fs::write(top.path().join("large/file"), "").unwrap();
        let mut survey = Survey { skip: &skip, left: 0 };
        let mut hidden = BTreeSet::new();
        assert_eq!(survey.read_all(vec![top.path().join("large")], &mut hidden), None);
    }
}
