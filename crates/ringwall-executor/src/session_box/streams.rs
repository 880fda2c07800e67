//! The streams of a session process, each limited by a window of unacknowledged bytes.
//!
//! Input: at most [`INPUT_WINDOW`] bytes are sent before the agent acknowledges some. Output: the agent
//! sends at most [`OUTPUT_WINDOW`] bytes, which are buffered, before some are read and acknowledged. An
//! agent that acknowledges or sends more breaks the protocol. Output without a reader is discarded, so
//! that no process blocks on a write.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use ringwall_jail::agent::frame::{
    CHUNK, FrameError, INPUT_WINDOW, InputStream, OUTPUT_WINDOW, OutputStream, ProcessId, ToAgent,
};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use super::state::Shared;
use crate::running::InputWriter;

/// Read bytes are acknowledged to the agent in portions of at least this size.
const UPDATE_BYTES: usize = OUTPUT_WINDOW / 2;

/// How many bytes of input may be sent.
#[derive(Debug)]
pub(crate) struct Window(watch::Sender<Allowed>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Bytes(usize),
    /// The process has closed its input.
    Closed,
}

impl Default for Window {
    fn default() -> Self {
        Window(watch::Sender::new(Allowed::Bytes(INPUT_WINDOW)))
    }
}

impl Window {
    /// Records an acknowledgement. Acknowledging more than was sent is a protocol error.
    pub(crate) fn acknowledge(&self, bytes: u32) -> Result<(), FrameError> {
        let mut outcome = Ok(());
        self.0.send_modify(|allowed| {
            let Allowed::Bytes(left) = allowed else { return };
            match left.checked_add(bytes as usize).filter(|sum| bytes > 0 && *sum <= INPUT_WINDOW) {
                Some(sum) => *left = sum,
                None => outcome = Err(FrameError),
            }
        });
        outcome
    }

    /// Records that the process closed its input; a second message is a protocol error.
    pub(crate) fn close(&self) -> Result<(), FrameError> {
        match self.0.send_replace(Allowed::Closed) {
            Allowed::Bytes(_) => Ok(()),
            Allowed::Closed => Err(FrameError),
        }
    }
}

/// An input stream of a session process. Dropping it closes the stream: the process reads end of file
/// after the bytes that were sent.
#[derive(Debug)]
pub struct ProcessInput {
    window: Arc<Window>,
    shared: Arc<Shared>,
    process: ProcessId,
    to: InputStream,
}

impl ProcessInput {
    pub(crate) fn new(window: Arc<Window>, shared: Arc<Shared>, process: ProcessId, to: InputStream) -> Self {
        ProcessInput { window, shared, process, to }
    }

    /// Sends all bytes as fast as the process reads. If the future is dropped, a part may have been
    /// sent.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut window = self.window.0.subscribe();
        while !bytes.is_empty() {
            let left = match *window.wait_for(|allowed| *allowed != Allowed::Bytes(0)).await.map_err(|_| broken())? {
                Allowed::Bytes(left) => left,
                Allowed::Closed => return Err(broken()),
            };
            let (now, later) = bytes.split_at(bytes.len().min(left).min(CHUNK));
            let ticket = self.shared.writer.reserve().await.ok_or_else(broken)?;
            self.window.0.send_modify(|allowed| {
                if let Allowed::Bytes(left) = allowed {
                    *left = left.saturating_sub(now.len());
                }
            });
            ticket.send(&ToAgent::Input { process: self.process, to: self.to, bytes: now });
            bytes = later;
        }
        Ok(())
    }
}

impl InputWriter for ProcessInput {
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        self.write(bytes).boxed()
    }
}

impl Drop for ProcessInput {
    fn drop(&mut self) {
        self.shared.writer.send_later(&ToAgent::CloseInput { process: self.process, to: self.to });
    }
}

/// Output that has arrived and was not read yet.
#[derive(Debug)]
pub(crate) struct Buffer(Mutex<State>);

#[derive(Debug)]
struct State {
    bytes: VecDeque<u8>,
    /// Bytes that may still arrive.
    window: usize,
    /// Bytes read, of which the agent was not told yet.
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

impl Default for Buffer {
    fn default() -> Self {
        let bytes = VecDeque::new();
        let state =
            State { bytes, window: OUTPUT_WINDOW, read: 0, reader: Reader::There, end: End::NotYet, waker: None };
        Buffer(Mutex::new(state))
    }
}

impl Buffer {
    /// Stores received bytes. Returns how many read bytes to acknowledge to the agent.
    pub(crate) fn push(&self, bytes: &[u8]) -> Result<Option<u32>, FrameError> {
        let mut state = self.0.lock();
        if bytes.is_empty() || bytes.len() > state.window {
            return Err(FrameError);
        }
        state.window -= bytes.len();
        match state.reader {
            Reader::There => {
                state.bytes.extend(bytes);
                state.wake();
                Ok(None)
            }
            Reader::Gone => {
                state.read += bytes.len();
                Ok(state.window_update())
            }
        }
    }

    /// True if all received bytes were read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().bytes.is_empty()
    }

    /// Marks the end of the stream.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.end = End::Reached;
        state.wake();
    }

    /// Discards the rest, now and later, because the reader is gone.
    fn discard(&self) -> Option<u32> {
        let mut state = self.0.lock();
        state.reader = Reader::Gone;
        state.read += state.bytes.len();
        state.bytes = VecDeque::new();
        state.window_update()
    }

    fn take(&self, into: &mut dyn FnMut(&[u8]) -> usize) -> Taken {
        let mut state = self.0.lock();
        let taken = into(state.bytes.as_slices().0);
        if taken == 0 {
            return if state.end == End::Reached { Taken::End } else { Taken::Nothing };
        }
        state.bytes.drain(..taken);
        state.read += taken;
        Taken::Some(state.window_update())
    }
}

/// The result of a read.
enum Taken {
    /// Bytes, and how many read bytes to acknowledge to the agent.
    Some(Option<u32>),
    Nothing,
    End,
}

impl State {
    fn window_update(&mut self) -> Option<u32> {
        if self.read < UPDATE_BYTES {
            return None;
        }
        let read = std::mem::take(&mut self.read);
        self.window += read;
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
        while let Taken::Some(update) = self.buffer.take(&mut |bytes| {
            now.extend_from_slice(bytes);
            bytes.len()
        }) {
            self.acknowledge(update);
        }
        now
    }

    fn acknowledge(&self, update: Option<u32>) {
        if let Some(bytes) = update {
            self.shared.send_urgent(&ToAgent::OutputConsumed { process: self.process, from: self.from, bytes });
        }
    }
}

impl AsyncRead for ProcessOutput {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // Stored before the check, so that later bytes wake the reader.
        self.buffer.0.lock().waker = Some(context.waker().clone());
        let taken = self.buffer.take(&mut |bytes| {
            let count = bytes.len().min(into.remaining());
            into.put_slice(&bytes[..count]);
            count
        });
        match taken {
            Taken::Some(update) => self.acknowledge(update),
            Taken::End => {}
            Taken::Nothing => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for ProcessOutput {
    fn drop(&mut self) {
        self.acknowledge(self.buffer.discard());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgement_of_unsent_input_is_refused() {
        let window = Window::default();
        assert_eq!(window.acknowledge(1), Err(FrameError));
        window.0.send_replace(Allowed::Bytes(0));
        assert_eq!(window.acknowledge(0), Err(FrameError));
        assert_eq!(window.acknowledge(INPUT_WINDOW as u32), Ok(()));
        assert_eq!(window.acknowledge(1), Err(FrameError));
        assert_eq!((window.close(), window.close()), (Ok(()), Err(FrameError)));
        assert_eq!(window.acknowledge(1), Ok(()), "an acknowledgement that was sent before the close");
    }

    fn take(buffer: &Buffer, most: usize) -> usize {
        let mut count = 0;
        buffer.take(&mut |bytes| {
            count = bytes.len().min(most);
            count
        });
        count
    }

    #[test]
    fn output_beyond_window_is_refused() {
        let buffer = Buffer::default();
        let much = vec![0; OUTPUT_WINDOW];
        assert_eq!(buffer.push(&[]), Err(FrameError));
        assert_eq!(buffer.push(&much), Ok(None));
        assert_eq!(buffer.push(&[1]), Err(FrameError), "nothing was read");
        assert_eq!(take(&buffer, UPDATE_BYTES - 1), UPDATE_BYTES - 1);
        assert_eq!(buffer.push(&[1]), Err(FrameError), "less than UPDATE_BYTES was read");
        assert_eq!(take(&buffer, 1), 1);
        assert_eq!(buffer.push(&much[..UPDATE_BYTES]), Ok(None));
        assert_eq!(buffer.push(&[1]), Err(FrameError));
    }

    #[test]
    fn dropped_reader_keeps_extending_the_window() {
        let buffer = Buffer::default();
        let half = vec![0; UPDATE_BYTES];
        assert_eq!(buffer.push(&half), Ok(None));
        assert_eq!(buffer.discard(), Some(UPDATE_BYTES as u32));
        for _ in 0..10 {
            assert_eq!(buffer.push(&half), Ok(Some(UPDATE_BYTES as u32)));
        }
        assert_eq!(buffer.0.lock().bytes.capacity(), 0, "the bytes are not kept");
    }
}
