//! What PID 1 is told before it begins: the plan, and the descriptors that it cannot open itself.
//!
//! PID 1 is born before its plan is known, so everything reaches it by messages on its one socket. The socket
//! closing means that whoever asked for the box is gone, and then PID 1 goes too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol::plan::{Ahead, Completion, Plan};
use crate::protocol::report::{Failure, Protection, Step};
use crate::{protocol::wire, sys};

/// The descriptors of one message at most; the kernel passes 253.
const AT_ONCE: usize = 200;

/// Trees come first, in as many messages as they need, then the word to begin; and while PID 1 builds its root, the
/// limits. One that was made ahead gets the rest of its trees later, with its completion.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// As root, one tree per operation that has a source.
    Trees,
    /// Descriptors: the command's three streams unless it gets a terminal; and the plan, if it is too long to come with
    /// the message.
    Begin { plan: Option<Box<Plan>>, ahead: Option<Ahead> },
    /// The cgroups are ready. Descriptors: the doors through which PID 1 enters them (version 1), files that count, and
    /// last, where there is one, the counter of socket queues.
    Limits { doors: usize, has_socket_counter: bool, protections: Vec<Protection> },
    /// Descriptor: the completion, if it is too long to come with the message.
    Complete { completion: Option<Box<Completion>> },
}

/// The longest plan that goes into a message, which also has to hold the protections.
const SHORT: usize = 4096;

/// What PID 1 gets first.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) plan: Plan,
    pub(crate) ahead: Option<Ahead>,
    pub(crate) streams: Option<[OwnedFd; 3]>,
    pub(crate) trees: Vec<OwnedFd>,
}

/// What PID 1 gets when it has built its root.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) doors: Vec<OwnedFd>,
    pub(crate) counters: Vec<OwnedFd>,
    pub(crate) socket_counter: Option<OwnedFd>,
    pub(crate) protections: Vec<Protection>,
}

/// Tells PID 1 at the other end of the socket to begin.
pub fn send_plan(
    control: impl AsFd,
    plan: Plan,
    ahead: Option<Ahead>,
    streams: &[OwnedFd],
    trees: &[OwnedFd],
) -> Result<()> {
    send_trees(&control, trees)?;
    let packed = if wire::length(&plan)? > SHORT { Some(wire::pack(&plan)?) } else { None };
    let descriptors: Vec<BorrowedFd<'_>> = streams.iter().chain(&packed).map(AsFd::as_fd).collect();
    let plan = packed.is_none().then(|| Box::new(plan));
    wire::send(&control, &Message::Begin { plan, ahead }, &descriptors)
}

/// Tells one that was made ahead what it is for.
pub fn send_completion(control: impl AsFd, completion: Completion, trees: &[OwnedFd]) -> Result<()> {
    send_trees(&control, trees)?;
    let packed = if wire::length(&completion)? > SHORT { Some(wire::pack(&completion)?) } else { None };
    let descriptors: Vec<BorrowedFd<'_>> = packed.iter().map(AsFd::as_fd).collect();
    let completion = packed.is_none().then(|| Box::new(completion));
    wire::send(&control, &Message::Complete { completion }, &descriptors)
}

fn send_trees(control: impl AsFd, trees: &[OwnedFd]) -> Result<()> {
    for trees in trees.chunks(AT_ONCE) {
        let trees: Vec<BorrowedFd<'_>> = trees.iter().map(AsFd::as_fd).collect();
        wire::send(&control, &Message::Trees, &trees)?;
    }
    Ok(())
}

/// Tells it which cgroups are its own, and what is known of its limits.
pub fn send_limits(
    control: impl AsFd,
    doors: &[OwnedFd],
    counters: &[OwnedFd],
    socket_counter: Option<&OwnedFd>,
    protections: Vec<Protection>,
) -> Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> =
        doors.iter().chain(counters).chain(socket_counter).map(AsFd::as_fd).collect();
    let has_socket_counter = socket_counter.is_some();
    wire::send(&control, &Message::Limits { doors: doors.len(), has_socket_counter, protections }, &descriptors)
}

impl Start {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        let mut trees = Vec::new();
        loop {
            match receive(control) {
                (Message::Trees, some) => trees.extend(some),
                (Message::Begin { plan, ahead }, mut descriptors) => {
                    let unread = |errno| Failure::new(Step::ReadPlan, "", errno);
                    let plan = match plan {
                        Some(plan) => *plan,
                        None => wire::unpack(descriptors.pop().ok_or_else(disorder)?).map_err(unread)?,
                    };
                    let streams = <[OwnedFd; 3]>::try_from(descriptors).ok();
                    if plan.terminal.is_some() == streams.is_some() {
                        return Err(disorder());
                    }
                    return Ok(Start { plan, ahead, streams, trees });
                }
                (Message::Limits { .. } | Message::Complete { .. }, _) => return Err(disorder()),
            }
        }
    }
}

impl Limits {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        match receive(control) {
            (Message::Limits { doors, has_socket_counter, protections }, mut descriptors)
                if doors <= descriptors.len() =>
            {
                let mut counters = descriptors.split_off(doors);
                let socket_counter = if has_socket_counter { counters.pop() } else { None };
                Ok(Limits { doors: descriptors, counters, socket_counter, protections })
            }
            _ => Err(disorder()),
        }
    }
}

/// The completion, and its trees.
pub(crate) fn receive_completion(control: &OwnedFd) -> std::result::Result<(Completion, Vec<OwnedFd>), Failure> {
    let mut trees = Vec::new();
    loop {
        match receive(control) {
            (Message::Trees, some) => trees.extend(some),
            (Message::Complete { completion: Some(completion) }, _) => return Ok((*completion, trees)),
            (Message::Complete { completion: None }, mut descriptors) => {
                let unread = |errno| Failure::new(Step::ReadPlan, "", errno);
                let completion = wire::unpack(descriptors.pop().ok_or_else(disorder)?).map_err(unread)?;
                return Ok((completion, trees));
            }
            (Message::Begin { .. } | Message::Limits { .. }, _) => return Err(disorder()),
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
