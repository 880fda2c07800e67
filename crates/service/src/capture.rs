//! What a command prints goes into its file as it comes, up to the limit; whoever follows is woken.
//!
//! The pipe is read to its end whatever the limit, so that nobody is stopped or slowed for printing too much. When the
//! box is over, so is its output: what lies in the pipe is read, and nobody waits for somebody who still holds the
//! other end.

use std::io;
use std::os::fd::OwnedFd;

use record::Kept;
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use workspace::{OutputFile, Stream};

use crate::live::Live;

const CHUNK: usize = 64 * 1024;

/// Reads one stream to its end. `over` turns true when the box is.
pub(crate) async fn capture(
    pipe: OwnedFd,
    stream: Stream,
    file: OutputFile,
    limit: u64,
    live: &Live,
    over: watch::Receiver<bool>,
) -> Kept {
    let mut keeper = Keeper { stream, file, limit, live, kept: Kept::Whole };
    if let Err(error) = read_all(pipe, &mut keeper, over).await {
        tracing::error!(exec_id = %live.exec_id, %stream, %error, "could not read what a command prints");
        keeper.cut();
    }
    keeper.kept
}

async fn read_all(pipe: OwnedFd, keeper: &mut Keeper<'_>, mut over: watch::Receiver<bool>) -> io::Result<()> {
    let pipe = Receiver::from_owned_fd(pipe)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        // Asked before looking: what was written before the end is then seen.
        let is_last = *over.borrow_and_update();
        // The kernel itself is asked, and not what the runtime has heard of it so far: that may be less.
        let looked = match rustix::io::read(&pipe, &mut *buffer) {
            Err(Errno::AGAIN) if is_last => return Ok(()),
            Err(Errno::AGAIN) => tokio::select! {
                ready = pipe.readable() => ready.and_then(|()| pipe.try_read(&mut buffer)),
                // Nobody is left who could say that it is over.
                changed = over.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return Ok(()),
                },
            },
            looked => looked.map_err(io::Error::from),
        };
        match looked {
            Ok(0) => return Ok(()),
            Ok(count) => {
                keeper.keep(&buffer[..count]);
                tokio::task::yield_now().await;
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

struct Keeper<'a> {
    stream: Stream,
    file: OutputFile,
    limit: u64,
    live: &'a Live,
    kept: Kept,
}

impl Keeper<'_> {
    fn keep(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.limit.saturating_sub(self.file.length())).unwrap_or(usize::MAX);
        let fitting = match self.kept {
            Kept::Whole => &bytes[..bytes.len().min(room)],
            // After a gap nothing more is kept, also where there would be room again.
            Kept::Truncated => return,
        };
        if let Err(error) = self.file.append(fitting) {
            tracing::error!(exec_id = %self.live.exec_id, stream = %self.stream, %error, "could not keep what a command prints");
            self.cut();
        } else if fitting.len() < bytes.len() {
            self.cut();
        }
        self.live.ring();
    }

    fn cut(&mut self) {
        self.kept = Kept::Truncated;
        self.live.set_truncated(self.stream);
    }
}
