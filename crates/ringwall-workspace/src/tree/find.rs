//! Resolves paths: for reads through symlinks that stay within the tree, for changes through none.
//!
//! A path without symlinks is resolved beneath its section by one system call. If it contains one,
//! a read resolves it again beneath the directory that holds the sections, and the result must lie
//! in a section of the tree; nothing else in a workspace may be read through it. Only regular files
//! are opened, and only if all their hard links are in the tree: another link could belong to
//! another user.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath::{self, restore_owner_access};
use crate::relative_path::{PathProblem, RelativePath};
use crate::workspaces::Owner;

use super::error::FilesError;
use super::list::{WalkEntry, WalkStep, walk};
use super::open::Tree;
use super::path::AgentPath;

/// Links beyond this number of names are not searched; the file then counts as linked elsewhere.
const MAX_SEARCHED_NAMES: u64 = 1_000_000;

/// Treatment of symlinks that stay within the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Followed,
    Refused,
}

/// The number of names in the tree of each file with several hard links. Counted once for a caller
/// that opens many files.
#[derive(Debug, Default)]
pub(super) struct LinkCounts {
    counted: Option<HashMap<(u64, u64), u64>>,
}

impl Tree {
    /// Opens a regular file for reading.
    pub(super) fn open_file(&self, path: &AgentPath, links: Links) -> Result<(File, Stat), Error> {
        self.open_if(path, links, |status| self.is_own(path, status))
    }

    /// Like [`Self::open_file`] for one of many files: all hard links are counted when the first
    /// file with several is opened.
    pub(super) fn open_one_of_many(&self, path: &AgentPath, names: &mut LinkCounts) -> Result<(File, Stat), Error> {
        self.open_if(path, Links::Followed, |status| {
            if !self.is_owners(status) || status.st_nlink <= 1 {
                return Ok(self.is_owners(status));
            }
            let counted = match &mut names.counted {
                Some(counted) => counted,
                none => none.insert(self.count_names().map_err(|errno| files_error(path, errno))?),
            };
            Ok(counted.get(&(status.st_dev, status.st_ino)).is_some_and(|count| *count >= status.st_nlink))
        })
    }

    fn open_if(
        &self,
        path: &AgentPath,
        links: Links,
        is_own: impl FnOnce(&Stat) -> Result<bool, Error>,
    ) -> Result<(File, Stat), Error> {
        path.file()?;
        let (located, status) = self.locate(path, links)?;
        match file_type(&status) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(FilesError::IsDirectory(path.given().to_owned()).into()),
            _ => return Err(FilesError::Irregular(path.given().to_owned()).into()),
        }
        if !is_own(&status)? {
            return Err(FilesError::OutOfScope(path.given().to_owned()).into());
        }
        let file = beneath::open_located(&located).map_err(|errno| files_error(path, errno))?;
        Ok((file, status))
    }

    /// Locates what is at a path without opening it. The result is never a symlink.
    pub(super) fn locate(&self, path: &AgentPath, links: Links) -> Result<(OwnedFd, Stat), Error> {
        let section = self.section(path.section());
        let inner = path.inner().map_or(".", |inner| inner.as_str());
        let mut outcome = beneath::locate(section, inner);
        if matches!(outcome, Err(Errno::ACCESS)) {
            self.restore_path_access(path);
            outcome = beneath::locate(section, inner);
        }
        let met_link = match &outcome {
            Ok((_, status)) => file_type(status) == FileType::Symlink,
            Err(errno) => *errno == Errno::LOOP,
        };
        match (met_link, links) {
            (false, _) => outcome.map_err(|errno| files_error(path, errno)),
            (true, Links::Refused) => Err(FilesError::OutOfScope(path.given().to_owned()).into()),
            (true, Links::Followed) => self.follow(path),
        }
    }

    fn follow(&self, path: &AgentPath) -> Result<(OwnedFd, Stat), Error> {
        let found = beneath::locate_through_links(self.parent(), path.plain().as_str());
        let (located, status) = found.map_err(|errno| files_error(path, errno))?;
        let real_path = beneath::real_path(&located).map_err(|errno| files_error(path, errno))?;
        for top in self.sections() {
            let top = beneath::real_path(top).map_err(|errno| files_error(path, errno))?;
            if real_path.strip_prefix(top.as_slice()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/")) {
                return Ok((located, status));
            }
        }
        Err(FilesError::OutOfScope(path.given().to_owned()).into())
    }

    fn is_owners(&self, status: &Stat) -> bool {
        status.st_uid == self.workspace().owner().uid || status.st_uid == Owner::server().uid
    }

    /// True if the file belongs to the workspace and all its hard links are in the tree.
    fn is_own(&self, path: &AgentPath, status: &Stat) -> Result<bool, Error> {
        let (mut missing, mut seen) = (status.st_nlink, 0);
        if missing <= 1 || !self.is_owners(status) {
            return Ok(self.is_owners(status));
        }
        for top in self.sections() {
            walk(top, |found| {
                let is_name = found.inode == status.st_ino
                    && identify(found)
                        .is_ok_and(|other| (other.st_dev, other.st_ino) == (status.st_dev, status.st_ino));
                missing -= u64::from(is_name);
                seen += 1;
                if missing == 0 || seen > MAX_SEARCHED_NAMES { WalkStep::Stop } else { WalkStep::Continue }
            })
            .map_err(|errno| files_error(path, errno))?;
            if missing == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn count_names(&self) -> rustix::io::Result<HashMap<(u64, u64), u64>> {
        let (mut counted, mut seen) = (HashMap::new(), 0);
        for top in self.sections() {
            walk(top, |found| {
                if found.kind == FileType::RegularFile
                    && let Ok(status) = identify(found)
                    && status.st_nlink > 1
                {
                    *counted.entry((status.st_dev, status.st_ino)).or_default() += 1;
                }
                seen += 1;
                if seen > MAX_SEARCHED_NAMES { WalkStep::Stop } else { WalkStep::Continue }
            })?;
        }
        Ok(counted)
    }

    /// True if a directory in the path is a symlink. For such a path the kernel may return only
    /// ENOTDIR.
    pub(super) fn meets_link(&self, path: &AgentPath) -> bool {
        let Some((Some(parent), _)) = path.inner().map(RelativePath::split) else { return false };
        match beneath::locate(self.section(path.section()), parent) {
            Ok((_, status)) => file_type(&status) == FileType::Symlink,
            Err(errno) => errno == Errno::LOOP,
        }
    }

    /// Restores the owner's permissions on the section and the directories in the path. Needed if
    /// the server is rootless: it has the boxes' user and no other way through.
    pub(super) fn restore_path_access(&self, path: &AgentPath) {
        let section = self.section(path.section());
        restore_owner_access(section);
        let Ok(mut handle) = beneath::locate_directory(section, ".") else { return };
        for name in path.inner().map_or("", |inner| inner.as_str()).split('/').filter(|name| !name.is_empty()) {
            let Ok(next) = beneath::locate_directory(&handle, name) else { return };
            handle = next;
            restore_owner_access(&handle);
        }
    }
}

fn identify(found: &WalkEntry<'_>) -> rustix::io::Result<Stat> {
    rustix::fs::statat(found.directory, found.name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn file_type(status: &Stat) -> FileType {
    FileType::from_raw_mode(status.st_mode)
}

/// Maps an error of the kernel to an error of the files API.
pub(super) fn files_error(path: &AgentPath, errno: Errno) -> Error {
    let given = || path.given().to_owned();
    match errno {
        Errno::NOENT | Errno::NOTDIR => FilesError::Missing(given()).into(),
        Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::PERM => FilesError::OutOfScope(given()).into(),
        Errno::NAMETOOLONG => FilesError::Malformed(PathProblem::LongPath).into(),
        Errno::ISDIR => FilesError::IsDirectory(given()).into(),
        Errno::NXIO => FilesError::Irregular(given()).into(),
        errno => Error::UseTree(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspaces::Workspaces;

    #[test]
    fn hard_links_are_counted_once_for_many_files() {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&directory.path().join("w")).unwrap();
        let workspace = workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server()).unwrap();
        let tree = workspace.tree().unwrap();
        let host_path = |name: &str| directory.path().join("w/u/a").join(name);
        let path = |name: &str| AgentPath::parse(name).unwrap();
        for name in ["one", "two", "foreign"] {
            fs::write(host_path("files").join(name), "x").unwrap();
        }
        fs::hard_link(host_path("files/one"), host_path("skills/one")).unwrap();
        fs::hard_link(host_path("files/two"), host_path("files/again")).unwrap();
        fs::hard_link(host_path("files/foreign"), directory.path().join("outside")).unwrap();
        let mut names = LinkCounts::default();
        assert!(tree.open_one_of_many(&path("files/one"), &mut names).is_ok());
        assert!(tree.open_one_of_many(&path("files/foreign"), &mut names).is_err());
        // A second count would miss this name.
        fs::rename(host_path("files/again"), directory.path().join("away")).unwrap();
        assert!(tree.open_one_of_many(&path("files/two"), &mut names).is_ok());
        assert!(tree.open_file(&path("files/two"), Links::Followed).is_err(), "control: counted anew");
        // A name that was added after the count is not counted.
        fs::hard_link(host_path("files/one"), directory.path().join("more")).unwrap();
        assert!(tree.open_one_of_many(&path("files/one"), &mut names).is_err());
    }
}
