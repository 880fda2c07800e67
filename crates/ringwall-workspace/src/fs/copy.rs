//! Copies a file from a box's artifacts directory to the server's own, and hashes it.
//!
//! The file is not moved, because another box of the same project may hold a descriptor of it,
//! received over a socket in `work`, and could modify it after it was hashed. A copy also drops
//! owner, mode, hard links, holes and extended attributes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use ringwall_ids::hexadecimal;
use rustix::fs::AtFlags;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::exec_files::finish::ArtifactFile;
use crate::exec_files::skipped::SkipReason;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::relative_path::RelativePath;

const CHUNK: usize = 128 * 1024;

/// Copies files from one tree to another up to a total size.
pub(crate) struct Copier<'a> {
    from: &'a OwnedFd,
    to: &'a OwnedFd,
    /// Files of other owners are skipped.
    uid: u32,
    /// Bytes that may still be copied.
    room: u64,
    buffer: Vec<u8>,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(from: &'a OwnedFd, to: &'a OwnedFd, uid: u32, room: u64) -> Self {
        Self { from, to, uid, room, buffer: vec![0; CHUNK] }
    }

    /// Copies a regular file or returns why it was skipped. Write errors are errors of the server's
    /// disk; read errors may be caused by the box and skip the file.
    pub(crate) fn copy(&mut self, path: &RelativePath) -> io::Result<Result<ArtifactFile, SkipReason>> {
        let (source, status) = match beneath::open_regular(self.from, path.as_str()) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Err(SkipReason::Changed)),
            Err(_) => return Ok(Err(SkipReason::Unreadable)),
        };
        if status.st_uid != self.uid {
            return Ok(Err(SkipReason::ForeignOwner));
        }
        // Checked before reading: a sparse file can be larger than any disk.
        let size = u64::try_from(status.st_size).unwrap_or(u64::MAX);
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

/// Size and SHA-256 of a file of the server.
pub(crate) fn digest(directory: impl AsFd, path: &RelativePath) -> io::Result<Option<ArtifactFile>> {
    let Some((file, _)) = beneath::open_regular(directory, path.as_str())? else {
        return Ok(None);
    };
    let (size, hash) = read_digest(file)?;
    Ok(Some(ArtifactFile { path: path.clone(), size, hash }))
}

/// Size and SHA-256 of everything up to the end of `content`.
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
