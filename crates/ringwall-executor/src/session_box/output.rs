//! Buffers the output of a session process for its reader.
//!
//! The buffer holds at most the window that the agent was given; an agent that sends more breaks
//! the protocol. Reading extends the window. Output without a reader is discarded, so that no
//! process waits.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Mutex, MutexGuard};
use ringwall_jail::agent::frame::{FrameError, OUTPUT_WINDOW, OutputStream, ProcessId, ToAgent};
use tokio::io::{AsyncRead, ReadBuf};

use super::register::Shared;

/// The window is extended in portions.
const PORTION: usize = OUTPUT_WINDOW / 2;

#[derive(Debug)]
pub(crate) struct Buffer(Mutex<State>);

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    /// Bytes that may still arrive.
    room: usize,
    /// Bytes read and not yet added to the window.
    read: usize,
    reader: Reader,
    end: End,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    There,
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    Reached,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        let bytes = VecDeque::new();
        let state = State { bytes, room: OUTPUT_WINDOW, read: 0, reader: Reader::There, end: End::NotYet, waker: None };
        Buffer(Mutex::new(state))
    }

    /// Stores received bytes. Returns by how much to extend the window.
    pub(crate) fn push(&self, bytes: &[u8]) -> Result<Option<u32>, FrameError> {
        let mut state = self.lock();
        if bytes.is_empty() || bytes.len() > state.room {
            return Err(FrameError);
        }
        state.room -= bytes.len();
        match state.reader {
            Reader::There => {
                state.bytes.extend(bytes);
                state.wake();
                Ok(None)
            }
            Reader::Gone => {
                state.read += bytes.len();
                Ok(state.give_room())
            }
        }
    }

    /// True if all received bytes were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().bytes.is_empty()
    }

    /// Marks the end of the stream.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.end = End::Reached;
        state.wake();
    }

    /// The reader is gone.
    fn leave(&self) -> Option<u32> {
        let mut state = self.lock();
        state.reader = Reader::Gone;
        state.read += state.bytes.len();
        state.bytes = VecDeque::new();
        state.give_room()
    }

    fn take(&self, into: &mut dyn FnMut(&[u8]) -> usize) -> Taken {
        let mut state = self.lock();
        let taken = into(state.bytes.as_slices().0);
        if taken == 0 {
            return if state.end == End::Reached { Taken::End } else { Taken::Nothing };
        }
        state.bytes.drain(..taken);
        state.read += taken;
        Taken::Some(state.give_room())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// The result of a read.
enum Taken {
    /// Bytes, and by how much to extend the window.
    Some(Option<u32>),
    Nothing,
    End,
}

impl State {
    fn give_room(&mut self) -> Option<u32> {
        if self.read < PORTION {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        self.room += read;
        u32::try_from(read).ok()
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// An output stream of a session process. Dropping it discards the rest.
#[derive(Debug)]
pub struct ProcessOutput {
    buffer: Arc<Buffer>,
    shared: Arc<Shared>,
    process: ProcessId,
    from: OutputStream,
}

impl ProcessOutput {
    pub(crate) fn new(buffer: Arc<Buffer>, shared: Arc<Shared>, process: ProcessId, from: OutputStream) -> Self {
        ProcessOutput { buffer, shared, process, from }
    }

    /// Returns the buffered bytes without waiting. After a message on the channel, everything
    /// written to the other two streams before it is there.
    pub fn read_now(&mut self) -> Vec<u8> {
        let mut now = Vec::new();
        while let Taken::Some(room) = self.buffer.take(&mut |bytes| {
            now.extend_from_slice(bytes);
            bytes.len()
        }) {
            self.tell(room);
        }
        now
    }

    fn tell(&self, room: Option<u32>) {
        if let Some(bytes) = room {
            self.shared.order(&ToAgent::OutputConsumed { process: self.process, from: self.from, bytes });
        }
    }
}

impl AsyncRead for ProcessOutput {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // Stored before the check, so that later bytes wake the reader.
        self.buffer.lock().waker = Some(context.waker().clone());
        let taken = self.buffer.take(&mut |bytes| {
            let count = bytes.len().min(into.remaining());
            into.put_slice(&bytes[..count]);
            count
        });
        match taken {
            Taken::Some(room) => {
                self.tell(room);
                Poll::Ready(Ok(()))
            }
            Taken::End => Poll::Ready(Ok(())),
            Taken::Nothing => Poll::Pending,
        }
    }
}

impl Drop for ProcessOutput {
    fn drop(&mut self) {
        self.tell(self.buffer.leave());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(buffer: &Buffer, most: usize) -> usize {
        let mut count = 0;
        buffer.take(&mut |bytes| {
            count = bytes.len().min(most);
            count
        });
        count
    }

    #[test]
    fn no_more_comes_than_there_is_room_for() {
        let buffer = Buffer::new();
        let much = vec![0; OUTPUT_WINDOW];
        assert_eq!(buffer.push(&[]), Err(FrameError));
        assert_eq!(buffer.push(&much), Ok(None));
        assert_eq!(buffer.push(&[1]), Err(FrameError), "nobody has read");
        assert_eq!(take(&buffer, PORTION - 1), PORTION - 1);
        assert_eq!(buffer.push(&[1]), Err(FrameError), "nor was told");
        assert_eq!(take(&buffer, 1), 1);
        assert_eq!(buffer.push(&much[..PORTION]), Ok(None));
        assert_eq!(buffer.push(&[1]), Err(FrameError));
    }

    #[test]
    fn dropped_reader_releases_writer() {
        let buffer = Buffer::new();
        let half = vec![0; PORTION];
        assert_eq!(buffer.push(&half), Ok(None));
        assert_eq!(buffer.leave(), Some(PORTION as u32));
        for _ in 0..10 {
            assert_eq!(buffer.push(&half), Ok(Some(PORTION as u32)));
        }
        assert_eq!(buffer.lock().bytes.capacity(), 0, "and nothing is kept");
    }
}
