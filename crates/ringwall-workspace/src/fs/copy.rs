//! Copying one file that a box left into a file of the server's own, hashing it on the way.
//!
//! A copy and not a move: another box of the same project may have been handed a descriptor of the file (through a
//! socket in `work`), and could go on writing to what was already hashed and listed. A copy has no owner, mode, second
//! name, hole or attribute to worry about either. Its bytes are the ones that were hashed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::exec_files::finish::ArtifactFile;
use crate::exec_files::skipped::SkipReason;
use crate::exec_id::hexadecimal;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::relative_path::RelativePath;

const CHUNK: usize = 128 * 1024;

/// Copies from one tree to another as long as there is room.
pub(crate) struct Copier<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    /// Whose files are taken.
    uid: u32,
    /// Bytes that may still be kept.
    room: u64,
    buffer: Vec<u8>,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(from: &'a OwnedFd, to: &'a OwnedFd, uid: u32, room: u64) -> Self {
        Self { from, to, uid, room, buffer: vec![0; CHUNK] }
    }

    /// Copies a regular file, or says why it is left out. Only a failure to write is an error: it is our disk's, while
    /// a failure to read may be the box's doing.
    pub(crate) fn copy(&mut self, path: &RelativePath) -> io::Result<Result<ArtifactFile, SkipReason>> {
        let (source, status) = match beneath::open_regular(self.from, path.as_str()) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Err(SkipReason::Changed)),
            Err(_) => return Ok(Err(SkipReason::Unreadable)),
        };
        if status.st_uid != self.uid {
            return Ok(Err(SkipReason::ForeignOwner));
        }
        // Before a byte is read: a file with a hole can claim to be larger than any disk.
        let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
        if size > self.room {
            return Ok(Err(SkipReason::OverBytes));
        }
        let mut target = match self.create(path) {
            // A file system that knows no letter case takes two of the box's names for one, or one of ours.
            Err(Errno::EXIST) => return Ok(Err(SkipReason::ReservedName)),
            outcome => outcome?,
        };
        let mut hash = Sha256::new();
        let mut copied = 0;
        // As much as there was when it was looked at; a file that still grows has no end.
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

    /// A new file, its directories made as they are needed.
    fn create(&self, path: &RelativePath) -> rustix::io::Result<File> {
        match beneath::create_file(self.to, path.as_str()) {
            Err(Errno::NOENT) => {}
            outcome => return outcome,
        }
        let (Some(parent), name) = path.split() else {
            return Err(Errno::NOENT);
        };
        let mut components = parent.split('/');
        let first = components.next().unwrap_or(parent);
        let mut handle = beneath::ensure_directory(self.to, first, PRIVATE_DIRECTORY)?;
        for component in components {
            handle = beneath::ensure_directory(&handle, component, PRIVATE_DIRECTORY)?;
        }
        beneath::create_file(&handle, name)
    }
}

/// The size and sha256 of a file of the server's own.
pub(crate) fn digest(directory: impl AsFd, path: &RelativePath) -> io::Result<Option<ArtifactFile>> {
    let Some((file, _)) = beneath::open_regular(directory, path.as_str())? else {
        return Ok(None);
    };
    let (size, hash) = read_digest(file)?;
    Ok(Some(ArtifactFile { path: path.clone(), size, hash }))
}

/// The size and sha256 of all that can be read.
pub(crate) fn read_digest(mut content: impl Read) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut size = 0;
    loop {
        match content.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((size, hexadecimal(&hash.finalize())))
}
