//! Lists every regular file beneath a directory, sorted, and walks a directory that boxes may be
//! changing.
//!
//! A walk opens each directory beneath its parent's handle without following symlinks.
//! Subdirectories are visited after all names of their parent were listed, so that one buffer is
//! enough. Entries that no [`AgentPath`] can name are skipped: names that are not UTF-8 or contain a
//! backslash, and paths that are too deep.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath::{entry_type, open_listing};
use crate::relative_path::RelativePath;

use super::error::FilesError;
use super::find::{Links, file_type, files_error};
use super::open::Tree;
use super::path::AgentPath;

/// Above the default quota of names. A list of this length has about 100 MB of JSON.
const MAX_LISTED: usize = 1_000_000;

impl Tree {
    /// Lists the regular files beneath a directory, sorted. For a file the list contains the file
    /// itself; for a missing path it is empty.
    pub fn list(&self, path: &AgentPath) -> Result<Listing, Error> {
        self.list_with(path, |found| match found.kind {
            FileType::RegularFile => Some(found.path.to_owned()),
            _ => None,
        })
    }

    /// Like [`Self::list`], with directories too; their names end with a slash.
    pub(super) fn list_with_directories(&self, path: &AgentPath) -> Result<Listing, Error> {
        self.list_with(path, |found| match found.kind {
            FileType::RegularFile => Some(found.path.to_owned()),
            FileType::Directory => Some(format!("{}/", found.path)),
            _ => None,
        })
    }

    fn list_with(
        &self,
        path: &AgentPath,
        mut name: impl FnMut(&WalkEntry<'_>) -> Option<String>,
    ) -> Result<Listing, Error> {
        let nothing = |prefix: String| Listing { prefix, paths: Vec::new() };
        let (located, status) = match self.locate(path, Links::Followed) {
            Err(Error::Files(FilesError::Missing(_))) => return Ok(nothing(path.plain())),
            outcome => outcome?,
        };
        match file_type(&status) {
            FileType::Directory => {}
            FileType::RegularFile => return Ok(Listing { prefix: path.plain(), paths: vec![String::new()] }),
            _ => return Ok(nothing(path.plain())),
        }
        let mut paths = Vec::new();
        walk(&located, |found| {
            paths.extend(name(found));
            if paths.len() <= MAX_LISTED { WalkStep::Continue } else { WalkStep::Stop }
        })
        .map_err(|errno| files_error(path, errno))?;
        if paths.len() > MAX_LISTED {
            return Err(FilesError::TooMany { path: path.given().to_owned(), max: MAX_LISTED }.into());
        }
        paths.sort_unstable();
        Ok(Listing { prefix: path.plain(), paths })
    }

    /// True if there is a directory at a path.
    pub fn has_directory(&self, path: &AgentPath) -> Result<bool, Error> {
        match self.locate(path, Links::Followed) {
            Ok((_, status)) => Ok(file_type(&status) == FileType::Directory),
            Err(Error::Files(FilesError::Missing(_))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Regular files beneath a directory, or one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    prefix: String,
    paths: Vec<String>,
}

impl Listing {
    /// Paths relative to the listed directory.
    pub fn relative(self) -> Vec<String> {
        self.paths
    }

    /// Paths from the workspace on: `files/…`, `skills/…`.
    pub fn whole(self) -> Vec<String> {
        let Self { prefix, paths } = self;
        let whole = |path: String| if path.is_empty() { prefix.clone() } else { format!("{prefix}/{path}") };
        paths.into_iter().map(whole).collect()
    }
}

const BUFFER: usize = 64 * 1024;

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
pub(super) fn walk(top: impl AsFd, process: impl FnMut(&WalkEntry<'_>) -> WalkStep) -> rustix::io::Result<()> {
    let directory = open_listing(top, c".")?;
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
    fn enter(&mut self, directory: &OwnedFd) -> rustix::io::Result<WalkStep> {
        let mut inner = Vec::new();
        if self.list(directory, &mut inner)? == WalkStep::Stop {
            return Ok(WalkStep::Stop);
        }
        let length = self.path.len();
        for name in inner {
            // Removed, or replaced by something else.
            let Ok(next) = open_listing(directory, name.as_c_str()) else { continue };
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

    fn list(&mut self, directory: &OwnedFd, inner: &mut Vec<CString>) -> rustix::io::Result<WalkStep> {
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
            let Ok(kind) = entry_type(directory, name, entry.file_type()) else { continue };
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
