//! Creates and finds mount targets in the new root without following symlinks.
//!
//! A target is an open parent directory and one name in it. Parents are opened once, beneath the
//! root, and cached; mounting over one of them drops it from the cache.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};

use crate::setup::mounts;

pub(crate) struct MountTargets {
    root: OwnedFd,
    parents: Vec<(Vec<u8>, OwnedFd)>,
}

impl MountTargets {
    pub(crate) fn new(root: OwnedFd) -> Self {
        MountTargets { root, parents: Vec::new() }
    }

    pub(crate) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(crate) fn into_root(self) -> OwnedFd {
        self.root
    }

    /// Opens the parent of `at` (creating missing directories) and returns it with the last name.
    pub(crate) fn parent<'a>(&mut self, at: &'a CStr) -> Result<(BorrowedFd<'_>, &'a [u8])> {
        self.parent_by(at, Self::open_or_make)
    }

    fn parent_by<'a>(
        &mut self,
        at: &'a CStr,
        open: impl FnOnce(&Self, &[u8]) -> Result<OwnedFd>,
    ) -> Result<(BorrowedFd<'_>, &'a [u8])> {
        let (parent, name) = split(at)?;
        if parent.is_empty() {
            return Ok((self.root.as_fd(), name));
        }
        let known = self.parents.iter().position(|(path, _)| path == parent);
        let index = match known {
            Some(index) => index,
            None => {
                let handle = open(self, parent)?;
                self.parents.push((parent.to_vec(), handle));
                self.parents.len() - 1
            }
        };
        Ok((self.parents[index].1.as_fd(), name))
    }

    /// Creates a directory. An existing directory is accepted, anything else is an error.
    pub(crate) fn make_directory(&mut self, at: &CStr, mode: u32) -> Result<()> {
        let (parent, name) = self.parent(at)?;
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode)) {
            Err(Errno::EXIST) => match kind_of(parent, name)? {
                FileType::Directory => Ok(()),
                FileType::Symlink => Err(Errno::LOOP),
                _ => Err(Errno::NOTDIR),
            },
            other => other,
        }
    }

    /// Creates an empty file as mount point. An existing regular file is accepted.
    pub(crate) fn make_file(&mut self, at: &CStr) -> Result<()> {
        let (parent, name) = self.parent(at)?;
        match rustix::fs::mknodat(parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0) {
            Err(Errno::EXIST) => match kind_of(parent, name)? {
                FileType::RegularFile => Ok(()),
                FileType::Symlink => Err(Errno::LOOP),
                _ => Err(Errno::ISDIR),
            },
            other => other,
        }
    }

    /// Returns whether `at` exists. Creates nothing, because the path may lie in a mounted host directory.
    pub(crate) fn exists(&mut self, at: &CStr) -> Result<bool> {
        match self.parent_by(at, Self::open).and_then(|(parent, name)| kind_of(parent, name)) {
            Ok(FileType::Symlink) => Err(Errno::LOOP),
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Mounts a detached tree at an existing target. move_mount(2) does not follow a symlink there.
    pub(crate) fn attach(&mut self, tree: &OwnedFd, at: &CStr) -> Result<()> {
        let (parent, name) = self.parent_by(at, Self::open)?;
        mounts::attach(tree.as_fd(), parent, name)?;
        let covered = at.to_bytes().get(1..).unwrap_or_default();
        self.parents.retain(|(path, _)| !path.starts_with(covered));
        Ok(())
    }

    fn open_or_make(&self, path: &[u8]) -> Result<OwnedFd> {
        match self.open(path) {
            Err(Errno::NOENT) => {}
            other => return other,
        }
        let mut end = 0;
        while end < path.len() {
            end = path[end + 1..].iter().position(|byte| *byte == b'/').map_or(path.len(), |next| end + 1 + next);
            match rustix::fs::mkdirat(&self.root, &path[..end], Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                // `open` refuses a symlink anywhere in the path.
                Err(Errno::EXIST) => drop(self.open(&path[..end])?),
                Err(error) => return Err(error),
            }
        }
        self.open(path)
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve)
    }
}

/// Parent and name, both without the leading slash.
fn split(at: &CStr) -> Result<(&[u8], &[u8])> {
    let path = at.to_bytes().strip_prefix(b"/").ok_or(Errno::INVAL)?;
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&path[..0], path),
    };
    let plain = path.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."));
    if plain { Ok((parent, name)) } else { Err(Errno::INVAL) }
}

fn kind_of(parent: BorrowedFd<'_>, name: &[u8]) -> Result<FileType> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let status = rustix::fs::statat(parent, &name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(status.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> (MountTargets, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("ringwall-targets-{:?}", std::thread::current().id()));
        let _ = std::fs::remove_file(path.join("link"));
        std::fs::create_dir_all(&path).unwrap();
        let root = rustix::fs::open(&path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        (MountTargets::new(root), path)
    }

    #[test]
    fn symlink_and_relative_path_are_refused() {
        let (mut targets, path) = targets();
        std::os::unix::fs::symlink("/tmp", path.join("link")).unwrap();
        assert_eq!(targets.make_directory(c"/link", 0o755), Err(Errno::LOOP));
        assert_eq!(targets.make_file(c"/link"), Err(Errno::LOOP));
        assert_eq!(targets.make_directory(c"/link/below", 0o755), Err(Errno::LOOP));
        assert_eq!(targets.exists(c"/link/x/y"), Err(Errno::LOOP));
        for crooked in [c"relative", c"/a/../b", c"/..", c"/a//b", c"/.", c"/"] {
            assert_eq!(targets.make_directory(crooked, 0o755), Err(Errno::INVAL), "{crooked:?}");
        }
    }

    #[test]
    fn exists_creates_nothing() {
        let (mut targets, path) = targets();
        std::fs::write(path.join("plain"), "").unwrap();
        assert_eq!(targets.exists(c"/gone/below/it"), Ok(false));
        assert_eq!(targets.exists(c"/plain/below"), Ok(false));
        assert!(!path.join("gone").exists());
        assert_eq!(targets.exists(c"/plain"), Ok(true));
    }

    #[test]
    fn missing_parents_are_created() {
        let (mut targets, path) = targets();
        targets.make_directory(c"/one/two/three", 0o755).unwrap();
        targets.make_file(c"/one/two/file").unwrap();
        assert!(path.join("one/two/three").is_dir() && path.join("one/two/file").is_file());
        assert_eq!(targets.make_directory(c"/one/two/file", 0o755), Err(Errno::NOTDIR));
        assert_eq!(targets.make_file(c"/one/two/three"), Err(Errno::ISDIR));
    }
}
