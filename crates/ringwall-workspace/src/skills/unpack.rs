//! Unpacks a checked ZIP into a staging directory.
//!
//! Sizes in the headers are claims, so every written byte is counted: a decompression bomb is
//! stopped at the limit, and an entry whose data differs from its headers is rejected. After an
//! error the caller removes the directory.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use ringwall_ids::quote;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::durable::Batch;
use crate::fs::read::read_at;
use crate::project::READABLE_DIRECTORY;
use crate::relative_path::RelativePath;
use crate::skills::ArchiveError;
use crate::skills::archive::{
    ArchiveLimits, CheckedZip, DataDescriptor, FileEntry, Permissions, from_zip_error, u32_at, u64_at,
};
use crate::workspaces::Owner;

const BUFFER_SIZE: usize = 128 * 1024;
/// Deflate reaches about 1030; archives of real files stay far below 200.
const MAX_COMPRESSION_RATIO: u64 = 200;
/// Below this size the ratio is not checked: a small file of repeated bytes is harmless.
const RATIO_CHECK_MIN_BYTES: u64 = 16 * 1024 * 1024;

const DESCRIPTOR_SIGNATURE: [u8; 4] = *b"PK\x07\x08";
/// Signature, checksum and two 64-bit sizes.
const MAX_DESCRIPTOR_SIZE: usize = 24;

const PLAIN_FILE: Mode = Mode::from_raw_mode(0o644);
const EXECUTABLE_FILE: Mode = Mode::from_raw_mode(0o755);

/// Unpacks all entries into the empty directory `target`, which only the server can reach. On
/// success the files and directories belong to `owner` and are synced to disk.
pub(crate) fn unpack(archive: &mut CheckedZip, target: &OwnedFd, owner: Owner) -> Result<(), Error> {
    let limits = archive.limits;
    let archive_size = archive.file.metadata().map_err(Error::ReadArchive)?.len();
    for directory in &archive.directories {
        create_directory(target, directory, owner).map_err(unpack_error(directory))?;
    }
    let buffer = vec![0; BUFFER_SIZE];
    let mut unpacker = Unpacker { target, owner, limits, archive_size, written: 0, buffer, batch: Batch::default() };
    for entry in &archive.files {
        let mut data = archive.zip.by_index(entry.index).map_err(from_zip_error)?;
        unpacker.write_file(&mut data, entry)?;
        if entry.descriptor == DataDescriptor::Present {
            let end = data.data_start().and_then(|start| start.checked_add(data.compressed_size()));
            let declared =
                Declared { checksum: data.crc32(), compressed_size: data.compressed_size(), size: data.size() };
            drop(data);
            check_descriptor(&archive.file, entry, end, declared)?;
        }
    }
    unpacker.batch.sync(target).map_err(Error::Stage)
}

struct Unpacker<'a> {
    target: &'a OwnedFd,
    owner: Owner,
    limits: ArchiveLimits,
    archive_size: u64,
    written: u64,
    buffer: Vec<u8>,
    batch: Batch,
}

impl Unpacker<'_> {
    fn write_file(&mut self, data: &mut impl Read, entry: &FileEntry) -> Result<(), Error> {
        let mut file = beneath::create_file(self.target, entry.path.as_str()).map_err(unpack_error(&entry.path))?;
        let mut size = 0_u64;
        loop {
            let count = match data.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error().is_some() => return Err(Error::ReadArchive(error)),
                Err(error) => return Err(corrupt(entry, &error.to_string())),
            };
            size += count as u64;
            // The caller reserved disk space for the declared size only.
            if size > entry.declared_size {
                return Err(corrupt(entry, "its data is longer than declared"));
            }
            self.count_written(count as u64)?;
            file.write_all(&self.buffer[..count]).map_err(|error| unpack_io_error(&entry.path, error))?;
        }
        if size != entry.declared_size {
            return Err(corrupt(entry, "its data is shorter than declared"));
        }
        let mode = match entry.permissions {
            Permissions::Plain => PLAIN_FILE,
            Permissions::Executable => EXECUTABLE_FILE,
        };
        rustix::fs::fchmod(&file, mode)
            .and_then(|()| beneath::set_owner_of_new(&file, self.owner))
            .map_err(unpack_error(&entry.path))?;
        self.batch.add(&file).map_err(|error| unpack_io_error(&entry.path, error))
    }

    fn count_written(&mut self, count: u64) -> Result<(), ArchiveError> {
        self.written += count;
        if self.written > self.limits.bytes {
            return Err(ArchiveError::TooManyBytes(self.limits.bytes));
        }
        if self.written > RATIO_CHECK_MIN_BYTES && self.written / MAX_COMPRESSION_RATIO > self.archive_size {
            return Err(ArchiveError::CompressionRatio(MAX_COMPRESSION_RATIO));
        }
        Ok(())
    }
}

/// Values of an entry in the central directory.
#[derive(Clone, Copy)]
struct Declared {
    checksum: u32,
    compressed_size: u64,
    size: u64,
}

/// Compares the data descriptor with the central directory. The signature is optional, and sizes
/// have 32 or 64 bits; nothing in the archive says which form is used, so any that matches is
/// accepted.
fn check_descriptor(file: &File, entry: &FileEntry, offset: Option<u64>, declared: Declared) -> Result<(), Error> {
    let mut bytes = [0; MAX_DESCRIPTOR_SIZE];
    let bytes = match offset {
        Some(offset) => read_at(file, &mut bytes, offset).map_err(Error::ReadArchive)?,
        None => &[],
    };
    let without_signature = bytes.strip_prefix(&DESCRIPTOR_SIGNATURE);
    let sizes = (declared.compressed_size, declared.size);
    let matches = |bytes: &[u8]| {
        let narrow = bytes.len() >= 12 && (u64::from(u32_at(bytes, 4)), u64::from(u32_at(bytes, 8))) == sizes;
        let wide = bytes.len() >= 20 && (u64_at(bytes, 4), u64_at(bytes, 12)) == sizes;
        u32_at(bytes, 0) == declared.checksum && (narrow || wide)
    };
    if matches(bytes) || without_signature.is_some_and(matches) {
        Ok(())
    } else {
        Err(corrupt(entry, "its data descriptor is missing or differs from the central directory"))
    }
}

fn create_directory(target: &OwnedFd, path: &RelativePath, owner: Owner) -> rustix::io::Result<()> {
    let (parent, name) = path.split();
    let directory = match parent {
        None => beneath::ensure_directory(target, name, READABLE_DIRECTORY)?,
        Some(parent) => beneath::ensure_directory(beneath::open_directory(target, parent)?, name, READABLE_DIRECTORY)?,
    };
    beneath::set_owner_of_new(&directory, owner)
}

fn unpack_error(path: &RelativePath) -> impl Fn(Errno) -> Error {
    move |errno| unpack_io_error(path, errno.into())
}

fn unpack_io_error(path: &RelativePath, source: io::Error) -> Error {
    Error::Unpack { path: path.clone(), source }
}

fn corrupt(entry: &FileEntry, reason: &str) -> Error {
    ArchiveError::Corrupt { name: quote(entry.path.as_str()), reason: reason.to_owned() }.into()
}
