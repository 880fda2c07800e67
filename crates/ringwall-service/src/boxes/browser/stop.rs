//! Cancels a browser action that its client has cancelled or whose browser slot is dismissed.
//!
//! Only work without side effects that would remain is cancelled. Opening and closing a browser
//! always run to completion, so that no process or file stays.

use std::sync::Arc;

use tokio::sync::watch;

use super::fault::Fault;
use super::slots::BrowserSlot;
use crate::error::Error;

const DISMISSED: &str = "the browser was ended meanwhile: its session was removed, or the server stops";
const TAKEN_BACK: &str = "it was taken back";

#[derive(Debug)]
pub(crate) struct Stop {
    slot: Arc<BrowserSlot>,
    unwanted: watch::Receiver<bool>,
}

impl Stop {
    pub(crate) fn new(slot: Arc<BrowserSlot>, unwanted: watch::Receiver<bool>) -> Self {
        Self { slot, unwanted }
    }

    /// Runs `work`, and drops it if the action is cancelled. A client that only disconnected has
    /// not cancelled it.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::select! {
            biased;
            () = self.slot.dismissed() => Err(Fault::failed(DISMISSED)),
            Ok(_) = self.unwanted.wait_for(|unwanted| *unwanted) => Err(Fault::failed(TAKEN_BACK)),
            done = work => done,
        }
    }

    /// Waits for the turn. Also stops if the client has disconnected.
    pub(crate) async fn unless_gone<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Error> {
        let why = tokio::select! {
            biased;
            () = self.slot.dismissed() => DISMISSED,
            _ = self.unwanted.wait_for(|unwanted| *unwanted) => TAKEN_BACK,
            turn = turn => return Ok(turn),
        };
        Err(Error::Conflict { message: why.to_owned() })
    }
}
