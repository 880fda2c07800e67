//! What the warden hands to PID 1, in this order.
//!
//! PID 1 is born before its plan is known, so everything reaches it by messages. The channel closing means that the
//! warden is gone, and then PID 1 goes too.

use std::os::fd::OwnedFd;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::report::{Protection, StepTime};
use crate::{sys, wire};

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Handover {
    /// Descriptors: the packed plan, and the command's three streams unless it gets a terminal.
    Plan,
    /// The id mapping is in force. Descriptors: as root, one tree per operation that has a source.
    Mapped,
    /// The cgroups are ready. Descriptors: the doors through which PID 1 enters them, then files that count.
    Limits { doors: usize, protections: Vec<Protection>, steps: Vec<StepTime> },
}

/// The next message; without a warden there is nothing left to live for.
pub(crate) fn receive<T: DeserializeOwned>(channel: &OwnedFd) -> (T, Vec<OwnedFd>) {
    match wire::receive(channel) {
        Ok(Some(message)) => message,
        _ => sys::exit_now(1),
    }
}
