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
    /// Descriptors: the command's three streams unless it gets a terminal; the doors through which PID 1 enters its
    /// cgroups (version 1); files that count; and the plan, if it is too long to come with the message.
    Begin { plan: Option<Box<Plan>>, doors: usize, counters: usize, protections: Vec<Protection> },
}

/// The longest plan that goes into a message, which also has to hold the protections.
const SHORT: usize = 4096;

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
    pub plan: Plan,
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
        let packed = if wire::length(&self.plan)? > SHORT { Some(wire::pack(&self.plan)?) } else { None };
        let descriptors = [self.streams, self.doors, self.counters].into_iter().flatten().chain(&packed);
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.map(AsFd::as_fd).collect();
        let begin = Message::Begin {
            plan: packed.is_none().then(|| Box::new(self.plan)),
            doors: self.doors.len(),
            counters: self.counters.len(),
            protections: self.protections,
        };
        wire::send(&control, &begin, &descriptors)
    }
}

impl Start {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        let mut trees = Vec::new();
        loop {
            match receive(control) {
                (Message::Trees, some) => trees.extend(some),
                (Message::Begin { plan, doors, counters, protections }, mut descriptors) => {
                    let unread = |errno| Failure::new(Step::ReadPlan, "", errno);
                    let plan = match plan {
                        Some(plan) => *plan,
                        None => wire::unpack(descriptors.pop().ok_or_else(disorder)?).map_err(unread)?,
                    };
                    if descriptors.len() < doors + counters {
                        return Err(disorder());
                    }
                    let counters = descriptors.split_off(descriptors.len() - counters);
                    let doors = descriptors.split_off(descriptors.len() - doors);
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
