//! The terminal of an exec, before and while a client uses it.

use parking_lot::Mutex;
use ringwall_executor::WindowSize;
use ringwall_executor::session_box::{ProcessInput, SessionProcess};
use tokio::sync::{mpsc, oneshot};

use super::keyboard::Keys;

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
