//! The agent's ends of a process's streams, with flow control. Nothing here blocks.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::frame::{FrameError, INPUT_WINDOW, OUTPUT_WINDOW};

/// An output stream, and how many bytes the server still accepts.
#[derive(Debug)]
pub(crate) struct OutputEnd {
    end: OwnedFd,
    pub(crate) credit: usize,
}

/// Result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadResult {
    Bytes(usize),
    /// No data now.
    WouldBlock,
    /// End of file.
    Eof,
}

impl OutputEnd {
    pub(crate) fn new(end: OwnedFd) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(OutputEnd { end, credit: OUTPUT_WINDOW })
    }

    /// Bytes that can be read now.
    pub(crate) fn available(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.end).unwrap_or(0)
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> ReadResult {
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.end, &mut *buffer)) {
            // Linux reports EIO on a terminal master when no process has the slave open.
            Ok(0) | Err(Errno::IO) => ReadResult::Eof,
            Ok(count) => {
                self.credit = self.credit.saturating_sub(count);
                ReadResult::Bytes(count)
            }
            Err(Errno::AGAIN) => ReadResult::WouldBlock,
            Err(_) => ReadResult::Eof,
        }
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.end
    }
}

impl AsFd for OutputEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// Written bytes are reported to the server from this number on.
const REPORT_FROM: usize = INPUT_WINDOW / 4;

/// An input stream, and the bytes that are still to be written.
#[derive(Debug)]
pub(crate) struct InputEnd {
    end: OwnedFd,
    pending: Vec<u8>,
    /// Bytes written but not reported yet.
    unreported: usize,
    kind: InputKind,
    state: InputState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    Pipe,
    /// Also read from, so the sending direction is shut down explicitly.
    Socket,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputState {
    Open,
    /// To be closed when all pending bytes are written.
    Closing,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    /// Bytes to report to the server now. 0 below the threshold: the server still has window left,
    /// so a report is not worth a wake-up.
    Written(usize),
    /// All bytes are written and the stream is closed.
    Done,
    /// The reader has closed the stream.
    ReaderGone,
}

impl InputEnd {
    pub(crate) fn new(end: OwnedFd, kind: InputKind) -> rustix::io::Result<Self> {
        rustix::io::ioctl_fionbio(&end, true)?;
        Ok(InputEnd { end, pending: Vec::new(), unreported: 0, kind, state: InputState::Open })
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        if self.state == InputState::Closing || self.unreported + self.pending.len() + bytes.len() > INPUT_WINDOW {
            return Err(FrameError);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        self.state = InputState::Closing;
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(crate) fn write(&mut self) -> WriteResult {
        let mut taken = 0;
        while taken < self.pending.len() {
            match rustix::io::write(&self.end, &self.pending[taken..]) {
                Ok(count) => taken += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return WriteResult::ReaderGone,
            }
        }
        self.pending.drain(..taken);
        self.unreported += taken;
        match self.state {
            InputState::Closing if self.pending.is_empty() => {
                if self.kind == InputKind::Socket {
                    let _ = rustix::net::shutdown(&self.end, rustix::net::Shutdown::Write);
                }
                WriteResult::Done
            }
            InputState::Open | InputState::Closing if self.unreported < REPORT_FROM => WriteResult::Written(0),
            InputState::Open | InputState::Closing => WriteResult::Written(std::mem::take(&mut self.unreported)),
        }
    }
}

impl AsFd for InputEnd {
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
        for piece in [1, 7, REPORT_FROM - 1, REPORT_FROM, INPUT_WINDOW] {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
            let mut sink = InputEnd::new(write, InputKind::Pipe).unwrap();
            let (mut allowed, mut sent, mut reported, mut buffer) = (INPUT_WINDOW, 0, 0, vec![0; INPUT_WINDOW]);
            while sent < 4 * INPUT_WINDOW {
                let now = piece.min(allowed);
                assert!(now > 0, "the window stays empty with writes of {piece} bytes");
                sink.push(&buffer[..now]).unwrap();
                (sent, allowed) = (sent + now, allowed - now);
                let WriteResult::Written(taken) = sink.write() else { panic!("the stream is open") };
                assert!(taken == 0 || taken >= REPORT_FROM, "{taken}");
                (allowed, reported) = (allowed + taken, reported + taken);
                rustix::io::read(&read, &mut buffer).unwrap();
            }
            assert!(reported <= sent && sent - reported < INPUT_WINDOW, "{reported} of {sent}");
            // More than the window is a protocol error.
            assert_eq!(sink.push(&vec![0; allowed + 1]), Err(FrameError));
        }
    }
}
