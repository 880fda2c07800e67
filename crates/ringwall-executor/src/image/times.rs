//! Modification times of directories, stored until the end of the import.
//!
//! Creating a file in a directory changes its time, so times are set last. They are kept in an
//! unlinked file, because an archive may contain millions of directories.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

const FILE: &str = "directory-times";

pub(super) struct DirectoryTimes {
    log: BufWriter<File>,
}

impl DirectoryTimes {
    /// Creates the file in `scratch` and unlinks it at once.
    pub(super) fn new(scratch: impl AsFd) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file: OwnedFd = rustix::fs::openat(&scratch, FILE, flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::unlinkat(&scratch, FILE, rustix::fs::AtFlags::empty())?;
        Ok(Self { log: BufWriter::new(File::from(file)) })
    }

    pub(super) fn note(&mut self, directory: &[u8], mtime: i64) -> io::Result<()> {
        let length = u32::try_from(directory.len()).map_err(io::Error::other)?;
        self.log.write_all(&mtime.to_ne_bytes())?;
        self.log.write_all(&length.to_ne_bytes())?;
        self.log.write_all(directory)
    }

    /// Passes every record to `apply` in the order of recording; for a directory the last one
    /// counts.
    pub(super) fn replay(self, mut apply: impl FnMut(&[u8], i64) -> io::Result<()>) -> io::Result<()> {
        let mut file = self.log.into_inner().map_err(|error| error.into_error())?;
        let end = file.stream_position()?;
        file.rewind()?;
        let mut log = BufReader::new(file.take(end));
        let mut directory = Vec::new();
        loop {
            let mut mtime = [0; 8];
            match log.read_exact(&mut mtime) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
            let mut length = [0; 4];
            log.read_exact(&mut length)?;
            directory.clear();
            log.by_ref().take(u32::from_ne_bytes(length).into()).read_to_end(&mut directory)?;
            apply(&directory, i64::from_ne_bytes(mtime))?;
        }
    }
}

/// `mtime` in whole seconds; the access time is not changed.
pub(super) fn timestamps(mtime: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime, tv_nsec: 0 },
    }
}
