//! What PID 1 is told before it begins: the plan, and the descriptors that it cannot open itself.
//!
//! PID 1 is born before its plan is known, so everything reaches it by messages on its one socket. The socket
//! closing means that whoever asked for the box is gone, and then PID 1 goes too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::report::{Failure, Protection, Step};
use crate::{sys, wire};

/// The descriptors of one message at most; the kernel passes 253.
const AT_ONCE: usize = 200;

/// Descriptors come first, in as many messages as they need, then the word to begin.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// As root, one tree per operation that has a source.
    Trees,
    /// Descriptors: the packed plan; the command's three streams unless it gets a terminal; the doors through which
    /// PID 1 enters its cgroups (version 1); files that count.
    Begin { doors: usize, counters: usize, protections: Vec<Protection> },
}

/// Everything that PID 1 gets.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) plan: Plan,
    pub(crate) streams: Option<[OwnedFd; 3]>,
    pub(crate) trees: Vec<OwnedFd>,
    pub(crate) doors: Vec<OwnedFd>,
    pub(crate) counters: Vec<OwnedFd>,
    pub(crate) protections: Vec<Protection>,
}

/// The same, as the executor holds it.
#[derive(Debug)]
pub struct Handover<'a> {
    /// From [`wire::pack`].
    pub plan: &'a OwnedFd,
    pub streams: &'a [OwnedFd],
    pub trees: &'a [OwnedFd],
    pub doors: &'a [OwnedFd],
    pub counters: &'a [OwnedFd],
    pub protections: Vec<Protection>,
}

impl Handover<'_> {
    /// Tells PID 1 at the other end of the socket to begin.
    pub fn send(self, control: impl AsFd) -> Result<()> {
        for trees in self.trees.chunks(AT_ONCE) {
            let trees: Vec<BorrowedFd<'_>> = trees.iter().map(AsFd::as_fd).collect();
            wire::send(&control, &Message::Trees, &trees)?;
        }
        let mut descriptors = vec![self.plan.as_fd()];
        for some in [self.streams, self.doors, self.counters] {
            descriptors.extend(some.iter().map(AsFd::as_fd));
        }
        let begin =
            Message::Begin { doors: self.doors.len(), counters: self.counters.len(), protections: self.protections };
        wire::send(&control, &begin, &descriptors)
    }
}

impl Start {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        let mut trees = Vec::new();
        loop {
            match receive(control) {
                (Message::Trees, some) => trees.extend(some),
                (Message::Begin { doors, counters, protections }, mut descriptors) => {
                    if descriptors.len() < 1 + doors + counters {
                        return Err(disorder());
                    }
                    let counters = descriptors.split_off(descriptors.len() - counters);
                    let doors = descriptors.split_off(descriptors.len() - doors);
                    let packed = descriptors.remove(0);
                    let plan: Plan = wire::unpack(packed).map_err(|errno| Failure::new(Step::ReadPlan, "", errno))?;
                    let streams = <[OwnedFd; 3]>::try_from(descriptors).ok();
                    if plan.terminal.is_some() == streams.is_some() {
                        return Err(disorder());
                    }
                    return Ok(Start { plan, streams, trees, doors, counters, protections });
                }
            }
        }
    }
}

/// The next message; with nobody at the other end there is nothing left to live for.
pub(crate) fn receive<T: DeserializeOwned>(control: &OwnedFd) -> (T, Vec<OwnedFd>) {
    match wire::receive(control) {
        Ok(Some(message)) => message,
        Ok(None) | Err(_) => sys::exit_now(1),
    }
}

/// The executor and PID 1 are one program, so this is a fault of ours; it ends the box like any other.
fn disorder() -> Failure {
    Failure::plain(Step::ReadPlan, "(PID 1 was handed something else than it expected)")
}
