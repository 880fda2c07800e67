//! Converts text to a request body `{"file_path": …, "content": …}` while it is read, so that long files
//! are not held in memory.

use std::io::{self, Read};

use serde_json::json;

const CHUNK_BYTES: usize = 64 * 1024;

/// A reader of the JSON object.
pub(crate) struct JsonText<R> {
    source: R,
    /// Encoded bytes; the first `position` of them were read.
    ready: Vec<u8>,
    position: usize,
    /// The first bytes of a character whose other bytes were not read yet.
    partial_character: Vec<u8>,
    part: Part,
    is_broken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Content,
    End,
}

impl<R: Read> JsonText<R> {
    pub(crate) fn new(file_path: &str, source: R) -> Self {
        let ready = format!("{{\"file_path\":{},\"content\":\"", json!(file_path)).into_bytes();
        Self { source, ready, position: 0, partial_character: Vec::new(), part: Part::Content, is_broken: false }
    }

    /// Reads everything to compute the length of the JSON object.
    pub(crate) fn measure(file_path: &str, source: R) -> io::Result<u64> {
        io::copy(&mut Self::new(file_path, source), &mut io::sink())
    }

    /// `true` after the source returned bytes that are not UTF-8.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    fn prepare(&mut self) -> io::Result<()> {
        let mut chunk = std::mem::take(&mut self.partial_character);
        let before = chunk.len() as u64;
        let length = (&mut self.source).take(CHUNK_BYTES as u64).read_to_end(&mut chunk)? as u64;
        let text = match std::str::from_utf8(&chunk) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && length > 0 => {
                let (whole, partial_character) = chunk.split_at(error.valid_up_to());
                self.partial_character = partial_character.to_vec();
                std::str::from_utf8(whole).unwrap_or_default()
            }
            Err(_) => {
                self.is_broken = true;
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the content is not UTF-8 text"));
            }
        };
        let quoted = json!(text).to_string();
        self.ready = quoted.get(1..quoted.len() - 1).unwrap_or_default().as_bytes().to_vec();
        self.position = 0;
        if length + before == 0 {
            self.ready = b"\"}".to_vec();
            self.part = Part::End;
        }
        Ok(())
    }
}

impl<R: Read> Read for JsonText<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.position == self.ready.len() && self.part == Part::Content {
            self.prepare()?;
        }
        let count = (&self.ready[self.position..]).read(buffer)?;
        self.position += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes per read, as a pipe may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn streamed_object_equals_the_encoded_one() {
        let long = "é🦀\n\"\\\u{1}\t日本".repeat(20_000);
        for text in ["", "a", "é", "line\r\n\"quoted\"\\\u{0}", long.as_str()] {
            for step in [1, 7, CHUNK_BYTES, usize::MAX] {
                if step < CHUNK_BYTES && text.len() > 1000 {
                    continue;
                }
                let mut bytes = Vec::new();
                JsonText::new("files/\"ü", Trickle(text.as_bytes(), step)).read_to_end(&mut bytes).unwrap();
                let said: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(said, json!({ "file_path": "files/\"ü", "content": text }));
                let measured = JsonText::measure("files/\"ü", Trickle(text.as_bytes(), step)).unwrap();
                assert_eq!(measured, bytes.len() as u64);
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_an_error() {
        for bytes in [&b"a\xff"[..], b"\xc3", b"ok\xf0\x9f\xa6", b"\xed\xa0\x80"] {
            let mut message = JsonText::new("x", bytes);
            let error = message.read_to_end(&mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("not UTF-8") && message.is_broken(), "{bytes:?}");
        }
    }
}
