//! Decodes an archive to a stream of tar bytes, and attributes errors to the reader or to the
//! archive.
//!
//! The compression is detected by the first bytes, not by the file name. A wrapper around the raw
//! reader counts bytes and keeps a read error, so that a disk error is not reported as a damaged
//! archive.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::rc::Rc;

use super::ImageError;
use super::entries::{BLOCK, checksum_holds};
use super::zstd::ZstdFrames;

const BUFFER: usize = 128 * 1024;
/// More padding than this after the end mark is refused.
const MAX_PADDING: u64 = 64 * 1024 * 1024;

/// Inner error of a read that the user interrupted (in `io::Error::other`).
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// The tar bytes of an archive.
pub(super) struct Stream<'a> {
    decoded: BufReader<Box<dyn Read + 'a>>,
    state: Rc<ReadState>,
}

#[derive(Default)]
struct ReadState {
    read: Cell<u64>,
    ended: Cell<bool>,
    failed: RefCell<Option<io::Error>>,
}

struct CountingReader<R> {
    archive: R,
    state: Rc<ReadState>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.archive.read(buffer) {
                Ok(count) => {
                    self.state.read.set(self.state.read.get() + count as u64);
                    self.state.ended.set(count == 0 && !buffer.is_empty());
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let passed_on = io::Error::from(error.kind());
                    self.state.failed.replace(Some(error));
                    return Err(passed_on);
                }
            }
        }
    }
}

impl<'a> Stream<'a> {
    /// Detects the format and starts decoding.
    pub(super) fn open(archive: impl Read + 'a) -> Result<Self, ImageError> {
        let state = Rc::new(ReadState::default());
        let mut rest = BufReader::with_capacity(BUFFER, CountingReader { archive, state: Rc::clone(&state) });
        let mut head = Vec::with_capacity(BLOCK);
        rest.by_ref().take(BLOCK as u64).read_to_end(&mut head).map_err(|error| state.explain(error, 0))?;
        let format = recognise(&head)?;
        let whole = Cursor::new(head).chain(rest);
        let decoded: Box<dyn Read + 'a> = match format {
            Format::Tar => Box::new(whole),
            Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(whole)),
            Format::Zstd => Box::new(ZstdFrames::new(whole)),
        };
        Ok(Self { decoded: BufReader::with_capacity(BUFFER, decoded), state })
    }

    /// Bytes of the archive itself read so far.
    pub(super) fn archive_bytes(&self) -> u64 {
        self.state.read.get()
    }

    /// Fills `buffer`; returns less only at the end of the stream.
    pub(super) fn read_full(&mut self, buffer: &mut [u8], entries: u64) -> Result<usize, ImageError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.decoded.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.state.explain(error, entries)),
            }
        }
        Ok(filled)
    }

    /// Reads to the end, so that the compressor's checksum is verified and a writing pipe is not
    /// cut off. Only padding may follow the end mark, because other tools would read data there as
    /// further entries.
    pub(super) fn finish(mut self, entries: u64) -> Result<(), ImageError> {
        let mut padding = 0;
        loop {
            let chunk = match self.decoded.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) => return Err(self.state.explain(error, entries)),
            };
            if chunk.is_empty() {
                return Ok(());
            }
            padding += chunk.len() as u64;
            if padding > MAX_PADDING || chunk.iter().any(|byte| *byte != 0) {
                return Err(ImageError::Malformed { entry: entries, problem: "data follows the archive's end mark" });
            }
            let length = chunk.len();
            self.decoded.consume(length);
        }
    }
}

impl ReadState {
    /// Attributes an error: read failure, truncated archive or damaged archive.
    fn explain(&self, error: io::Error, entries: u64) -> ImageError {
        match self.failed.take() {
            Some(read) if read.get_ref().is_some_and(|inner| inner.is::<Interrupted>()) => ImageError::Interrupted,
            Some(source) => ImageError::ReadArchive { source },
            None if self.ended.get() => ImageError::Truncated { entries },
            None => ImageError::Decompress { source: error },
        }
    }
}

enum Format {
    Tar,
    Gzip,
    Zstd,
}

fn recognise(head: &[u8]) -> Result<Format, ImageError> {
    let found = match head {
        [] => return Err(ImageError::Empty),
        [0x1f, 0x8b, ..] => return Ok(Format::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            return Ok(Format::Zstd);
        }
        _ if head.len() == BLOCK && head.iter().all(|byte| *byte == 0) => return Ok(Format::Tar),
        _ if head.len() == BLOCK && checksum_holds(head) => return Ok(Format::Tar),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => "an xz-compressed file",
        [b'B', b'Z', b'h', ..] => "a bzip2-compressed file",
        [0x04, 0x22, 0x4d, 0x18, ..] => "an lz4-compressed file",
        [b'P', b'K', 3 | 5, 4 | 6, ..] => "a zip file",
        [b'h', b's', b'q', b's', ..] => "a squashfs image",
        _ => "a file of an unknown format",
    };
    Err(ImageError::UnknownFormat { found })
}
