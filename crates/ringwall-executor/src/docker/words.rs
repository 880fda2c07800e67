//! Passes a container's stderr on to its reader and keeps the last 4 KiB.
//!
//! The docker client writes its own errors to the same stream. The kept bytes explain why a
//! container could not be started. Every byte is passed on in order, with one buffer of memory.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::ChildStderr;
use tokio::task::JoinHandle;

use super::client::in_short;

const BUFFER: usize = 64 * 1024;
const KEPT: usize = 4096;

#[derive(Debug)]
pub(crate) struct Words {
    tail: Arc<Mutex<Tail>>,
    /// `None` after the end of the stream.
    pump: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Tail {
    bytes: VecDeque<u8>,
    total: u64,
}

/// Why docker's PID 1 (tini) could not start the command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NotStarted {
    NotFound,
    NotExecutable,
}

impl Words {
    /// Passes the stream on in the background, to its end.
    pub(crate) fn pass_on(from: ChildStderr, to: OwnedFd) -> std::io::Result<Self> {
        let to = pipe::Sender::from_owned_fd(to)?;
        let tail = Arc::new(Mutex::new(Tail::default()));
        let pump = tokio::spawn(pump(from, to, tail.clone()));
        Ok(Words { tail, pump: Some(pump) })
    }

    /// The kept bytes as one line, after the end of the stream or `timeout`.
    pub(crate) async fn last(&mut self, timeout: Duration) -> String {
        self.settle(timeout).await;
        let tail = self.tail.lock();
        in_short(&String::from_utf8_lossy(&tail.bytes.iter().copied().collect::<Vec<_>>()))
    }

    /// Waits for the end of the stream, at most `timeout`.
    async fn settle(&mut self, timeout: Duration) {
        if let Some(pump) = &mut self.pump
            && tokio::time::timeout(timeout, pump).await.is_ok()
        {
            self.pump = None;
        }
    }

    /// The reason, if tini's error about the command is all that was written to the stream. A
    /// command can print the same text and exit with the same code, and gets the wrong error; only
    /// its own result is affected.
    pub(crate) async fn why_not_started(&mut self, code: i32, timeout: Duration) -> Option<NotStarted> {
        let kind = match code {
            127 => NotStarted::NotFound,
            126 => NotStarted::NotExecutable,
            _ => return None,
        };
        self.settle(timeout).await;
        let tail = self.tail.lock();
        let whole = tail.total == tail.bytes.len() as u64;
        let text: Vec<u8> = tail.bytes.iter().copied().collect();
        let text = std::str::from_utf8(&text).ok()?;
        let complaint = text.starts_with("[FATAL tini (") && text.contains("] exec ") && text.contains(" failed: ");
        (whole && complaint && text.lines().count() == 1).then_some(kind)
    }
}

async fn pump(mut from: ChildStderr, mut to: pipe::Sender, tail: Arc<Mutex<Tail>>) {
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

    fn say(script: &str) -> (Words, std::io::PipeReader) {
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Process::start(command).unwrap();
        let (_, _, stderr) = process.take_streams().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let words = Words::pass_on(stderr, writer.into()).unwrap();
        tokio::spawn(async move { process.wait().await });
        (words, reader)
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
    async fn every_byte_is_passed_on_and_the_last_are_kept() {
        let (mut words, reader) = say("head -c 1000000 /dev/zero >&2; echo end >&2");
        assert_eq!(read(reader).await.len(), 1_000_004);
        assert!(words.last(TIMEOUT).await.ends_with("end"));
        assert_eq!(words.tail.lock().bytes.len(), KEPT);
    }

    #[tokio::test]
    async fn unread_messages_do_not_block() {
        let (mut words, reader) = say("head -c 1000000 /dev/zero >&2; echo end >&2");
        drop(reader);
        assert!(words.last(TIMEOUT).await.ends_with("end"));
    }

    #[tokio::test]
    async fn only_a_lone_complaint_of_pid_1_is_believed() {
        let complaint = "echo '[FATAL tini (7)] exec nosuch failed: No such file or directory' >&2";
        let (mut words, _reader) = say(complaint);
        assert_eq!(words.why_not_started(127, TIMEOUT).await, Some(NotStarted::NotFound));
        assert_eq!(words.why_not_started(126, TIMEOUT).await, Some(NotStarted::NotExecutable));
        assert_eq!(words.why_not_started(1, TIMEOUT).await, None);
        for other in [&format!("echo before >&2; {complaint}"), "echo 'sh: x: not found' >&2", "true"] {
            let (mut words, _reader) = say(other);
            assert_eq!(words.why_not_started(127, TIMEOUT).await, None, "{other}");
        }
    }
}
