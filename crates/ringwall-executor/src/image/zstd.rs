//! Reads all frames of a Zstandard stream.
//!
//! The decoder handles one frame. Continuing with the next frame (parallel compressors write many),
//! skipping skippable frames and verifying checksums is done here. The decoder's window limit
//! bounds the memory for any declared size.

use std::io::{self, BufRead, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

pub(super) struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    frame: Frame,
}

enum Frame {
    Between,
    Inside,
}

impl<R: BufRead> ZstdFrames<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), frame: Frame::Between }
    }

    /// Starts the next data frame; `None` at the end of the stream.
    fn start_frame(&mut self) -> io::Result<Option<()>> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(None);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.frame = Frame::Inside;
                    return Ok(Some(()));
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.frame = Frame::Between;
        match self.decoder.get_checksum_from_data() {
            Some(declared) if self.decoder.get_calculated_checksum() != Some(declared) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a zstd frame is wrong"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            match self.frame {
                Frame::Between => {
                    if self.start_frame()?.is_none() {
                        return Ok(0);
                    }
                }
                Frame::Inside if self.decoder.can_collect() > 0 => {
                    return self.decoder.read(buffer);
                }
                Frame::Inside if self.decoder.is_finished() => self.end_frame()?,
                Frame::Inside => {
                    self.decoder
                        .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                        .map_err(io::Error::other)?;
                }
            }
        }
    }
}
