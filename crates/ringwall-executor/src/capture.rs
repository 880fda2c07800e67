//! Captures output: its beginning up to a limit, and its total size.
//!
//! The pipe is always read to its end, so a command is never stopped or slowed for printing too
//! much, and memory stays bounded.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

const CHUNK: usize = 64 * 1024;
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Captured output.
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
pub fn capture(stream: OwnedFd, limit: u64, over: &AtomicBool) -> std::io::Result<Captured> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut captured = Captured::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = read_until_over(&stream, &mut buffer, over)?;
        if count == 0 {
            return Ok(captured);
        }
        captured.total_bytes += count as u64;
        let room = limit - captured.kept.len();
        captured.kept.extend_from_slice(&buffer[..count.min(room)]);
    }
}

/// Copies a stream to another as it comes. Blocks; give it a thread.
pub fn pass_on(from: &OwnedFd, to: &OwnedFd, over: &AtomicBool) -> std::io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = read_until_over(from, &mut buffer, over)?;
        if count == 0 {
            return Ok(());
        }
        // Not splice(2): it takes the file's position before it waits, and writes over what others wrote meanwhile.
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(to, rest))?;
            rest = &rest[written..];
        }
    }
}

/// Reads the next bytes, or 0 at the end. After the end of the box an empty stream has ended, even
/// if another process still holds the write end.
fn read_until_over(stream: &OwnedFd, buffer: &mut [u8], over: &AtomicBool) -> std::io::Result<usize> {
    loop {
        // Read before polling, so that everything written before the end is seen.
        let last = over.load(Ordering::Acquire);
        let wait = if last { Timespec { tv_sec: 0, tv_nsec: 0 } } else { POLL_INTERVAL };
        let mut events = [PollFd::new(stream, PollFlags::IN)];
        match rustix::event::poll(&mut events, Some(&wait)) {
            Ok(0) if last => return Ok(0),
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(rustix::io::retry_on_intr(|| rustix::io::read(stream, &mut *buffer))?),
            Err(errno) => return Err(errno.into()),
        }
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
        let captured = capture(read, limit, &AtomicBool::new(false)).unwrap();
        writer.join().unwrap();
        captured
    }

    #[test]
    fn capture_after_box_end_does_not_wait_for_eof() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(&write, b"last words").unwrap();
        // `write` stays open, as if another process held it.
        let captured = capture(read, 100, &AtomicBool::new(true)).unwrap();
        assert_eq!(captured.kept, b"last words");
        drop(write);
    }

    #[test]
    fn output_beyond_limit_is_counted_and_not_kept() {
        let short = captured(b"abc", 3);
        assert_eq!((short.kept.as_slice(), short.total_bytes, short.truncated()), (&b"abc"[..], 3, false));
        let long = captured(&[b'x'; 1_000_000], 10);
        assert_eq!((long.kept.len(), long.total_bytes, long.truncated()), (10, 1_000_000, true));
    }
}
