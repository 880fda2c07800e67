//! What is typed at a terminal, on its way there: so much waits at most, for as long as nobody reads it.

use std::io;

use futures::future::BoxFuture;
use ringwall_executor::WindowSize;
use ringwall_executor::session_box::{SessionProcess, VisitInput};
use tokio::sync::oneshot;

/// More is not taken before some of it was read.
const MAX_COUNT: usize = 256 << 10;

/// By what a running terminal is reached.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) handle: SessionProcess,
    pub(crate) stdin: VisitInput,
}

/// What has happened at a keyboard.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// The terminal is there.
    Begun,
    /// Something was read.
    Read,
}

pub(crate) struct Keyboard {
    typed: Vec<u8>,
    /// The window's last size, if it has changed before the terminal was there.
    size: Option<WindowSize>,
    handle: Option<SessionProcess>,
    state: State,
}

enum State {
    Awaited(oneshot::Receiver<Keys>),
    Free(VisitInput),
    Writing(BoxFuture<'static, io::Result<VisitInput>>),
    Gone,
}

impl Keyboard {
    pub(crate) fn new(keys: oneshot::Receiver<Keys>) -> Self {
        Keyboard { typed: Vec::new(), size: None, handle: None, state: State::Awaited(keys) }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.typed.len() < MAX_COUNT
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

    /// Brings what was typed to the terminal. Given up halfway it goes on with the next call.
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

    /// Nobody reads any more, so nothing waits to be read.
    fn leave(&mut self) {
        self.state = State::Gone;
        self.typed = Vec::new();
    }
}

impl std::fmt::Debug for Keyboard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is typed may be a password.
        formatter.debug_struct("Keyboard").field("waiting", &self.typed.len()).finish_non_exhaustive()
    }
}
