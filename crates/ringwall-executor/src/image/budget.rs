//! Limits of an import: bytes, entries and free disk space.
//!
//! An entry is charged with its declared size before its content is read, so both a false size and
//! a decompression bomb are refused early. Metadata uses disk space too, so the free space is
//! checked again during the import.

use std::os::fd::OwnedFd;

use super::ImageError;

/// A twentieth of the free space is kept free.
const RESERVED_SHARE: u64 = 20;
const LOOK_AGAIN_ENTRIES: u64 = 1_024;
const LOOK_AGAIN_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) bytes: u64,
    pub(super) entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 * 1024 * 1024 * 1024, entries: 4_000_000 }
    }
}

pub(super) struct Budget {
    limits: Limits,
    bytes: u64,
    entries: u64,
    directory: OwnedFd,
    reserve: u64,
    looked_at: (u64, u64),
}

impl Budget {
    /// `directory` is on the file system that will hold the image.
    pub(super) fn new(limits: Limits, directory: OwnedFd) -> rustix::io::Result<Self> {
        let available = available(&directory)?;
        let reserve = available / RESERVED_SHARE;
        Ok(Self {
            limits: Limits { bytes: limits.bytes.min(available - reserve), entries: limits.entries },
            bytes: 0,
            entries: 0,
            directory,
            reserve,
            looked_at: (0, 0),
        })
    }

    /// Charges one entry with `bytes` of content.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), ImageError> {
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(ImageError::TooManyEntries { limit: self.limits.entries });
        }
        self.bytes = self
            .bytes
            .checked_add(bytes)
            .filter(|sum| *sum <= self.limits.bytes)
            .ok_or(ImageError::TooLarge { limit: self.limits.bytes })?;
        let (entries, looked_bytes) = self.looked_at;
        if self.entries - entries >= LOOK_AGAIN_ENTRIES || self.bytes - looked_bytes >= LOOK_AGAIN_BYTES {
            self.looked_at = (self.entries, self.bytes);
            // If statvfs fails, the next write fails too, with a better message.
            let available = available(&self.directory).unwrap_or(u64::MAX);
            if available < self.reserve {
                return Err(ImageError::DiskFull { available, reserve: self.reserve });
            }
        }
        Ok(())
    }
}

fn available(directory: &OwnedFd) -> rustix::io::Result<u64> {
    let space = rustix::fs::fstatvfs(directory)?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}
