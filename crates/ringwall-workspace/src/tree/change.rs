//! A change to one file that is known in all its parts and not made yet: how much more it takes is asked before any of it
//! is written.
//!
//! What it takes is what there is afterwards: the new file, less the blocks of the one whose name it gets. A sparse file is
//! written out when it is changed, so its holes count. While it is being written both are there; nobody is asked for room
//! for that moment, because one workspace is changed by one at a time.

use std::borrow::Cow;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::usage::Usage;

use super::find::kind_of;
use super::open::Tree;
use super::path::AgentPath;
use super::range_edit::Splice;

/// A change that was looked at and can be made.
#[derive(Debug)]
#[must_use = "nothing is changed before it is made"]
pub struct Change<'a> {
    pub(super) tree: &'a Tree,
    pub(super) path: &'a AgentPath,
    pub(super) growth: Usage,
    pub(super) content: Content<'a>,
}

/// What the file will hold.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Whole(Cow<'a, [u8]>),
    Spliced(Splice<'a>),
}

impl Change<'_> {
    /// How much more there will be. Nothing where a file gets shorter or stays as long.
    pub fn growth(&self) -> Usage {
        self.growth
    }

    pub fn make(self) -> Result<(), Error> {
        match self.content {
            Content::Whole(bytes) => self.tree.write(self.path, &bytes),
            Content::Spliced(splice) => self.tree.place(splice.write(self.tree)?, self.path),
        }
    }
}

impl Tree {
    /// How much more there will be when a file of this length has this name. An estimate: a box may change what is there.
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
                self.unlock(path);
                look()
            }
            outcome => outcome,
        }
    }

    /// The directories that have to be made on the way to a path.
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

/// The same where what has the name now is known.
pub(super) fn growth_over(status: &Stat, length: u64) -> Usage {
    // Under another name it stays.
    let is_freed = kind_of(status) == FileType::RegularFile && status.st_nlink <= 1;
    let freed = if is_freed { Usage::of_blocks(status) } else { Usage::default() };
    Usage { bytes: Usage::of_file(length).bytes.saturating_sub(freed.bytes), files: 0 }
}
