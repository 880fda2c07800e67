//! The content of a file, identified by size and SHA-256.

use std::fs::File;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::fs::copy::read_digest;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

impl Blob {
    /// Reads up to `max_size` + 1 bytes: a longer file differs from every blob that the caller
    /// compares it with.
    pub(crate) fn of(file: &File, max_size: u64) -> io::Result<Self> {
        let (size, sha256) = read_digest(file.take(max_size.saturating_add(1)))?;
        Ok(Self { size, sha256 })
    }
}
