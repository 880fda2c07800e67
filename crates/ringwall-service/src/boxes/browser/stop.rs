//! Whether what is being done is still wanted: by whoever asked, and by the session.
//!
//! Only work that leaves nothing behind is broken off. A browser that is being opened or closed is seen through to its end, so
//! that none of it stays.

use std::sync::Arc;

use tokio::sync::watch;

use super::fault::Fault;
use super::seats::Seat;
use crate::error::Error;

const DISMISSED: &str = "the browser was ended meanwhile: its session was removed, or the server stops";
const TAKEN_BACK: &str = "it was taken back";

#[derive(Debug)]
pub(crate) struct Stop {
    seat: Arc<Seat>,
    unwanted: watch::Receiver<bool>,
}

impl Stop {
    pub(crate) fn new(seat: Arc<Seat>, unwanted: watch::Receiver<bool>) -> Self {
        Self { seat, unwanted }
    }

    /// Does this, or drops it where it is when it is not wanted any more. Whoever is gone without a word still wants it.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::select! {
            biased;
            () = self.seat.dismissed() => Err(Fault::failed(DISMISSED)),
            Ok(_) = self.unwanted.wait_for(|unwanted| *unwanted) => Err(Fault::failed(TAKEN_BACK)),
            done = work => done,
        }
    }

    /// Waits in line. Nobody waits there for somebody who is gone.
    pub(crate) async fn unless_gone<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Error> {
        let why = tokio::select! {
            biased;
            () = self.seat.dismissed() => DISMISSED,
            _ = self.unwanted.wait_for(|unwanted| *unwanted) => TAKEN_BACK,
            turn = turn => return Ok(turn),
        };
        Err(Error::Conflict { message: why.to_owned() })
    }
}
