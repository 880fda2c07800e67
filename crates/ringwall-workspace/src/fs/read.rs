//! Reads file content: a part at an offset, or all of it for a digest.

use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use ringwall_ids::hexadecimal;
use rustix::fs::Stat;
use sha2::{Digest, Sha256};

pub(crate) const CHUNK: usize = 128 * 1024;

pub(crate) fn file_size(status: &Stat) -> u64 {
    u64::try_from(status.st_size).unwrap_or(0)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_at<'b>(file: &impl FileExt, buffer: &'b mut [u8], offset: u64) -> io::Result<&'b [u8]> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(&buffer[..filled])
}

/// Size and SHA-256 of everything up to the end of `content`.
pub(crate) fn read_digest(mut content: impl Read) -> io::Result<(u64, String)> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; CHUNK];
    loop {
        match content.read(&mut buffer) {
            Ok(0) => return Ok((size, hexadecimal(&hash.finalize()))),
            Ok(count) => {
                hash.update(&buffer[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
