//! The agent's ends of a process's streams, with flow control. Nothing here blocks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::{Disorder, INPUT_WINDOW, OUTPUT_WINDOW};

/// An output stream, and how many bytes the server still accepts.
#[derive(Debug)]
pub(crate) struct Source {
    end: OwnedFd,
    pub(crate) room: usize,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Some(usize),
    /// No data now.
    Nothing,
    /// End of file.
    End,
}

impl Source {
    pub(crate) fn new(end: OwnedFd) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(Source { end, room: OUTPUT_WINDOW })
    }

    /// Bytes that can be read now.
    pub(crate) fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.end).unwrap_or(0)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Reading {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.end, &mut *buffer)) {
            // Linux reports EIO on a terminal master when no process has the slave open.
            Ok(0) | Err(Errno::IO) => Reading::End,
            Ok(count) => {
                self.room = self.room.saturating_sub(count);
                Reading::Some(count)
            }
            Err(Errno::AGAIN) => Reading::Nothing,
            Err(_) => Reading::End,
        }
    }

    pub(crate) fn into_end(self) -> OwnedFd {
        self.end
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// Written bytes are reported to the server from this number on.
const TOLD_FROM: usize = INPUT_WINDOW / 4;

/// An input stream, and the bytes that are still to be written.
#[derive(Debug)]
pub(crate) struct Sink {
    end: OwnedFd,
    pending: Vec<u8>,
    /// Bytes written but not reported yet.
    untold: usize,
    kind: SinkKind,
    state: SinkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkKind {
    Pipe,
    /// Also read from, so the sending direction is shut down explicitly.
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkState {
    Open,
    /// To be closed when all pending bytes are written.
    Closing,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Bytes to report to the server now. 0 below the threshold: the server still has window left,
    /// so a report is not worth a wake-up.
    Taken(usize),
    /// All bytes are written and the stream is closed.
    Done,
    /// The reader has closed the stream.
    Broken,
}

impl Sink {
    pub(crate) fn new(end: OwnedFd, kind: SinkKind) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(Sink { end, pending: Vec::new(), untold: 0, kind, state: SinkState::Open })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Disorder> {
        if self.state == SinkState::Closing || self.untold + self.pending.len() + bytes.len() > INPUT_WINDOW {
            return Err(Disorder);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.state = SinkState::Closing;
    }

    pub(crate) fn has_more(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn write(&mut self) -> Writing {
        let mut taken = 0;
        while taken < self.pending.len() {
            match rustix::io::write(&self.end, &self.pending[taken..]) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Writing::Broken,
            }
        }
        self.pending.drain(..taken);
        self.untold += taken;
        match self.state {
            SinkState::Closing if self.pending.is_empty() => {
                if self.kind == SinkKind::Socket {
                    let _ = rustix::net::shutdown(&self.end, rustix::net::Shutdown::Write);
                }
                Writing::Done
            }
            SinkState::Open | SinkState::Closing if self.untold < TOLD_FROM => Writing::Taken(0),
            SinkState::Open | SinkState::Closing => Writing::Taken(std::mem::take(&mut self.untold)),
        }
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    /// A sender that uses its whole window learns of new space, for any size of its writes.
    #[test]
    fn sender_with_full_window_is_told_of_space() {
        for piece in [1, 7, TOLD_FROM - 1, TOLD_FROM, INPUT_WINDOW] {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let mut sink = Sink::new(write, SinkKind::Pipe).unwrap();
            let (mut allowed, mut sent, mut told, mut buffer) = (INPUT_WINDOW, 0, 0, vec![0; INPUT_WINDOW]);
            while sent < 4 * INPUT_WINDOW {
                let now = piece.min(allowed);
                assert!(now > 0, "the window stays empty with writes of {piece} bytes");
                sink.push(&buffer[..now]).unwrap();
                (sent, allowed) = (sent + now, allowed - now);
                let Writing::Taken(taken) = sink.write() else { panic!("the stream is open") };
                assert!(taken == 0 || taken >= TOLD_FROM, "{taken}");
                (allowed, told) = (allowed + taken, told + taken);
                rustix::io::read(&read, &mut buffer).unwrap();
            }
            assert!(told <= sent && sent - told < INPUT_WINDOW, "{told} of {sent}");
            // More than the window is a protocol error.
            assert_eq!(sink.push(&vec![0; allowed + 1]), Err(Disorder));
        }
    }
}
