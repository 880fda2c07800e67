//! Visits everything beneath a directory that boxes may be changing, in the kernel's order.
//!
//! Each directory is opened beneath its parent's handle without following symlinks. Subdirectories
//! are visited after all names of their parent were listed, so that one buffer is enough. Entries
//! that no [`AgentPath`](super::AgentPath) can name are skipped: names that are not UTF-8 or
//! contain a backslash, and paths that are too deep.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::{Errno, Result};

use crate::fs::beneath;
use crate::relative_path::RelativePath;

use super::find::restore_owner_access;

const BUFFER: usize = 64 * 1024;
const OPENED: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// A visited entry.
pub(super) struct WalkEntry<'a> {
    pub(super) directory: BorrowedFd<'a>,
    pub(super) name: &'a CStr,
    /// Relative to the start of the walk.
    pub(super) path: &'a str,
    pub(super) kind: FileType,
    pub(super) inode: u64,
}

/// Returned by the visitor to continue or end the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalkStep {
    Continue,
    Stop,
}

/// Visits every entry beneath a directory, in no particular order.
pub(super) fn walk(top: impl AsFd, process: impl FnMut(&WalkEntry<'_>) -> WalkStep) -> Result<()> {
    let directory = open(top.as_fd(), c".")?;
    let mut walk = Walk { process, buffer: vec![MaybeUninit::uninit(); BUFFER], path: String::new(), depth: 0 };
    walk.enter(&directory).map(drop)
}

struct Walk<V> {
    process: V,
    buffer: Vec<MaybeUninit<u8>>,
    path: String,
    depth: usize,
}

impl<V: FnMut(&WalkEntry<'_>) -> WalkStep> Walk<V> {
    fn enter(&mut self, directory: &OwnedFd) -> Result<WalkStep> {
        let mut inner = Vec::new();
        if self.list(directory, &mut inner)? == WalkStep::Stop {
            return Ok(WalkStep::Stop);
        }
        let length = self.path.len();
        for name in inner {
            // Removed, or replaced by something else.
            let Ok(next) = open(directory.as_fd(), &name) else { continue };
            self.path.push_str(name.to_str().unwrap_or_default());
            self.path.push('/');
            self.depth += 1;
            let step = self.enter(&next)?;
            self.depth -= 1;
            self.path.truncate(length);
            if step == WalkStep::Stop {
                return Ok(WalkStep::Stop);
            }
        }
        Ok(WalkStep::Continue)
    }

    fn list(&mut self, directory: &OwnedFd, inner: &mut Vec<CString>) -> Result<WalkStep> {
        let length = self.path.len();
        let mut entries = RawDir::new(directory, &mut self.buffer);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // The directory was removed meanwhile.
                Err(Errno::NOENT) => break,
                entry => entry?,
            };
            let name = entry.file_name();
            let text = match name.to_str() {
                Ok("." | "..") | Err(_) => continue,
                Ok(text) if text.contains('\\') || length + text.len() > RelativePath::MAX_LEN => continue,
                Ok(text) => text,
            };
            let kind = match entry.file_type() {
                // Some file systems return no type with the directory entry.
                FileType::Unknown => match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(status) => FileType::from_raw_mode(status.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            if kind == FileType::Directory && self.depth + 1 < RelativePath::MAX_DEPTH {
                inner.push(name.to_owned());
            }
            self.path.push_str(text);
            let entry = WalkEntry { directory: directory.as_fd(), name, path: &self.path, kind, inode: entry.ino() };
            let step = (self.process)(&entry);
            self.path.truncate(length);
            if step == WalkStep::Stop {
                return Ok(WalkStep::Stop);
            }
        }
        Ok(WalkStep::Continue)
    }
}

fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd> {
    match rustix::fs::openat(parent, name, OPENED | OFlags::RDONLY, Mode::empty()) {
        // The server is rootless and owns the directory, so it may restore its mode.
        Err(Errno::ACCESS) => {
            restore_owner_access(parent);
            restore_owner_access(beneath::look_up(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?);
            rustix::fs::openat(parent, name, OPENED | OFlags::RDONLY, Mode::empty())
        }
        outcome => outcome,
    }
}
