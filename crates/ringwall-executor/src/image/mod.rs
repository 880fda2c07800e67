//! Images: root file systems for boxes, stored as directories under `<data>/images`.
//!
//! An archive is untrusted. It is decoded as a stream (`source`, `entries`), checked entry by entry
//! (`unpack`), and written beneath a directory handle only (`tree`). An image appears by one rename
//! (`staging`) and disappears by another (`store`), so it is never visible in part.
//!
//! This module mounts nothing, executes nothing of an image, changes no owners, and never joins a
//! name from an archive to a path.

mod budget;
mod entries;
pub(crate) mod erase;
mod error;
mod name;
mod pax;
mod source;
mod staging;
mod store;
mod times;
mod tree;
mod unpack;
mod zstd;

#[cfg(test)]
mod tests;

pub use error::ImageError;
pub use source::Interrupted;
pub use store::{HeldImage, Store};

use serde::{Deserialize, Serialize};

/// Description of an imported image, stored beside its root file system as `image.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    pub name: String,
    /// Seconds since 1970.
    pub imported_at: u64,
    /// The archive's file name, or `-` for standard input.
    pub source: String,
    /// Size of all regular files.
    pub bytes: u64,
    /// Files, directories and links that were imported.
    pub entries: u64,
    pub skipped: Skipped,
}

/// Entries of the archive that were not imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Block and character devices outside of `/dev`.
    pub devices: u64,
    /// Named pipes.
    pub pipes: u64,
    /// Entries beneath `/dev`, because a box has its own.
    pub dev_content: u64,
    /// Entries of types that a root file system does not need.
    pub unknown: u64,
    /// Entries whose setuid, setgid or sticky bit was removed. Directories keep the sticky bit.
    pub special_bits: u64,
}

/// Progress of an import, reported after every entry and every chunk of a large one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the (compressed) archive read so far.
    pub read: u64,
    pub entries: u64,
    pub bytes: u64,
}

/// Reads all entries of an archive with their content, without writing any.
pub(crate) fn read_entries(bytes: &[u8]) -> Result<(), ImageError> {
    let mut entries = entries::Entries::new(source::Stream::open(bytes)?);
    let mut buffer = [0; 4096];
    while entries.next()?.is_some() {
        while entries.read_content(&mut buffer)? > 0 {}
    }
    entries.finish()
}

/// Reads the records of a pax extension header.
pub(crate) fn read_pax(bytes: &[u8]) -> Result<(), &'static str> {
    pax::PaxRecords::parse(bytes).map(drop)
}
