//! Cuts what Chromium writes into messages: JSON texts, each ended by a NUL byte.
//!
//! A message that is larger than any honest one is not kept: its beginning is, so that whoever waits for it can be told, and
//! the rest is read past. Memory is bounded by `MAX_COUNT`, whatever comes.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Pictures and documents come inside messages, as base64.
pub(crate) const MAX_COUNT: usize = 64 << 20;
const BEGINNING: usize = 256;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Whole(Vec<u8>),
    /// The beginning of one that was too large.
    Oversized(Vec<u8>),
    End,
}

pub(crate) struct Frames<R> {
    from: BufReader<R>,
    most: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) fn new(from: R, most: usize) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), most }
    }

    /// The next message. One that ends without its NUL byte is no message.
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
            if !is_oversized && kept.len() + part.len() > self.most {
                is_oversized = true;
                kept.extend_from_slice(&part[..part.len().min(BEGINNING)]);
                kept.truncate(BEGINNING);
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

    async fn read(bytes: &[u8], most: usize) -> Vec<Frame> {
        let mut frames = Frames::new(bytes, most);
        let mut found = Vec::new();
        loop {
            match frames.next().await.unwrap() {
                Frame::End => return found,
                frame => found.push(frame),
            }
        }
    }

    #[tokio::test]
    async fn messages_end_at_their_nul_byte() {
        let whole = |text: &str| Frame::Whole(text.as_bytes().to_vec());
        assert_eq!(read(b"{\"a\":1}\0{}\0", 100).await, [whole("{\"a\":1}"), whole("{}")]);
        assert_eq!(read(b"\0\0", 100).await, [whole(""), whole("")]);
        assert_eq!(read(b"{}\0{\"half\"", 100).await, [whole("{}")], "what was not ended is no message");
    }

    #[tokio::test]
    async fn a_message_too_large_is_read_past_and_the_next_one_is_whole() {
        let mut bytes = b"{\"id\":7,".to_vec();
        bytes.resize(1_000_000, b'x');
        bytes.extend_from_slice(b"\0{}\0");
        let found = read(&bytes, 100_000).await;
        assert_eq!(found.len(), 2);
        assert!(matches!(&found[0], Frame::Oversized(start) if start.starts_with(b"{\"id\":7,") && start.len() == 256));
        assert_eq!(found[1], Frame::Whole(b"{}".to_vec()));
    }
}
