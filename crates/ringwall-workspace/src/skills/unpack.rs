//! Writing what is in a zip into a directory of the server's own, counting every byte that comes out.
//!
//! What an archive declares is checked and never trusted: the count of written bytes stops a bomb, and an entry that
//! turns out shorter, longer or different from what was said is refused. Whoever called removes what was written then.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::{Error, quote};
use crate::fs::beneath;
use crate::fs::durable::Batch;
use crate::project::READABLE_DIRECTORY;
use crate::relative_path::RelativePath;
use crate::skills::ArchiveRefusal;
use crate::skills::archive::{Archive, ArchiveLimits, Descriptor, Entry, Execution, explain};
use crate::skills::archive_end::{u32_at, u64_at};
use crate::workspaces::Owner;

const CHUNK: usize = 128 * 1024;
/// Deflate makes at most about 1030 of one; what people pack stays far below this.
const MAX_RATIO: u64 = 200;
/// Small archives of long runs are honest.
const RATIO_COUNTS_FROM: u64 = 16 * 1024 * 1024;

const DESCRIPTOR_SIGNATURE: [u8; 4] = *b"PK\x07\x08";
/// The longest there is: a signature, a checksum, two wide sizes.
const MAX_DESCRIPTOR: usize = 24;

const PLAIN_FILE: Mode = Mode::from_raw_mode(0o644);
const EXECUTABLE_FILE: Mode = Mode::from_raw_mode(0o755);

/// Unpacks everything into an empty directory that nobody else can reach. The files are `owner`'s afterwards, and the
/// directories that were made for them; and all of it is on the disk.
pub(crate) fn unpack(archive: &mut Archive, into: &OwnedFd, owner: Owner) -> Result<(), Error> {
    let limits = archive.limits;
    let length = archive.file.metadata().map_err(Error::ReadArchive)?.len();
    for directory in &archive.directories {
        make_directory(into, directory, owner).map_err(failed(directory))?;
    }
    let buffer = vec![0; CHUNK];
    let mut writing = Writing { into, owner, limits, length, written: 0, buffer, batch: Batch::default() };
    for entry in &archive.files {
        let mut content = archive.zip.by_index(entry.index).map_err(explain)?;
        writing.write(&mut content, entry)?;
        if entry.descriptor == Descriptor::Follows {
            let end = content.data_start().and_then(|start| start.checked_add(content.compressed_size()));
            let said = Said { checksum: content.crc32(), compressed: content.compressed_size(), size: content.size() };
            drop(content);
            check_descriptor(&archive.file, entry, end, said)?;
        }
    }
    writing.batch.force(into).map_err(Error::Stage)
}

struct Writing<'a> {
    into: &'a OwnedFd,
    owner: Owner,
    limits: ArchiveLimits,
    /// Of the archive.
    length: u64,
    written: u64,
    buffer: Vec<u8>,
    batch: Batch,
}

impl Writing<'_> {
    fn write(&mut self, content: &mut impl Read, entry: &Entry) -> Result<(), Error> {
        let mut file = beneath::create_file(self.into, entry.path.as_str()).map_err(failed(&entry.path))?;
        let mut size = 0_u64;
        loop {
            let count = match content.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error().is_some() => return Err(Error::ReadArchive(error)),
                Err(error) => return Err(damaged(entry, &error.to_string())),
            };
            size += count as u64;
            // Room was asked for as much as it says.
            if size > entry.size {
                return Err(damaged(entry, "it is longer than it says"));
            }
            self.count(count as u64)?;
            file.write_all(&self.buffer[..count]).map_err(|error| failed_io(&entry.path, error))?;
        }
        if size != entry.size {
            return Err(damaged(entry, "it is shorter than it says"));
        }
        let mode = match entry.execution {
            Execution::Possible => EXECUTABLE_FILE,
            Execution::Impossible => PLAIN_FILE,
        };
        rustix::fs::fchmod(&file, mode).and_then(|()| give(&file, self.owner)).map_err(failed(&entry.path))?;
        self.batch.add(&file).map_err(|error| failed_io(&entry.path, error))
    }

    fn count(&mut self, count: u64) -> Result<(), ArchiveRefusal> {
        self.written += count;
        if self.written > self.limits.bytes {
            return Err(ArchiveRefusal::Bytes(self.limits.bytes));
        }
        if self.written > RATIO_COUNTS_FROM && self.written / MAX_RATIO > self.length {
            return Err(ArchiveRefusal::Ratio(MAX_RATIO));
        }
        Ok(())
    }
}

/// What the directory of an archive says of an entry.
#[derive(Clone, Copy)]
struct Said {
    checksum: u32,
    compressed: u64,
    size: u64,
}

/// Holds what follows an entry's data against what was said of it: with a signature or without, in either width.
fn check_descriptor(file: &File, entry: &Entry, at: Option<u64>, said: Said) -> Result<(), Error> {
    let mut bytes = [0; MAX_DESCRIPTOR];
    let mut filled = 0;
    while let Some(at) = at.filter(|_| filled < bytes.len()) {
        match file.read_at(&mut bytes[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::ReadArchive(error)),
        }
    }
    let bytes = &bytes[..filled];
    let bare = bytes.strip_prefix(&DESCRIPTOR_SIGNATURE);
    let agrees = |bytes: &[u8]| {
        let narrow = bytes.len() >= 12
            && (u64::from(u32_at(bytes, 4)), u64::from(u32_at(bytes, 8))) == (said.compressed, said.size);
        let wide = bytes.len() >= 20 && (u64_at(bytes, 4), u64_at(bytes, 12)) == (said.compressed, said.size);
        u32_at(bytes, 0) == said.checksum && (narrow || wide)
    };
    if agrees(bytes) || bare.is_some_and(agrees) {
        Ok(())
    } else {
        Err(damaged(entry, "what should follow its data is missing or says something else"))
    }
}

fn make_directory(into: &OwnedFd, path: &RelativePath, owner: Owner) -> rustix::io::Result<()> {
    let (parent, name) = path.split();
    let made = match parent {
        None => beneath::ensure_directory(into, name, READABLE_DIRECTORY)?,
        Some(parent) => beneath::ensure_directory(beneath::open_directory(into, parent)?, name, READABLE_DIRECTORY)?,
    };
    give(&made, owner)
}

fn give(handle: impl AsFd, owner: Owner) -> rustix::io::Result<()> {
    if owner == Owner::server() { Ok(()) } else { beneath::give(handle, owner.uid, owner.gid) }
}

fn failed(path: &RelativePath) -> impl Fn(Errno) -> Error {
    move |errno| failed_io(path, errno.into())
}

fn failed_io(path: &RelativePath, source: io::Error) -> Error {
    Error::Unpack { path: path.clone(), source }
}

fn damaged(entry: &Entry, why: &str) -> Error {
    ArchiveRefusal::Damaged { name: quote(entry.path.as_str()), why: why.to_owned() }.into()
}
