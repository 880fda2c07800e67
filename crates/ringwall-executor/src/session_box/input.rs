//! Input of a session process, limited by the window that the agent has acknowledged.

use std::io;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::agent::frame::{CHUNK, FrameError, INPUT_WINDOW, InputStream, ProcessId, ToAgent};
use tokio::sync::watch;

use super::register::Shared;
use crate::running::InputWriter;

/// The number of bytes that may be sent.
#[derive(Debug)]
pub(crate) struct Window(watch::Sender<Allowed>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Allowed {
    Bytes(usize),
    /// The process has closed its input.
    Closed,
}

impl Window {
    pub(crate) fn new() -> Self {
        Window(watch::Sender::new(Allowed::Bytes(INPUT_WINDOW)))
    }

    /// Records an acknowledgement. Acknowledging more than was sent is a protocol error.
    pub(crate) fn taken(&self, bytes: u32) -> Result<(), FrameError> {
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

    /// The process has ended.
    pub(crate) fn end(&self) {
        self.0.send_replace(Allowed::Closed);
    }
}

/// An input stream of a session process. Dropping it closes the stream.
#[derive(Debug)]
pub struct ProcessInput {
    window: Arc<Window>,
    shared: Arc<Shared>,
    process: ProcessId,
    to: InputStream,
    state: InputState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputState {
    Open,
    Closed,
}

impl ProcessInput {
    pub(crate) fn new(window: Arc<Window>, shared: Arc<Shared>, process: ProcessId, to: InputStream) -> Self {
        ProcessInput { window, shared, process, to, state: InputState::Open }
    }

    /// Sends all bytes as fast as the process reads. If the future is dropped, a part may have been
    /// sent.
    pub async fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut window = self.window.0.subscribe();
        while !bytes.is_empty() {
            let free = |allowed: &Allowed| *allowed != Allowed::Bytes(0);
            let left = match *window.wait_for(free).await.map_err(|_| broken())? {
                Allowed::Bytes(left) => left,
                Allowed::Closed => return Err(broken()),
            };
            let (now, later) = bytes.split_at(bytes.len().min(left).min(CHUNK));
            let place = self.shared.writer.place().await.ok_or_else(broken)?;
            self.window.0.send_modify(|allowed| {
                if let Allowed::Bytes(left) = allowed {
                    *left = left.saturating_sub(now.len());
                }
            });
            place.say(&ToAgent::Input { process: self.process, to: self.to, bytes: now });
            bytes = later;
        }
        Ok(())
    }

    /// Closes the stream; the process reads end of file after the bytes that were sent.
    pub async fn close(mut self) {
        self.state = InputState::Closed;
        if let Some(place) = self.shared.writer.place().await {
            place.say(&ToAgent::CloseInput { process: self.process, to: self.to });
        }
    }
}

impl InputWriter for ProcessInput {
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, io::Result<()>> {
        self.write(bytes).boxed()
    }
}

impl Drop for ProcessInput {
    fn drop(&mut self) {
        if self.state == InputState::Open {
            self.shared.writer.say_later(&ToAgent::CloseInput { process: self.process, to: self.to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_takes_at_most_what_was_sent() {
        let window = Window::new();
        assert_eq!(window.taken(1), Err(FrameError));
        window.0.send_replace(Allowed::Bytes(0));
        assert_eq!(window.taken(0), Err(FrameError));
        assert_eq!(window.taken(INPUT_WINDOW as u32), Ok(()));
        assert_eq!(window.taken(1), Err(FrameError));
        assert_eq!((window.close(), window.close()), (Ok(()), Err(FrameError)));
        assert_eq!(window.taken(1), Ok(()), "what was on its way when it closed does not matter");
    }
}
