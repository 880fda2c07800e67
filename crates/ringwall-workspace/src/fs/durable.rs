//! Syncs file contents before the rename that makes them visible.
//!
//! A killed process leaves everything it wrote, but after a power cut a name can exist without its
//! bytes. With the sync first, a reader after the power cut sees the complete old or the complete
//! new file. The rename itself is not synced: the changes of the last seconds may be lost.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringwall_ids::random_digits;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::fs::beneath::{self, PRIVATE_DIRECTORY};
use crate::fs::erase::erase;

/// Prefix of names in a staging directory that are uploads or documents in progress. The next start of
/// the server removes them.
pub(crate) const TEMP_PREFIX: &str = "upload-";

/// Up to this number each file is synced by itself, which does not wait for data of other writers.
/// For more files one `syncfs` is faster: for a ZIP of 5,000 files it adds a thirtieth to the time
/// of unpacking, syncing each file a half.
const MAX_FILE_SYNCS: usize = 32;
/// A baseline of a million files has a smaller index.
const MAX_DOCUMENT: u64 = 512 * 1024 * 1024;

/// Files that are written and then become visible together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    written: usize,
}

impl Batch {
    /// Counts a completely written file and syncs it if the batch is small.
    pub(crate) fn add(&mut self, file: &File) -> io::Result<()> {
        self.written += 1;
        if self.written <= MAX_FILE_SYNCS { file.sync_data() } else { Ok(()) }
    }

    /// Syncs the file system of `directory` if the batch was large. Afterwards all added files are
    /// on disk.
    pub(crate) fn sync(&mut self, directory: impl AsFd) -> io::Result<()> {
        let written = std::mem::take(&mut self.written);
        if written > MAX_FILE_SYNCS { Ok(rustix::fs::syncfs(directory)?) } else { Ok(()) }
    }
}

/// A directory in `.staging` that no box can reach. Dropping it deletes it; if that fails, the next
/// start of the server does.
#[derive(Debug)]
pub(crate) struct TempDirectory {
    staging: OwnedFd,
    pub(crate) name: String,
    pub(crate) handle: OwnedFd,
}

impl TempDirectory {
    pub(crate) fn create(staging: &OwnedFd) -> Result<Self, Error> {
        let name = format!("{TEMP_PREFIX}{}", random_digits::<16>()?);
        let handle =
            beneath::ensure_directory(staging, &name, PRIVATE_DIRECTORY).map_err(|errno| Error::Stage(errno.into()))?;
        Ok(Self { staging: staging.try_clone().map_err(Error::Stage)?, name, handle })
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        let _ = erase(&self.staging, &self.name);
    }
}

/// Replaces a JSON document of the server. The new content is written to `staging`, synced and
/// renamed.
pub(crate) fn write_document(
    staging: &OwnedFd,
    directory: &OwnedFd,
    name: &str,
    document: &impl Serialize,
) -> io::Result<()> {
    let staged = format!("{TEMP_PREFIX}{}", random_digits::<16>().map_err(io::Error::other)?);
    let write = || -> io::Result<()> {
        let mut file = beneath::create_file(staging, staged.as_str())?;
        file.write_all(&serde_json::to_vec(document)?)?;
        file.sync_data()?;
        Ok(rustix::fs::renameat(staging, staged.as_str(), directory, name)?)
    };
    write().inspect_err(|_| {
        // After an error the next start of the server removes it.
        let _ = rustix::fs::unlinkat(staging, staged.as_str(), AtFlags::empty());
    })
}

/// Reads a JSON document. One that cannot be parsed is an error of kind `InvalidData`.
pub(crate) fn read_document<T: DeserializeOwned>(directory: &OwnedFd, name: &str) -> io::Result<T> {
    let (file, _) = beneath::open_regular(directory, name)?.ok_or(Errno::INVAL)?;
    let mut text = Vec::new();
    file.take(MAX_DOCUMENT).read_to_end(&mut text)?;
    let broken = |error| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {error}"));
    serde_json::from_slice(&text).map_err(broken)
}

/// Creates a file in `staging` and removes its name, so that a crash leaves nothing behind.
pub(crate) fn create_unnamed_file(staging: &OwnedFd) -> Result<File, Error> {
    let name = format!("{TEMP_PREFIX}{}", random_digits::<16>()?);
    let create = || {
        let file = beneath::create_file(staging, name.as_str())?;
        rustix::fs::unlinkat(staging, name.as_str(), AtFlags::empty())?;
        Ok(file)
    };
    create().map_err(|errno: Errno| Error::Stage(errno.into()))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    /// An error shows that a sync was attempted: a pipe cannot be synced, nor a file system through
    /// an O_PATH handle.
    #[test]
    fn small_batch_is_synced_by_file_and_large_batch_by_syncfs() {
        let pipe = File::from(OwnedFd::from(io::pipe().unwrap().1));
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let mut batch = Batch::default();
        for number in 1..=MAX_FILE_SYNCS {
            assert!(batch.add(&pipe).is_err(), "{number}");
        }
        batch.sync(&root).unwrap();
        (0..MAX_FILE_SYNCS).for_each(|_| drop(batch.add(&pipe)));
        batch.add(&pipe).unwrap();
        assert!(batch.sync(&root).is_err());
        batch.sync(&root).unwrap();
    }
}
