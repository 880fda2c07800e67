//! Streams of a command: copies stdout and stderr to files up to a limit and wakes followers, and
//! writes stdin.
//!
//! A pipe is read to its end even beyond the limit, so that output never blocks the command. When
//! the box has ended, only the bytes that are in the pipe by then are read. Another process may
//! still hold the write end, because a box can pass it to another box of its project; its later
//! output is ignored.

use std::io;
use std::os::fd::OwnedFd;

use ringwall_executor::{Input, Output, register};
use ringwall_record::StoredOutput;
use ringwall_workspace::{OutputFile, Stream};
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::exec::registry::RunningExec;

const CHUNK: usize = 64 * 1024;

/// Writes the whole stdin. Stops when the box ends, so a command that does not read it causes no
/// wait.
pub(crate) async fn feed(to: Option<Input>, input: &[u8], ended: &CancellationToken) {
    // Dropping `to` closes stdin.
    if input.is_empty() {
        return;
    }
    let write = async {
        match to {
            Some(Input::Pipe(pipe)) => register(pipe, Sender::from_owned_fd).await?.write_all(input).await,
            Some(Input::Stream(mut stream)) => stream.write_all(input).await,
            None => Ok(()),
        }
    };
    tokio::select! {
        // The write fails if the command closed its stdin or has exited.
        _ = write => {}
        () = ended.cancelled() => {}
    }
}

/// Reads one stream to its end. `ended` is cancelled when the box has ended. Each chunk of terminal
/// output is also sent to `screen`; a slow receiver delays the command.
pub(crate) async fn capture(
    from: Option<Output>,
    screen: Option<mpsc::Sender<Vec<u8>>>,
    stream: Stream,
    file: OutputFile,
    limit: u64,
    running: &RunningExec,
    ended: &CancellationToken,
) -> StoredOutput {
    let mut keeper = Keeper { stream, file, limit, running, kept: StoredOutput::Complete };
    let read = match from {
        Some(Output::Pipe(pipe)) => read_all(pipe, &mut keeper, ended).await,
        Some(Output::Stream(stream)) => read_stream(stream, &mut keeper, screen).await,
        None => Ok(()),
    };
    if let Err(error) = read {
        tracing::error!(exec_id = %running.exec_id, %stream, %error, "could not read the output of a command");
        keeper.cut();
    }
    keeper.kept
}

async fn read_all(pipe: OwnedFd, keeper: &mut Keeper<'_>, ended: &CancellationToken) -> io::Result<()> {
    let pipe = register(pipe, Receiver::from_owned_fd).await?;
    let mut buffer = vec![0; CHUNK];
    // Bytes left to read, set when the box has ended.
    let mut rest = None;
    loop {
        if rest.is_none() && ended.is_cancelled() {
            rest = Some(rustix::io::ioctl_fionread(&pipe)?);
        }
        let room = rest.map_or(CHUNK, |rest| usize::try_from(rest).unwrap_or(CHUNK).min(CHUNK));
        if room == 0 {
            return Ok(());
        }
        // Reads with a system call: tokio's readiness state may lag behind the kernel.
        let looked = match rustix::io::read(&pipe, &mut buffer[..room]) {
            Err(Errno::AGAIN) if rest.is_some() => return Ok(()),
            Err(Errno::AGAIN) => tokio::select! {
                ready = pipe.readable() => ready.and_then(|()| pipe.try_read(&mut buffer)),
                () = ended.cancelled() => continue,
            },
            looked => looked.map_err(io::Error::from),
        };
        match looked {
            Ok(0) => return Ok(()),
            Ok(count) => {
                rest = rest.map(|rest| rest.saturating_sub(count as u64));
                keeper.keep(&buffer[..count]);
                tokio::task::yield_now().await;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The output of a process in a session box ends with the process, even if others still write to
/// it.
async fn read_stream(
    mut output: impl AsyncRead + Unpin,
    keeper: &mut Keeper<'_>,
    screen: Option<mpsc::Sender<Vec<u8>>>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = match output.read(&mut buffer).await? {
            0 => return Ok(()),
            count => count,
        };
        keeper.keep(&buffer[..count]);
        if let Some(screen) = &screen {
            // Fails if the client has disconnected; the output is stored regardless.
            let _ = screen.send(buffer[..count].to_vec()).await;
        }
    }
}

struct Keeper<'a> {
    stream: Stream,
    file: OutputFile,
    limit: u64,
    running: &'a RunningExec,
    kept: StoredOutput,
}

impl Keeper<'_> {
    fn keep(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.limit.saturating_sub(self.file.length())).unwrap_or(usize::MAX);
        let fitting = match self.kept {
            StoredOutput::Complete => &bytes[..bytes.len().min(room)],
            // After the first lost byte nothing is stored, so that the file has no gap.
            StoredOutput::Truncated => return,
        };
        if let Err(error) = self.file.append(fitting) {
            tracing::error!(exec_id = %self.running.exec_id, stream = %self.stream, %error, "could not store the output of a command");
            self.cut();
        } else if fitting.len() < bytes.len() {
            self.cut();
        }
        self.running.ring();
    }

    fn cut(&mut self) {
        self.kept = StoredOutput::Truncated;
        self.running.set_truncated(self.stream);
    }
}

#[cfg(test)]
mod tests {
    use ringwall_ids::ExecId;
    use ringwall_workspace::{Owner, Workspaces};
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// An empty output file, in a directory that is deleted with the first value.
    fn file() -> (tempfile::TempDir, OutputFile) {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(directory.path()).unwrap();
        let owned = workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server()).unwrap();
        let files = owned.project(&"p".parse().unwrap()).unwrap().begin(&ExecId::random().unwrap()).unwrap();
        (directory, files.output(Stream::Stdout).clone())
    }

    fn ended() -> CancellationToken {
        let ended = CancellationToken::new();
        ended.cancel();
        ended
    }

    fn running() -> RunningExec {
        RunningExec::new(
            ExecId::random().unwrap(),
            "u".parse().unwrap(),
            "a".parse().unwrap(),
            None,
            None,
            crate::exec::registry::Lifetime::UntilDone,
        )
    }

    #[tokio::test]
    async fn output_before_end_is_kept() {
        let (_directory, file) = file();
        let (pipe, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        rustix::io::write(&writer, b"last words").unwrap();
        // The write end stays open.
        let (running, ended) = (running(), ended());
        let kept = capture(Some(Output::Pipe(pipe)), None, Stream::Stdout, file.clone(), 100, &running, &ended).await;
        assert_eq!((kept, file.read(0, 100).unwrap().as_slice()), (StoredOutput::Complete, b"last words".as_slice()));
    }

    #[tokio::test]
    async fn background_writer_does_not_delay_end() {
        let (_directory, file) = file();
        let (pipe, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let fill = || while rustix::io::write(&writer, &[b'x'; CHUNK]).is_ok() {};
        fill();
        let before = rustix::io::ioctl_fionread(&pipe).unwrap();
        // Both futures take turns on one thread, so the pipe is full again after each read.
        let go_on = async {
            for _ in 0..100 {
                fill();
                tokio::task::yield_now().await;
            }
        };
        let (running, ended) = (running(), ended());
        let capture = capture(Some(Output::Pipe(pipe)), None, Stream::Stdout, file.clone(), 1 << 30, &running, &ended);
        let (kept, ()) = tokio::join!(capture, go_on);
        assert_eq!((kept, file.length()), (StoredOutput::Complete, before));
    }
}
