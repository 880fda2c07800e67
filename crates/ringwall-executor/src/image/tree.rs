//! Writes beneath a root directory, by handles only.
//!
//! Parents are resolved as if the root were `/` (openat2 with RESOLVE_IN_ROOT), because archives
//! legitimately write `lib/x` through `lib -> usr/lib`; a link that points elsewhere resolves
//! inside the root or fails. The last component is created, never opened: an existing entry is
//! removed first. No data is written to an inode of an earlier entry, so a hard link cannot be used
//! to change the file under its other name.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::ImageError;
use super::name::EntryName;
use super::times::timestamps;

/// RESOLVE_IN_ROOT fails with EAGAIN if any name on the machine is renamed during the lookup;
/// retry.
const MAX_LOOKUPS: u32 = 10_000;
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) struct Tree {
    root: Rc<OwnedFd>,
    /// The parent of the last entry, because entries come directory by directory. Cleared when a
    /// name is removed, since only that can change where a path leads.
    parent: Option<(Vec<u8>, Rc<OwnedFd>)>,
}

impl Tree {
    pub(super) fn new(root: OwnedFd) -> Self {
        Self { root: Rc::new(root), parent: None }
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Opens a path as seen from inside the root; symbolic links are followed within it.
    pub(super) fn open(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut left = MAX_LOOKUPS;
        loop {
            match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if left > 0 => left -= 1,
                outcome => return outcome,
            }
        }
    }

    pub(super) fn make_directory(&mut self, name: &EntryName, mode: u32) -> Result<(), ImageError> {
        let (parent, last) = self.locate(name)?;
        match rustix::fs::mkdirat(&*parent, last, Mode::RWXU) {
            Err(Errno::EXIST) if self.kind(&parent, last, name)? == FileType::Directory => {}
            Err(Errno::EXIST) => {
                self.remove_existing(&parent, last, name)?;
                rustix::fs::mkdirat(&*parent, last, Mode::RWXU).map_err(|error| failed(name, error))?;
            }
            outcome => outcome.map_err(|error| failed(name, error))?,
        }
        let directory = rustix::fs::openat(&*parent, last, DIRECTORY | OFlags::RDONLY, Mode::empty())
            .map_err(|error| failed(name, error))?;
        rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode)).map_err(|error| failed(name, error))
    }

    /// Creates an empty file, open for writing.
    pub(super) fn create_file(&mut self, name: &EntryName) -> Result<OwnedFd, ImageError> {
        let (parent, last) = self.locate(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(&*parent, last, flags, Mode::RUSR | Mode::WUSR);
        match create() {
            Err(Errno::EXIST) => {
                self.remove_existing(&parent, last, name)?;
                create()
            }
            outcome => outcome,
        }
        .map_err(|error| failed(name, error))
    }

    pub(super) fn make_symlink(&mut self, name: &EntryName, target: &[u8], mtime: i64) -> Result<(), ImageError> {
        let (parent, last) = self.locate(name)?;
        match rustix::fs::symlinkat(target, &*parent, last) {
            Err(Errno::EXIST) => {
                self.remove_existing(&parent, last, name)?;
                rustix::fs::symlinkat(target, &*parent, last)
            }
            outcome => outcome,
        }
        .and_then(|()| rustix::fs::utimensat(&*parent, last, &timestamps(mtime), AtFlags::SYMLINK_NOFOLLOW))
        .map_err(|error| failed(name, error))
    }

    /// Creates a second name for a file, or for a symbolic link itself, of an earlier entry.
    pub(super) fn make_hard_link(&mut self, name: &EntryName, target: &EntryName) -> Result<(), ImageError> {
        let refuse = |problem| ImageError::Conflict { name: name.printable(), problem };
        if target.is_root() {
            return Err(refuse("it is a hard link to a directory"));
        }
        let (directory, target_last) = target.split();
        let target_parent = match self.open(directory, OFlags::PATH | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(refuse("it is a hard link to a file that is not in the archive before it"));
            }
            outcome => outcome.map_err(|error| failed(target, error))?,
        };
        let found = match rustix::fs::statat(&target_parent, target_last, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {
                return Err(refuse("it is a hard link to a file that is not in the archive before it"));
            }
            outcome => outcome.map_err(|error| failed(target, error))?,
        };
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            return Err(refuse("it is a hard link to a directory"));
        }
        let (parent, last) = self.locate(name)?;
        // Without AT_SYMLINK_FOLLOW, linking to a symbolic link links the link itself.
        let link = || rustix::fs::linkat(&target_parent, target_last, &*parent, last, AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {
                let there = rustix::fs::statat(&*parent, last, AtFlags::SYMLINK_NOFOLLOW)
                    .map_err(|error| failed(name, error))?;
                // Replacing a name by a link to its own file would lose the file.
                if (there.st_dev, there.st_ino) == (found.st_dev, found.st_ino) {
                    return Ok(());
                }
                self.remove_existing(&parent, last, name)?;
                link()
            }
            outcome => outcome,
        }
        .map_err(|error| failed(name, error))
    }

    /// The directory of `name`, created if necessary, and the last component.
    fn locate<'n>(&mut self, name: &'n EntryName) -> Result<(Rc<OwnedFd>, &'n [u8]), ImageError> {
        let (path, last) = name.split();
        if let Some((known, handle)) = &self.parent
            && known == path
        {
            return Ok((Rc::clone(handle), last));
        }
        let handle = match self.open(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(handle) => Rc::new(handle),
            Err(Errno::NOENT) => self.make_parents(path, name)?,
            Err(error) => return Err(parent_error(name, error)),
        };
        self.parent = Some((path.to_vec(), Rc::clone(&handle)));
        Ok((handle, last))
    }

    fn make_parents(&self, path: &[u8], name: &EntryName) -> Result<Rc<OwnedFd>, ImageError> {
        let mut handle = Rc::clone(&self.root);
        let mut start = 0;
        while start < path.len() {
            let end = path[start..].iter().position(|byte| *byte == b'/').map_or(path.len(), |slash| start + slash);
            let next = match self.open(&path[..end], OFlags::PATH | OFlags::DIRECTORY) {
                Err(Errno::NOENT) => make_parent(&handle, &path[start..end]),
                outcome => outcome,
            };
            handle = Rc::new(next.map_err(|error| parent_error(name, error))?);
            start = end + 1;
        }
        Ok(handle)
    }

    /// Removes the entry of this name to make room; a directory only if it is empty.
    fn remove_existing(&mut self, parent: &OwnedFd, last: &[u8], name: &EntryName) -> Result<(), ImageError> {
        self.parent = None;
        let flags = match self.kind(parent, last, name)? {
            FileType::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        rustix::fs::unlinkat(parent, last, flags).map_err(|error| match error {
            Errno::NOTEMPTY | Errno::EXIST => {
                ImageError::Conflict { name: name.printable(), problem: "a directory that is not empty has its name" }
            }
            _ => failed(name, error),
        })
    }

    fn kind(&self, parent: &OwnedFd, last: &[u8], name: &EntryName) -> Result<FileType, ImageError> {
        rustix::fs::statat(parent, last, AtFlags::SYMLINK_NOFOLLOW)
            .map(|found| FileType::from_raw_mode(found.st_mode))
            .map_err(|error| failed(name, error))
    }
}

/// Creates a parent that has no entry of its own, with mode 0755 as other unpackers do.
fn make_parent(holder: &OwnedFd, component: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::mkdirat(holder, component, Mode::RWXU)?;
    let directory = rustix::fs::openat(holder, component, DIRECTORY | OFlags::RDONLY, Mode::empty())?;
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o755))?;
    Ok(directory)
}

/// Errors about the parent's type are faults of the archive; all others are write errors.
fn parent_error(name: &EntryName, error: Errno) -> ImageError {
    let problem = match error {
        Errno::NOTDIR => "its parent is not a directory",
        Errno::LOOP => "the symbolic links in its path form a loop",
        // The lookup found nothing, but the name exists: a dangling link.
        Errno::EXIST | Errno::NOENT => "its parent is a symbolic link that leads nowhere inside the image",
        Errno::NAMETOOLONG => "the path to it is too long",
        _ => return failed(name, error),
    };
    ImageError::Conflict { name: name.printable(), problem }
}

pub(super) fn failed(name: &EntryName, error: impl Into<io::Error>) -> ImageError {
    ImageError::Write { name: name.printable(), source: error.into() }
}
