//! Collects the artifacts of an exec when all processes of its box are dead.
//!
//! Regular files are copied in name order up to the limits; everything else is skipped and
//! reported. Then the box's directory is removed, or recycled if it is unused. Another box of the
//! project may still hold a descriptor in this tree and change it, so each path is looked up
//! beneath the top without following symlinks.
//!
//! A file that exceeds the limit is skipped completely, not truncated. Empty directories are not
//! kept.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use ringwall_ids::{hexadecimal, quote};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::exec_files::begin::{ArtifactsDir, ExecFiles};
use crate::exec_files::finish::{ArtifactFile, MANIFEST, META};
use crate::exec_files::output::Stream;
use crate::exec_files::recycle::{self, Overlap, Recycling};
use crate::fs::beneath::{self, PRIVATE_DIRECTORY};
use crate::fs::erase::erase;
use crate::fs::listing::{MAX_NAMES, Walk};
use crate::fs::read::{CHUNK, file_size};
use crate::relative_path::{PathProblem, RelativePath};
use crate::workspaces::Owner;

/// Limit for the sum of all paths, so that a list of files cannot be larger than the files.
const MAX_PATHS_BYTES: usize = 4 * 1024 * 1024;

/// Skipped files beyond this number are only counted.
const MAX_NAMED: usize = 100;
const MAX_SHOWN_CHARS: usize = 1024;

/// The exceeded limit. If both were exceeded, the greater value is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Extent {
    #[default]
    Within,
    /// More than 10,000 names or 4 MiB of paths.
    NamesExceeded,
    /// More bytes than the policy allows.
    BytesExceeded,
}

/// State of the box's processes when its files are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// No process is left, or none was started.
    Dead,
    /// Unknown: a container daemon does not answer and may still run the box. Changes that the box
    /// makes from now on are lost.
    Uncertain,
}

/// The files of an exec after its box has ended.
#[derive(Debug)]
pub struct Collected {
    pub(crate) files: ExecFiles,
    pub(crate) left: CollectedFiles,
    residue: Option<io::Error>,
}

/// Result of the collection.
#[derive(Debug, Default)]
pub(crate) struct CollectedFiles {
    pub(crate) kept: Vec<ArtifactFile>,
    skipped: SkippedList,
    extent: Extent,
    paths_bytes: usize,
}

impl ExecFiles {
    /// Collects the files that the box left, at most `max_bytes` bytes. The server's own four files
    /// do not count.
    pub fn collect(self, max_bytes: u64, processes: Processes) -> Result<Collected, Error> {
        let staging = self.project.staging();
        let name = self.exec.as_str();
        let recycling = match (self.presence.leave(processes), &self.artifacts_dir) {
            // The box had no artifacts directory.
            (_, ArtifactsDir::Omitted(_)) => Recycling::Kept,
            (Overlap::Alone, ArtifactsDir::Provided(directory, created)) => {
                recycle::keep(staging, name, &directory.handle, created)
            }
            (Overlap::Concurrent, ArtifactsDir::Provided(..)) => Recycling::NotKept,
        };
        if recycling == Recycling::Kept {
            return Ok(Collected { files: self, left: CollectedFiles::default(), residue: None });
        }
        // Most boxes leave nothing.
        match rustix::fs::unlinkat(staging, name, AtFlags::REMOVEDIR) {
            Ok(()) => return Ok(Collected { files: self, left: CollectedFiles::default(), residue: None }),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(errno) => return Err(self.failure("the artifacts directory", errno.into())),
        }
        let left = self.take_over(max_bytes);
        // After an error too, because the disk may be full. If this fails, the next sweep removes
        // the directory.
        let residue = erase(staging, name).err().map(io::Error::from);
        Ok(Collected { left: left?, files: self, residue })
    }

    fn take_over(&self, max_bytes: u64) -> Result<CollectedFiles, Error> {
        let top = beneath::take_ownership(self.project.staging(), self.exec.as_str())
            .map_err(|errno| self.failure("the artifacts directory", errno.into()))?;
        let mut left = CollectedFiles::default();
        let mut walk = Walk::new(MAX_NAMES);
        let mut copier = Copier::new(&top, &self.exec_dir, self.project.workspace().owner().uid, max_bytes);
        left.enter(&mut walk, Ok(&top), b"");
        while let Some(entry) = walk.next() {
            let path = match accept(&entry.path, entry.kind) {
                Ok(path) => path,
                Err(reason) => {
                    left.skip(&entry.path, reason);
                    continue;
                }
            };
            if entry.kind == FileType::Directory {
                left.enter(&mut walk, beneath::take_ownership(&top, path.as_str()).as_ref(), &entry.path);
                continue;
            }
            if left.paths_bytes + entry.path.len() > MAX_PATHS_BYTES {
                left.skip(&entry.path, SkipReason::OverNames);
                continue;
            }
            match copier.copy(&path).map_err(|error| self.failure(&quote(path.as_str()), error))? {
                Ok(file) => {
                    left.paths_bytes += entry.path.len();
                    left.kept.push(file);
                }
                Err(reason) => left.skip(&entry.path, reason),
            }
        }
        Ok(left)
    }

    fn failure(&self, subject: &str, source: io::Error) -> Error {
        Error::Collect { exec: self.exec.clone(), subject: subject.to_owned(), source }
    }
}

impl CollectedFiles {
    /// Lists a directory, unless the box replaced it meanwhile.
    fn enter(&mut self, walk: &mut Walk, directory: Result<&OwnedFd, &Errno>, path: &[u8]) {
        match directory.map_err(|errno| *errno).and_then(|directory| walk.enter(directory, path)) {
            Ok(0) => {}
            Ok(beyond) => self.skip_many(path, SkipReason::OverNames, beyond),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => self.skip(path, SkipReason::Changed),
            Err(_) => self.skip(path, SkipReason::Unreadable),
        }
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason) {
        self.skip_many(path, reason, 1);
    }

    fn skip_many(&mut self, path: &[u8], reason: SkipReason, count: u64) {
        let extent = match reason {
            SkipReason::OverBytes => Extent::BytesExceeded,
            SkipReason::OverNames => Extent::NamesExceeded,
            SkipReason::SymbolicLink
            | SkipReason::Fifo
            | SkipReason::Socket
            | SkipReason::Device
            | SkipReason::ReservedName
            | SkipReason::Name(_)
            | SkipReason::ForeignOwner
            | SkipReason::Changed
            | SkipReason::Unreadable => Extent::Within,
        };
        self.extent = self.extent.max(extent);
        self.skipped.add(path, reason, count);
    }
}

impl Collected {
    /// The files that were copied, sorted by name within each directory.
    pub fn kept(&self) -> &[ArtifactFile] {
        &self.left.kept
    }

    /// The first 100 skipped files with their reasons.
    pub fn skipped(&self) -> &[Skipped] {
        &self.left.skipped.named
    }

    /// How many files were skipped.
    pub fn skipped_total(&self) -> u64 {
        self.left.skipped.total
    }

    pub fn extent(&self) -> Extent {
        self.left.extent
    }

    /// Why the box's directory could not be removed. It takes disk space until the next sweep.
    pub fn residue(&self) -> Option<&io::Error> {
        self.residue.as_ref()
    }
}

/// Checks name and type of an entry.
fn accept(path: &[u8], kind: FileType) -> Result<RelativePath, SkipReason> {
    match kind {
        FileType::RegularFile | FileType::Directory => {}
        FileType::Symlink => return Err(SkipReason::SymbolicLink),
        FileType::Fifo => return Err(SkipReason::Fifo),
        FileType::Socket => return Err(SkipReason::Socket),
        FileType::CharacterDevice | FileType::BlockDevice => return Err(SkipReason::Device),
        FileType::Unknown => return Err(SkipReason::Unreadable),
    }
    let path = RelativePath::from_listing(path).map_err(SkipReason::Name)?;
    let reserved = [Stream::Stdout.file_name(), Stream::Stderr.file_name(), META, MANIFEST];
    if reserved.contains(&path.as_str()) { Err(SkipReason::ReservedName) } else { Ok(path) }
}

/// Copies files of a box to the server's directory, up to a total size, and hashes them.
///
/// A file is not moved, because another box of the same project may hold a descriptor of it, received
/// over a socket in `work`, and could modify it after it was hashed. A copy also drops owner, mode,
/// hard links, holes and extended attributes.
struct Copier<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    /// Files of other owners are skipped.
    uid: u32,
    /// Bytes that may still be copied.
    room: u64,
    buffer: Vec<u8>,
}

impl<'a> Copier<'a> {
    fn new(from: &'a OwnedFd, to: &'a OwnedFd, uid: u32, room: u64) -> Self {
        Self { from, to, uid, room, buffer: vec![0; CHUNK] }
    }

    /// Copies a regular file or returns why it was skipped. Write errors are errors of the server's
    /// disk; read errors may be caused by the box and skip the file.
    fn copy(&mut self, path: &RelativePath) -> io::Result<Result<ArtifactFile, SkipReason>> {
        let (source, status) = match beneath::open_regular(self.from, path.as_str()) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Err(SkipReason::Changed)),
            Err(_) => return Ok(Err(SkipReason::Unreadable)),
        };
        if status.st_uid != self.uid {
            return Ok(Err(SkipReason::ForeignOwner));
        }
        // Checked before reading: a sparse file can be larger than any disk.
        let size = file_size(&status);
        if size > self.room {
            return Ok(Err(SkipReason::OverBytes));
        }
        let mut target = match self.create(path) {
            // Happens on a case-insensitive file system, if the name equals another name of the box
            // or, like `STDOUT.TXT`, a file of the server.
            Err(Errno::EXIST) => return Ok(Err(SkipReason::ReservedName)),
            outcome => outcome?,
        };
        let mut hash = Sha256::new();
        let mut copied = 0;
        // Reads no more than the size at the check, because the file may still grow.
        let mut source = source.take(size);
        loop {
            let count = match source.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    rustix::fs::unlinkat(self.to, path.as_str(), AtFlags::empty())?;
                    return Ok(Err(SkipReason::Unreadable));
                }
            };
            let bytes = &self.buffer[..count];
            target.write_all(bytes)?;
            hash.update(bytes);
            copied += count as u64;
        }
        self.room -= copied;
        Ok(Ok(ArtifactFile { path: path.clone(), size: copied, hash: hexadecimal(&hash.finalize()) }))
    }

    /// Creates a file and the directories on its path.
    fn create(&self, path: &RelativePath) -> rustix::io::Result<File> {
        match beneath::create_file(self.to, path.as_str()) {
            Err(Errno::NOENT) => {}
            outcome => return outcome,
        }
        let (Some(parent), name) = path.split() else { return Err(Errno::NOENT) };
        let parent = beneath::ensure_directories(self.to, parent, PRIVATE_DIRECTORY, Owner::server())?;
        beneath::create_file(parent, name)
    }
}

/// A file that was not kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// For display: escaped if it is not UTF-8, and truncated after 1,024 characters.
    pub path: String,
    pub reason: SkipReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    SymbolicLink,
    Fifo,
    Socket,
    Device,
    /// One of the four names that the server uses.
    ReservedName,
    /// No request could name this path.
    Name(PathProblem),
    /// It belongs to another user, so the box did not write it.
    ForeignOwner,
    /// The file exceeds the total size that the policy allows.
    OverBytes,
    /// More names than the limit.
    OverNames,
    /// Its type changed during the collection.
    Changed,
    Unreadable,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::SymbolicLink => "is a symbolic link",
            Self::Fifo => "is a FIFO",
            Self::Socket => "is a socket",
            Self::Device => "is a device",
            Self::ReservedName => "has a name that the server uses",
            Self::Name(problem) => return problem.fmt(formatter),
            Self::ForeignOwner => "belongs to another user",
            Self::OverBytes => "exceeds the size limit of artifacts",
            Self::OverNames => "exceeds the limit of names",
            Self::Changed => "changed during the collection",
            Self::Unreadable => "could not be read",
        };
        formatter.write_str(text)
    }
}

/// The skipped files while they are collected.
#[derive(Debug, Default)]
struct SkippedList {
    named: Vec<Skipped>,
    total: u64,
}

impl SkippedList {
    /// Adds `count` files with the same reason as one entry.
    fn add(&mut self, path: &[u8], reason: SkipReason, count: u64) {
        self.total += count;
        if self.named.len() < MAX_NAMED {
            self.named.push(Skipped { path: show(path), reason });
        }
    }
}

fn show(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) => text.chars().take(MAX_SHOWN_CHARS).collect(),
        Err(_) => path.escape_ascii().map(char::from).take(MAX_SHOWN_CHARS).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_files_beyond_limit_are_only_counted() {
        let mut list = SkippedList::default();
        for _ in 0..1000 {
            list.add(b"bad\xff\n", SkipReason::Name(PathProblem::NotUnicode), 1);
        }
        list.add(b"d", SkipReason::OverNames, 5);
        assert_eq!((list.named.len(), list.total), (MAX_NAMED, 1005));
        assert_eq!(list.named[0].path, "bad\\xff\\n");
        let json = serde_json::to_string(&list.named[0]).unwrap();
        assert_eq!(json, r#"{"path":"bad\\xff\\n","reason":{"name":"not_unicode"}}"#);
    }
}
