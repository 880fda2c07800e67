//! Splits Chromium's output into messages: JSON texts, each terminated by a NUL byte.
//!
//! An oversized message is skipped, except for its beginning, which tells whose answer it is.
//! Memory is bounded by [`MAX_MESSAGE_LEN`].

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Screenshots and PDFs are base64 inside messages.
pub(crate) const MAX_MESSAGE_LEN: usize = 64 << 20;
const KEPT_BEGINNING: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Whole(Vec<u8>),
    /// The beginning of an oversized message.
    Oversized(Vec<u8>),
    End,
}

pub(crate) struct Frames<R> {
    from: BufReader<R>,
    max: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(from: R, max: usize) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), max }
    }

    /// The next message. An unterminated message at the end of the stream is discarded.
    pub(crate) async fn next(&mut self) -> std::io::Result<Frame> {
        let mut kept = Vec::new();
        let mut is_oversized = false;
        loop {
            let chunk = self.from.fill_buf().await?;
            if chunk.is_empty() {
                return Ok(Frame::End);
            }
            let end = memchr::memchr(0, chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if !is_oversized && kept.len() + part.len() > self.max {
                is_oversized = true;
                kept.extend_from_slice(&part[..part.len().min(KEPT_BEGINNING)]);
                kept.truncate(KEPT_BEGINNING);
                kept.shrink_to_fit();
            } else if !is_oversized {
                kept.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.from.consume(used);
            match (end, is_oversized) {
                (Some(_), true) => return Ok(Frame::Oversized(kept)),
                (Some(_), false) => return Ok(Frame::Whole(kept)),
                (None, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], max: usize) -> Vec<Frame> {
        let mut frames = Frames::new(bytes, max);
        let mut found = Vec::new();
        loop {
            match frames.next().await.unwrap() {
                Frame::End => return found,
                frame => found.push(frame),
            }
        }
    }

    #[tokio::test]
    async fn nul_byte_ends_message() {
        let whole = |text: &str| Frame::Whole(text.as_bytes().to_vec());
        assert_eq!(read(b"{\"a\":1}\0{}\0", 100).await, [whole("{\"a\":1}"), whole("{}")]);
        assert_eq!(read(b"\0\0", 100).await, [whole(""), whole("")]);
        assert_eq!(read(b"{}\0{\"half\"", 100).await, [whole("{}")], "an unterminated message is discarded");
    }

    #[tokio::test]
    async fn oversized_message_is_skipped_and_next_is_complete() {
        let mut bytes = b"{\"id\":7,".to_vec();
        bytes.resize(1_000_000, b'x');
        bytes.extend_from_slice(b"\0{}\0");
        let found = read(&bytes, 100_000).await;
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[0], Frame::Oversized(start) if start.starts_with(b"{\"id\":7,") && start.len() == 256));
        assert_eq!(found[1], Frame::Whole(b"{}".to_vec()));
    }
}
