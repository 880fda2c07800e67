//! The terminal of an exec, before and while a client uses it.

use std::sync::{Mutex, PoisonError};

use ringwall_executor::WindowSize;
use ringwall_executor::session_box::{SessionProcess, VisitInput};
use tokio::sync::{mpsc, oneshot};

use super::keyboard::Keys;

/// Where the exec finds whoever sits at its terminal.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) size: WindowSize,
    pub(crate) screen: mpsc::Sender<Vec<u8>>,
    pub(crate) keys: Mutex<Option<oneshot::Sender<Keys>>>,
}

impl Seat {
    /// Hands the running terminal over. False if nobody is there any more.
    pub(crate) fn offer(&self, handle: SessionProcess, stdin: Option<VisitInput>) -> bool {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (keys, stdin) {
            (Some(keys), Some(stdin)) => keys.send(Keys { handle, stdin }).is_ok(),
            (Some(_), None) | (None, _) => false,
        }
    }
}
