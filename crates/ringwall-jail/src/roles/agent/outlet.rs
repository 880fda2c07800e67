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

/// So much is written before it is said.
const TOLD_FROM: usize = INPUT_WINDOW / 4;

/// Something to write to, and what is still to be written.
#[derive(Debug)]
pub(crate) struct Sink {
    end: OwnedFd,
    pending: Vec<u8>,
    /// Written, and not said yet.
    untold: usize,
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
    /// So much was written that is to be said now. Whoever waits for room waits for more than is left untold, so that a few
    /// bytes are worth nobody's waking.
    Taken(usize),
    /// All is written that ever will be.
    Done,
    /// Nobody reads there any more.
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

    /// Whoever sends as much as may be on its way hears of room again, in whatever pieces it goes; a few bytes are not told.
    #[test]
    fn a_sender_never_waits_for_what_is_not_told() {
        for piece in [1, 7, TOLD_FROM - 1, TOLD_FROM, INPUT_WINDOW] {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let mut sink = Sink::new(write, SinkKind::Pipe).unwrap();
            let (mut allowed, mut sent, mut told, mut buffer) = (INPUT_WINDOW, 0, 0, vec![0; INPUT_WINDOW]);
            while sent < 4 * INPUT_WINDOW {
                let now = piece.min(allowed);
                assert!(now > 0, "nobody says that there is room: {piece}");
                sink.push(&buffer[..now]).unwrap();
                (sent, allowed) = (sent + now, allowed - now);
                let Writing::Taken(taken) = sink.write() else { panic!("it is open") };
                assert!(taken == 0 || taken >= TOLD_FROM, "{taken}");
                (allowed, told) = (allowed + taken, told + taken);
                rustix::io::read(&read, &mut buffer).unwrap();
            }
            assert!(told <= sent && sent - told < INPUT_WINDOW, "{told} of {sent}");
            // More than may be on its way is no order of ours.
            assert_eq!(sink.push(&vec![0; allowed + 1]), Err(Disorder));
        }
    }
}
