//! Access to running processes of a session box: signals and input, and for a terminal the buffer of
//! the client's input.

use std::io;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use ringwall_executor::WindowSize;
use ringwall_executor::session_box::{ProcessInput, SessionProcess};
use tokio::sync::{mpsc, oneshot};

/// Bytes of input from which on `has_room` is false.
const MAX_BUFFERED: usize = 256 << 10;

/// The process of a running exec. `stdin` is `None` after it was closed, and for a terminal.
#[derive(Debug)]
pub(crate) struct ProcessHandle {
    pub(crate) handle: SessionProcess,
    pub(crate) stdin: tokio::sync::Mutex<Option<ProcessInput>>,
}

impl ProcessHandle {
    pub(crate) fn new(handle: SessionProcess, stdin: Option<ProcessInput>) -> Self {
        ProcessHandle { handle, stdin: tokio::sync::Mutex::new(stdin) }
    }
}

/// Connects the exec of a terminal with its client.
#[derive(Debug)]
pub(crate) struct TerminalHandle {
    pub(crate) size: WindowSize,
    pub(crate) screen: mpsc::Sender<Vec<u8>>,
    pub(crate) keys: Mutex<Option<oneshot::Sender<Keys>>>,
}

impl TerminalHandle {
    /// Gives the client access to the running terminal. False if the client has disconnected.
    pub(crate) fn offer(&self, handle: SessionProcess, stdin: Option<ProcessInput>) -> bool {
        let keys = self.keys.lock().take();
        match (keys, stdin) {
            (Some(keys), Some(stdin)) => keys.send(Keys { handle, stdin }).is_ok(),
            (Some(_), None) | (None, _) => false,
        }
    }
}

/// Signals, resizes and writes to a running terminal.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) handle: SessionProcess,
    pub(crate) stdin: ProcessInput,
}

/// An event of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// The terminal has started.
    Begun,
    /// Buffered input was written.
    Read,
}

pub(crate) struct Keyboard {
    typed: Vec<u8>,
    /// The last window size that was set before the terminal started.
    size: Option<WindowSize>,
    handle: Option<SessionProcess>,
    state: State,
}

enum State {
    Awaited(oneshot::Receiver<Keys>),
    Free(ProcessInput),
    Writing(BoxFuture<'static, io::Result<ProcessInput>>),
    Gone,
}

impl Keyboard {
    pub(crate) fn new(keys: oneshot::Receiver<Keys>) -> Self {
        Keyboard { typed: Vec::new(), size: None, handle: None, state: State::Awaited(keys) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.typed.len() < MAX_BUFFERED
    }

    pub(crate) fn press(&mut self, bytes: &[u8]) {
        if !matches!(self.state, State::Gone) {
            self.typed.extend_from_slice(bytes);
        }
    }

    pub(crate) fn resize(&mut self, size: WindowSize) {
        match &self.handle {
            Some(handle) => handle.resize(size),
            None => self.size = Some(size),
        }
    }

    /// Writes the buffered input to the terminal. Cancel-safe: the next call continues a write that
    /// was interrupted.
    pub(crate) async fn advance(&mut self) -> Pressed {
        loop {
            match &mut self.state {
                State::Awaited(keys) => match keys.await {
                    Ok(Keys { handle, stdin }) => {
                        if let Some(size) = self.size.take() {
                            handle.resize(size);
                        }
                        self.handle = Some(handle);
                        self.state = State::Free(stdin);
                        return Pressed::Begun;
                    }
                    Err(_) => self.leave(),
                },
                State::Free(_) if self.typed.is_empty() => std::future::pending().await,
                State::Free(_) => self.write(),
                State::Writing(writing) => match writing.await {
                    Ok(stdin) => {
                        self.state = State::Free(stdin);
                        return Pressed::Read;
                    }
                    Err(_) => self.leave(),
                },
                State::Gone => std::future::pending().await,
            }
        }
    }

    fn write(&mut self) {
        if let State::Free(mut stdin) = std::mem::replace(&mut self.state, State::Gone) {
            let bytes = std::mem::take(&mut self.typed);
            self.state = State::Writing(Box::pin(async move {
                stdin.write(&bytes).await?;
                Ok(stdin)
            }));
        }
    }

    /// The terminal has ended: drops the buffer.
    fn leave(&mut self) {
        self.state = State::Gone;
        self.typed = Vec::new();
    }
}

impl std::fmt::Debug for Keyboard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Input may contain a password.
        formatter.debug_struct("Keyboard").field("waiting", &self.typed.len()).finish_non_exhaustive()
    }
}
