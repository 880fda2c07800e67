//! Errors of images, each with a hint.
//!
//! Names from an archive are made printable here, so that an archive cannot write escape sequences
//! to the operator's terminal.

use std::io;
use std::path::PathBuf;

/// A failed operation on an image and its subject.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    #[error("cannot open the archive {}", path.display())]
    OpenArchive { path: PathBuf, source: io::Error },
    #[error("cannot read the archive")]
    ReadArchive { source: io::Error },
    #[error("the import was interrupted; nothing was kept")]
    Interrupted,
    #[error("this is {found}, not a tar archive, plain or compressed with gzip or zstd")]
    UnknownFormat { found: &'static str },
    #[error("the archive cannot be decompressed")]
    Decompress { source: io::Error },
    #[error("the archive ends in the middle, after {entries} entries")]
    Truncated { entries: u64 },
    #[error("entry {entry} of the archive is malformed: {problem}")]
    Malformed { entry: u64, problem: &'static str },
    #[error("the archive stores `{name}` as a sparse file, which is not supported")]
    Sparse { name: String },
    #[error("the archive contains the name `{name}`, which {problem}")]
    UnsafeName { name: String, problem: &'static str },
    #[error("the archive's entry `{name}` cannot be created: {problem}")]
    Conflict { name: String, problem: &'static str },
    #[error("`/{name}` in the archive is {found}; boxes mount over it, so it must be a directory")]
    MountPoint { name: &'static str, found: &'static str },
    #[error("the archive unpacks to more than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("the archive contains more than {limit} entries")]
    TooManyEntries { limit: u64 },
    #[error("the disk is nearly full: {available} bytes are left, and {reserve} of them are kept free")]
    DiskFull { available: u64, reserve: u64 },
    #[error("the archive is empty")]
    Empty,
    #[error("the archive does not look like a root file system: it has no /bin, no /usr/bin and no program")]
    NotARoot,
    #[error("cannot write `{name}` of the archive into the image")]
    Write { name: String, source: io::Error },
    #[error("an image named `{name}` exists")]
    Exists { name: String },
    #[error("there is no image named `{name}`")]
    Unknown { name: String, known: Vec<String> },
    #[error("the image `{name}` is in use by a box")]
    InUse { name: String },
    #[error("cannot {operation} {}", path.display())]
    Store { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("the description of the image `{name}` cannot be read")]
    Description { name: String, source: serde_json::Error },
}

impl ImageError {
    /// Advice for the operator.
    pub fn hint(&self) -> String {
        match self {
            Self::OpenArchive { .. } => "check the path; `-` reads the archive from standard input".into(),
            Self::ReadArchive { .. } => "check that the file or pipe is readable to its end".into(),
            Self::Interrupted => "run the same command again to import it".into(),
            Self::UnknownFormat { found } => format!(
                "create one with `tar --numeric-owner -czf rootfs.tar.gz -C ROOT .`{}",
                if found.contains("compressed") {
                    ", or decompress this one first and pipe it: `xz -dc FILE | ringwall image import NAME -`"
                } else {
                    ""
                }
            ),
            Self::Decompress { .. } | Self::Truncated { .. } => {
                "the file is damaged or was copied in part: fetch it again and compare its checksum".into()
            }
            Self::Malformed { .. } => "create the archive again with GNU tar, bsdtar or `docker export`".into(),
            Self::Sparse { .. } => {
                "pack the root file system again without `--sparse` (with bsdtar: `--no-read-sparse`)".into()
            }
            Self::UnsafeName { .. } => {
                "names must be relative and stay inside the archive: create the archive with `tar -C ROOT -cf rootfs.tar .`".into()
            }
            Self::Conflict { .. } => "the archive contains contradictory entries for this name: create it from one directory tree".into(),
            Self::MountPoint { name, .. } => format!("make `{name}` a plain directory in the root file system and pack it again"),
            Self::TooLarge { .. } => "leave out what boxes do not need, or free disk space beneath the data directory".into(),
            Self::TooManyEntries { .. } => "leave out what boxes do not need".into(),
            Self::DiskFull { .. } => "free disk space, or point --data to a larger file system".into(),
            Self::Empty | Self::NotARoot => {
                "pack the root itself (`tar -C ROOT -cf rootfs.tar .`); of a container use `docker export`, not `docker save`".into()
            }
            Self::Write { .. } => "check free space, free inodes and permissions beneath the data directory".into(),
            Self::Exists { name } => format!("remove it first with `ringwall image rm {name}`, or choose another name"),
            Self::Unknown { known, .. } if known.is_empty() => {
                "no image was imported yet: `ringwall image import NAME rootfs.tar`".into()
            }
            Self::Unknown { known, .. } => format!("known images: {}", known.join(", ")),
            Self::InUse { .. } => "wait until the boxes on it have ended, then try again".into(),
            Self::Store { .. } => "check --data and the permissions of that directory".into(),
            Self::Description { name, .. } => format!("remove it with `ringwall image rm {name}` and import it again"),
        }
    }
}

/// A name from an archive for messages: without control characters, at most 120 bytes.
pub(super) fn printable(name: &[u8]) -> String {
    const SHOWN: usize = 120;
    let mut shown = name[..name.len().min(SHOWN)].utf8_chunks().fold(String::new(), |mut shown, chunk| {
        shown.extend(chunk.valid().escape_debug());
        if !chunk.invalid().is_empty() {
            shown.push('\u{fffd}');
        }
        shown
    });
    if name.len() > SHOWN {
        shown.push('…');
    }
    shown
}
