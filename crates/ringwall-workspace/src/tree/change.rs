//! A prepared change to one file. The caller can check its disk usage before anything is written.
//!
//! The growth is the size of the new file less the blocks of the file that it replaces. A sparse
//! file is written completely, so its holes count. Old and new file exist together for a moment; no
//! space is reserved for that, because the workspace's lock admits one change at a time.

use std::borrow::Cow;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::usage::Usage;

use super::find::file_type;
use super::open::Tree;
use super::path::AgentPath;
use super::range_edit::Splice;

/// A change that was checked and can be made.
#[derive(Debug)]
#[must_use = "nothing changes before `apply`"]
pub struct Change<'a> {
    pub(super) tree: &'a Tree,
    pub(super) path: &'a AgentPath,
    pub(super) growth: Usage,
    pub(super) content: Content<'a>,
}

/// The new content of the file.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Whole(Cow<'a, [u8]>),
    Spliced(Splice<'a>),
}

impl Change<'_> {
    /// Additional disk usage after the change; 0 bytes if the file does not grow.
    pub fn growth(&self) -> Usage {
        self.growth
    }

    pub fn apply(self) -> Result<(), Error> {
        match self.content {
            Content::Whole(bytes) => self.tree.write(self.path, &bytes),
            Content::Spliced(splice) => self.tree.persist(splice.write(self.tree)?, self.path),
        }
    }
}

impl Tree {
    /// Estimates the additional disk usage of writing a file of `length` bytes to `path`. A box may
    /// change the file meanwhile.
    pub fn growth(&self, path: &AgentPath, length: u64) -> Usage {
        let new = Usage::of_file(length);
        match self.look(path) {
            Ok(status) => growth_over(&status, length),
            Err(_) => self.missing_parents(path).plus(new),
        }
    }

    fn look(&self, path: &AgentPath) -> rustix::io::Result<Stat> {
        let inner = path.inner().map_or(".", |inner| inner.as_str());
        let look = || beneath::locate(self.section(path.section()), inner).map(|(_, status)| status);
        match look() {
            Err(Errno::ACCESS) => {
                self.restore_path_access(path);
                look()
            }
            outcome => outcome,
        }
    }

    /// The directories that a write to `path` would create.
    fn missing_parents(&self, path: &AgentPath) -> Usage {
        let mut missing = Usage::default();
        let mut inner = path.inner().map_or("", |inner| inner.as_str());
        while let Some((parent, _)) = inner.rsplit_once('/') {
            match beneath::locate(self.section(path.section()), parent) {
                Err(Errno::NOENT) => missing = missing.plus(Usage::of_file(1)),
                _ => break,
            }
            inner = parent;
        }
        missing
    }
}

/// Like [`Tree::growth`], for an existing file with this status.
pub(super) fn growth_over(status: &Stat, length: u64) -> Usage {
    // Blocks of a file with other hard links are not freed.
    let is_freed = file_type(status) == FileType::RegularFile && status.st_nlink <= 1;
    let freed = if is_freed { Usage::of_blocks(status) } else { Usage::default() };
    Usage { bytes: Usage::of_file(length).bytes.saturating_sub(freed.bytes), files: 0 }
}
