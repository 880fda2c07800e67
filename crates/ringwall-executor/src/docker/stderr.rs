//! Copies a container's stderr to its reader and keeps the last 4 KiB.
//!
//! The docker client writes its own errors to the same stream. The kept bytes explain why a
//! container could not be started. Every byte is copied in order, with one buffer of memory.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use super::client::in_short;

const BUFFER: usize = 64 * 1024;
const KEPT: usize = 4096;

#[derive(Debug)]
pub(crate) struct StderrCopy {
    tail: Arc<Mutex<Tail>>,
    /// `None` after the end of the stream.
    task: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    total: u64,
}

impl StderrCopy {
    /// Copies the stream in the background, to its end.
    pub(crate) fn start(from: ChildStderr, to: OwnedFd) -> std::io::Result<Self> {
        let to = pipe::Sender::from_owned_fd(to)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let task = tokio::spawn(copy(from, to, tail.clone()));
        Ok(StderrCopy { tail, task: Some(task) })
    }

    /// The kept bytes as one line, after the end of the stream or `timeout`.
    pub(crate) async fn last(&mut self, timeout: Duration) -> String {
        self.settle(timeout).await;
        let tail = self.tail.lock();
        in_short(&String::from_utf8_lossy(&tail.bytes.iter().copied().collect::<Vec<_>>()))
    }

    /// Waits for the end of the stream, at most `timeout`.
    async fn settle(&mut self, timeout: Duration) {
        if let Some(task) = &mut self.task
            && tokio::time::timeout(timeout, task).await.is_ok()
        {
            self.task = None;
        }
    }

    /// The errno of a command that docker's PID 1 (tini) could not start: tini then exits with 127
    /// or 126, and its error is all that was written to the stream. A command can print the same
    /// text and exit with the same code, and gets the wrong error; only its own result is affected.
    pub(crate) async fn exec_errno(&mut self, code: i32, timeout: Duration) -> Option<i32> {
        let errno = match code {
            127 => Errno::NOENT,
            126 => Errno::ACCESS,
            _ => return None,
        };
        self.settle(timeout).await;
        let tail = self.tail.lock();
        let whole = tail.total == tail.bytes.len() as u64;
        let text: Vec<u8> = tail.bytes.iter().copied().collect();
        let text = std::str::from_utf8(&text).ok()?;
        let is_tini_error = text.starts_with("[FATAL tini (") && text.contains("] exec ") && text.contains(" failed: ");
        (whole && is_tini_error && text.lines().count() == 1).then_some(errno.raw_os_error())
    }
}

async fn copy(mut from: ChildStderr, mut to: pipe::Sender, tail: Arc<Mutex<Tail>>) {
    let mut buffer = vec![0; BUFFER];
    let mut is_read = true;
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        tail.lock().keep(&buffer[..count]);
        // Without a reader the stream is still read: otherwise the client would end by SIGPIPE, and
        // its report of the container be lost.
        is_read = is_read && to.write_all(&buffer[..count]).await.is_ok();
    }
}

impl Tail {
    fn keep(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.bytes.extend(bytes);
        let excess = self.bytes.len().saturating_sub(KEPT);
        self.bytes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::client::{Process, command};
    use std::io::Read;
    use std::path::Path;
    use std::process::Stdio;

    fn say(script: &str) -> (StderrCopy, std::io::PipeReader) {
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", script]);
        let mut process = Process::start(command, Stdio::null()).unwrap();
        let (_, _, stderr) = process.take_streams().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let copy = StderrCopy::start(stderr, writer.into()).unwrap();
        tokio::spawn(async move { process.wait().await });
        (copy, reader)
    }

    async fn read(mut reader: std::io::PipeReader) -> Vec<u8> {
        let read = move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn all_bytes_are_copied_and_last_ones_kept() {
        let (mut copy, reader) = say("head -c 1000000 /dev/zero >&2; echo end >&2");
        assert_eq!(read(reader).await.len(), 1_000_004);
        assert!(copy.last(TIMEOUT).await.ends_with("end"));
        assert_eq!(copy.tail.lock().bytes.len(), KEPT);
    }

    #[tokio::test]
    async fn unread_stderr_does_not_block() {
        let (mut copy, reader) = say("head -c 1000000 /dev/zero >&2; echo end >&2");
        drop(reader);
        assert!(copy.last(TIMEOUT).await.ends_with("end"));
    }

    #[tokio::test]
    async fn tini_error_counts_only_if_nothing_else_was_written() {
        let complaint = "echo '[FATAL tini (7)] exec nosuch failed: No such file or directory' >&2";
        let (mut copy, _reader) = say(complaint);
        assert_eq!(copy.exec_errno(127, TIMEOUT).await, Some(2));
        assert_eq!(copy.exec_errno(126, TIMEOUT).await, Some(13));
        assert_eq!(copy.exec_errno(1, TIMEOUT).await, None);
        for other in [&format!("echo before >&2; {complaint}"), "echo 'sh: x: not found' >&2", "true"] {
            let (mut copy, _reader) = say(other);
            assert_eq!(copy.exec_errno(127, TIMEOUT).await, None, "{other}");
        }
    }
}
