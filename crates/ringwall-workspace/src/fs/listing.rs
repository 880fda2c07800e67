//! Walks a tree in name order with bounded memory.
//!
//! If a directory has more names than the remaining limit, the first in name order are taken, so
//! that the result does not depend on the order of the file system. The walk opens nothing; the
//! caller passes open directories.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::rc::Rc;

use rustix::fs::{Dir, FileType};
use rustix::io::{Errno, Result};

use crate::fs::beneath::entry_type;

/// Limit of one walk over all kinds of names.
pub(crate) const MAX_NAMES: usize = 10_000;

/// Listed entries that were not visited yet; the next one is last.
pub(crate) struct Walk {
    pending: Vec<Pending>,
    room: usize,
}

struct Pending {
    parent: Rc<[u8]>,
    name: Vec<u8>,
    kind: FileType,
}

/// `path` is relative to the start of the walk.
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: FileType,
}

impl Walk {
    pub(crate) fn new(max_names: usize) -> Self {
        Self { pending: Vec::new(), room: max_names }
    }

    /// Lists an open directory; its entries are visited next. Returns how many names exceeded the
    /// limit.
    pub(crate) fn enter(&mut self, directory: impl AsFd, path: &[u8]) -> Result<u64> {
        let (found, beyond) = list(&directory, self.room)?;
        self.room -= found.len();
        let parent: Rc<[u8]> = path.into();
        let pending = found.into_iter().rev().map(|(name, kind)| Pending { parent: Rc::clone(&parent), name, kind });
        self.pending.extend(pending);
        Ok(beyond)
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let Pending { parent, name, kind } = self.pending.pop()?;
        let path = if parent.is_empty() { name } else { [&parent, b"/".as_slice(), &name].concat() };
        Some(Entry { path, kind })
    }
}

/// Returns the first `max` names in order, and how many more there are.
fn list(directory: impl AsFd, max: usize) -> Result<(BTreeMap<Vec<u8>, FileType>, u64)> {
    let mut names = Dir::read_from(&directory)?;
    let mut first = BTreeMap::new();
    let mut beyond = 0;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if first.len() == max {
            beyond += 1;
            if first.last_key_value().is_none_or(|(last, _): (&Vec<u8>, _)| last.as_slice() < name.to_bytes()) {
                continue;
            }
            first.pop_last();
        }
        let kind = match entry_type(&directory, name, entry.file_type()) {
            Err(Errno::NOENT) => continue,
            outcome => outcome?,
        };
        first.insert(name.to_bytes().to_vec(), kind);
    }
    Ok((first, beyond))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn limited_walk_takes_first_names_in_order() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["c", "a", "e", "b", "d"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        fs::create_dir(directory.path().join("b2")).unwrap();
        let mut walk = Walk::new(4);
        let beyond = walk.enter(File::open(directory.path()).unwrap(), b"").unwrap();
        let found: Vec<_> = walk.by_ref().map(|entry| (String::from_utf8(entry.path).unwrap(), entry.kind)).collect();
        assert_eq!(beyond, 2);
        let file = |name: &str| (name.to_owned(), FileType::RegularFile);
        assert_eq!(found, [file("a"), file("b"), ("b2".to_owned(), FileType::Directory), file("c")]);
        assert_eq!(walk.enter(File::open(directory.path()).unwrap(), b"").unwrap(), 6, "the limit is used up");
    }
}
