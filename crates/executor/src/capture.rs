//! Output that is kept: its beginning up to a limit, and how much there was in all.
//!
//! The pipe is read to its end whatever the limit, so that a command is never stopped or slowed for printing
//! too much, and memory stays flat however long it prints.

use std::os::fd::OwnedFd;

const CHUNK: usize = 64 * 1024;

/// What was kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Captured {
    pub kept: Vec<u8>,
    pub total_bytes: u64,
}

impl Captured {
    pub fn truncated(&self) -> bool {
        self.total_bytes > self.kept.len() as u64
    }
}

/// Reads a stream to its end, keeping at most `limit` bytes. Blocks; give it a thread.
pub fn capture(stream: OwnedFd, limit: u64) -> std::io::Result<Captured> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut captured = Captured::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = rustix::io::retry_on_intr(|| rustix::io::read(&stream, &mut buffer))?;
        if count == 0 {
            return Ok(captured);
        }
        captured.total_bytes += count as u64;
        let room = limit - captured.kept.len();
        captured.kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(input: &'static [u8], limit: u64) -> Captured {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            std::fs::File::from(write).write_all(input).unwrap();
        });
        let captured = capture(read, limit).unwrap();
        writer.join().unwrap();
        captured
    }

    #[test]
    fn the_beginning_is_kept_and_the_rest_counted() {
        let short = captured(b"abc", 3);
        assert_eq!((short.kept.as_slice(), short.total_bytes, short.truncated()), (&b"abc"[..], 3, false));
        let long = captured(&[b'x'; 1_000_000], 10);
        assert_eq!((long.kept.len(), long.total_bytes, long.truncated()), (10, 1_000_000, true));
    }
}
