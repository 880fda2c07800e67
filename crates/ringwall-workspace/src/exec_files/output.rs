//! Stores stdout and stderr of a running exec in files of the server, which can be read while they
//! are written.
//!
//! There is one writer and any number of readers. The length counts completely written bytes. The
//! hash is computed while writing, so that the files are not read again at the end. The writer
//! enforces limits.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use parking_lot::Mutex;
use ringwall_ids::hexadecimal;
use sha2::{Digest, Sha256};

use crate::fs::beneath;
use crate::fs::read::read_at;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// The name of its file in the artifacts of the exec.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout.txt",
            Self::Stderr => "stderr.txt",
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.file_name())
    }
}

/// The output file of one stream. Clones refer to the same file.
#[derive(Debug, Clone)]
pub struct OutputFile {
    shared: Arc<Shared>,
}

struct Shared {
    file: File,
    length: AtomicU64,
    hash: Mutex<Sha256>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("file", &self.file).field("length", &self.length).finish_non_exhaustive()
    }
}

impl OutputFile {
    pub(crate) fn create(directory: impl AsFd, stream: Stream) -> rustix::io::Result<Self> {
        let file = beneath::create_file(directory, stream.file_name())?;
        let shared = Shared { file, length: AtomicU64::new(0), hash: Mutex::new(Sha256::new()) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Appends `bytes`. After an error the length counts the bytes written before it.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut hash = self.shared.hash.lock();
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = self.shared.length.load(Ordering::Relaxed);
            match self.shared.file.write_at(rest, length) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    hash.update(&rest[..count]);
                    rest = &rest[count..];
                    // Release: a reader that loads this length sees the bytes.
                    self.shared.length.store(length + count as u64, Ordering::Release);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Number of bytes that can be read.
    pub fn length(&self) -> u64 {
        self.shared.length.load(Ordering::Acquire)
    }

    /// Reads at most `limit` bytes from `offset` on; none at the end of what is written.
    pub fn read(&self, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
        read_part(&self.shared.file, self.length(), offset, limit)
    }

    /// Length and SHA-256 of what is written.
    pub(crate) fn digest(&self) -> (u64, String) {
        let hash = self.shared.hash.lock();
        (self.length(), hexadecimal(&hash.clone().finalize()))
    }
}

/// Reads at most `limit` bytes from `offset` on, of a file with `length` bytes.
pub(crate) fn read_part(file: &File, length: u64, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    let room = usize::try_from(length.saturating_sub(offset)).unwrap_or(usize::MAX).min(limit);
    let mut bytes = vec![0; room];
    let filled = read_at(file, &mut bytes, offset)?.len();
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_bytes_are_readable_and_hashed() {
        let directory = tempfile::tempdir().unwrap();
        let output = OutputFile::create(File::open(directory.path()).unwrap(), Stream::Stdout).unwrap();
        assert_eq!((output.length(), output.read(0, 10).unwrap()), (0, vec![]));
        output.append(b"hello ").unwrap();
        let other = output.clone();
        output.append(b"world").unwrap();
        assert_eq!(other.length(), 11);
        assert_eq!(other.read(6, 100).unwrap(), b"world");
        assert_eq!(other.read(0, 5).unwrap(), b"hello");
        assert_eq!(other.read(11, 5).unwrap(), b"");
        assert_eq!(other.read(u64::MAX, usize::MAX).unwrap(), b"");
        let (length, hash) = output.digest();
        assert_eq!(length, 11);
        assert_eq!(hash, "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9");
        assert_eq!(std::fs::read(directory.path().join("stdout.txt")).unwrap(), b"hello world");
    }

    #[test]
    fn concurrent_reader_sees_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let output = OutputFile::create(File::open(directory.path()).unwrap(), Stream::Stderr).unwrap();
        let expected: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| expected.chunks(997).for_each(|part| output.append(part).unwrap()));
            let mut seen = 0;
            while seen < expected.len() {
                let part = output.read(seen as u64, 4096).unwrap();
                assert_eq!(part, expected[seen..seen + part.len()]);
                seen += part.len();
            }
        });
        assert_eq!(output.length(), expected.len() as u64);
    }
}
