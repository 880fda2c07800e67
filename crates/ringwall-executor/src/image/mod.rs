//! Images: root file systems on which boxes run, kept as plain directories under `<data>/images`.
//!
//! An archive is taken as hostile from its first byte. It is decoded as a stream (`source`, `entries`), judged
//! entry by entry (`unpack`), and written only beneath a directory handle (`tree`). An image becomes visible in one
//! rename (`staging`) and is gone in another (`store`): nobody ever sees half of one.
//!
//! This room never mounts, never runs anything from an image, never changes owners, and never joins a name from
//! an archive to a path.

mod budget;
mod entries;
pub(crate) mod erase;
mod error;
mod name;
mod pax;
mod source;
mod sparse;
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

/// What is known of an imported image; stored beside its root file system as `image.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageInfo {
    pub name: String,
    /// Seconds since 1970.
    pub imported_at: u64,
    /// The archive's file name, or `-` for standard input.
    pub source: String,
    /// The content of all regular files, holes included.
    pub bytes: u64,
    /// Files, directories and links taken from the archive.
    pub entries: u64,
    pub skipped: Skipped,
}

/// What an archive held and the image does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Block and character devices outside `/dev`.
    pub devices: u64,
    /// Named pipes.
    pub pipes: u64,
    /// Anything beneath `/dev`: a box has a `/dev` of its own.
    pub dev_content: u64,
    /// Entries of a type that a root file system does not need.
    pub unknown: u64,
    /// Files and directories that came with a setuid or setgid bit (or files with a sticky bit) and lost it.
    pub special_bits: u64,
}

/// How far an import is, told after every entry and every chunk of a large one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the archive read so far, as they lie in the file (compressed).
    pub read: u64,
    pub entries: u64,
    pub bytes: u64,
}
