//! The agent's ends of a visit's streams: what comes out is read as far as somebody has room for it, what goes in is
//! written as far as the visit reads. Nothing here ever waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::{Disorder, INPUT_WINDOW, OUTPUT_WINDOW};

/// Something to read from, and how much of it somebody has room for.
#[derive(Debug)]
pub(crate) struct Source {
    end: OwnedFd,
    pub(crate) room: usize,
}

/// What a reading gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Some(usize),
    /// Not now.
    Nothing,
    /// Never again.
    End,
}

impl Source {
    pub(crate) fn new(end: OwnedFd) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(Source { end, room: OUTPUT_WINDOW })
    }

    /// How much lies there.
    pub(crate) fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.end).unwrap_or(0)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Reading {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.end, &mut *buffer)) {
            // A terminal at which nobody is any more says so by an error.
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

/// Something to write to, and what is still to be written.
#[derive(Debug)]
pub(crate) struct Sink {
    end: OwnedFd,
    pending: Vec<u8>,
    kind: SinkKind,
    state: SinkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SinkKind {
    Pipe,
    /// Also read from, so that closing it takes a word of its own.
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SinkState {
    Open,
    /// Closed when the rest is written.
    Closing,
}

/// What a writing gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    Taken(usize),
    /// All is written that ever will be.
    Done(usize),
    /// Nobody reads there any more.
    Broken,
}

impl Sink {
    pub(crate) fn new(end: OwnedFd, kind: SinkKind) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(Sink { end, pending: Vec::new(), kind, state: SinkState::Open })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), Disorder> {
        if self.state == SinkState::Closing || self.pending.len() + bytes.len() > INPUT_WINDOW {
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
        match self.state {
            SinkState::Closing if self.pending.is_empty() => {
                if self.kind == SinkKind::Socket {
                    let _ = rustix::net::shutdown(&self.end, rustix::net::Shutdown::Write);
                }
                Writing::Done(taken)
            }
            SinkState::Open | SinkState::Closing => Writing::Taken(taken),
        }
    }
}

impl AsFd for Sink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
