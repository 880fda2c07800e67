//! Collects the artifacts of an exec when all processes of its box are dead.
//!
//! Regular files are copied in name order up to the limits; everything else is skipped and
//! reported. Then the box's directory is removed, or recycled if it is unused. Another box of the
//! project may still hold a descriptor in this tree and change it, so each path is looked up
//! beneath the top without following symlinks.
//!
//! A file that exceeds the limit is skipped completely, not truncated. Empty directories are not
//! kept.

use std::io;
use std::os::fd::OwnedFd;

use ringwall_ids::quote;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::begin::{ArtifactsDir, ExecFiles};
use crate::exec_files::finish::{ArtifactFile, MANIFEST, META};
use crate::exec_files::output::Stream;
use crate::exec_files::overlap::Overlap;
use crate::exec_files::skipped::{SkipReason, Skipped, SkippedList};
use crate::exec_files::{recycle, recycle::Recycling};
use crate::fs::beneath;
use crate::fs::copy::Copier;
use crate::fs::erase::erase;
use crate::fs::listing::{MAX_NAMES, Walk};
use crate::relative_path::RelativePath;

/// Limit for the sum of all paths, so that a list of files cannot be larger than the files.
const MAX_PATHS_BYTES: usize = 4 * 1024 * 1024;

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
