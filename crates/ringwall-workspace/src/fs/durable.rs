//! What is on the disk before a name promises it.
//!
//! A process that is killed leaves everything that it wrote; a power cut leaves names without their bytes. So bytes are
//! forced before the rename that shows them, and then whoever comes after the cut sees the old or the new, whole. That the
//! rename itself is on the disk nobody waits for: the last seconds may be lost.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exec_id::random_digits;
use crate::fs::beneath;
use crate::skills::UNFINISHED;

/// So many files are forced one by one, which waits for nobody else's. For more of them a single call for the whole file
/// system is quicker: 5,000 files take half as long as unpacking them one by one, and a thirtieth of it all together.
const FEW: usize = 32;
/// A million files of a baseline would not be more.
const MAX_DOCUMENT: u64 = 512 * 1024 * 1024;

/// Files that are being written and get their names together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    written: usize,
}

impl Batch {
    /// One of them is whole.
    pub(crate) fn add(&mut self, file: &File) -> io::Result<()> {
        self.written += 1;
        if self.written <= FEW { file.sync_data() } else { Ok(()) }
    }

    /// All of them are: when this returns, they are on the disk of this directory.
    pub(crate) fn force(&mut self, directory: impl AsFd) -> io::Result<()> {
        let written = std::mem::take(&mut self.written);
        if written > FEW { Ok(rustix::fs::syncfs(directory)?) } else { Ok(()) }
    }
}

/// Replaces a small document of the server's whole. It is written among the staged first.
pub(crate) fn write_document(
    staging: &OwnedFd,
    directory: &OwnedFd,
    name: &str,
    document: &impl Serialize,
) -> io::Result<()> {
    let staged = format!("{UNFINISHED}{}", random_digits().map_err(io::Error::other)?);
    let write = || -> io::Result<()> {
        let mut file = beneath::create_file(staging, staged.as_str())?;
        file.write_all(&serde_json::to_vec(document)?)?;
        file.sync_data()?;
        Ok(rustix::fs::renameat(staging, staged.as_str(), directory, name)?)
    };
    write().inspect_err(|_| {
        // What cannot be removed now is swept when the server starts again.
        let _ = rustix::fs::unlinkat(staging, staged.as_str(), AtFlags::empty());
    })
}

/// Reads one. What is none is an error of the kind `InvalidData`.
pub(crate) fn read_document<T: DeserializeOwned>(directory: &OwnedFd, name: &str) -> io::Result<T> {
    let (file, _) = beneath::open_regular(directory, name)?.ok_or(Errno::INVAL)?;
    let mut text = Vec::new();
    file.take(MAX_DOCUMENT).read_to_end(&mut text)?;
    let broken = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {error}"));
    serde_json::from_slice(&text).map_err(broken)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// What cannot be forced shows that it was tried: a pipe cannot, and nothing through a handle that only locates.
    #[test]
    fn few_are_forced_one_by_one_and_many_at_once() {
        let pipe = File::from(OwnedFd::from(io::pipe().unwrap().1));
        let place = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut batch = Batch::default();
        for number in 1..=FEW {
            assert!(batch.add(&pipe).is_err(), "{number}");
        }
        batch.force(&place).unwrap();
        (0..FEW).for_each(|_| drop(batch.add(&pipe)));
        batch.add(&pipe).unwrap();
        assert!(batch.force(&place).is_err());
        batch.force(&place).unwrap();
    }
}
