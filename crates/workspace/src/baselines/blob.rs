//! The content of a file, named by its size and digest.

use std::fs::File;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::exec_id::hexadecimal;

const CHUNK: usize = 128 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Blob {
    pub(crate) size: u64,
    pub(crate) sha256: String,
}

impl Blob {
    /// Reads a file to its end, or to `size_max` bytes: what is longer is nothing that anybody compares it with.
    pub(crate) fn of(file: &File, size_max: u64) -> io::Result<Self> {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; CHUNK];
        let mut size = 0;
        let mut file = file.take(size_max.saturating_add(1));
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    hash.update(&buffer[..count]);
                    size += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { size, sha256: hexadecimal(&hash.finalize()) })
    }
}
