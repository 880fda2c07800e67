//! Messages by which PID 1 gets its plan and the descriptors that it cannot open itself.
//!
//! PID 1 is cloned before its plan is known. If its control socket closes, the executor is gone and
//! PID 1 exits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::protocol::plan::{Completion, Plan, WarmKind};
use crate::protocol::report::{Failure, Protection, Step};
use crate::{protocol::wire, sys};

/// Descriptors per message; the kernel allows 253.
const MAX_DESCRIPTORS: usize = 200;

/// Order: trees (in as many messages as needed), `Begin`, and while PID 1 builds its root,
/// `Limits`. A warm box later gets further trees and `Complete`.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// Descriptors as root: one tree per operation that has a source.
    Trees,
    /// Descriptors: the command's three streams, unless it gets a terminal; then the plan, if it is
    /// too long for the message.
    Begin { plan: Option<Box<Plan>>, warm: Option<WarmKind> },
    /// The cgroups are ready. Descriptors: the v1 tasks files by which PID 1 joins them
    /// (`tasks_files`), counter files, and last the counter of socket memory, if there is one.
    Limits { tasks_files: usize, has_socket_counter: bool, protections: Vec<Protection> },
    /// Descriptor: the completion, if it is too long for the message.
    Complete { completion: Option<Box<Completion>> },
}

/// Longest plan (encoded) that is sent in a message, with room left for the rest of the message.
const MAX_INLINE_PLAN: usize = 4096;

/// The first messages to PID 1.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) plan: Plan,
    pub(crate) warm: Option<WarmKind>,
    pub(crate) streams: Option<[OwnedFd; 3]>,
    pub(crate) trees: Vec<OwnedFd>,
}

/// The message that PID 1 receives while it builds its root.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) tasks_files: Vec<OwnedFd>,
    pub(crate) counters: Vec<OwnedFd>,
    pub(crate) socket_counter: Option<OwnedFd>,
    pub(crate) protections: Vec<Protection>,
}

/// Sends the plan to PID 1, which then builds the box.
pub fn send_plan(
    control: impl AsFd,
    plan: Plan,
    warm: Option<WarmKind>,
    streams: &[OwnedFd],
    trees: &[OwnedFd],
) -> Result<()> {
    send_trees(&control, trees)?;
    let packed = if wire::length(&plan)? > MAX_INLINE_PLAN { Some(wire::pack(&plan)?) } else { None };
    let descriptors: Vec<BorrowedFd<'_>> = streams.iter().chain(&packed).map(AsFd::as_fd).collect();
    let plan = packed.is_none().then(|| Box::new(plan));
    wire::send(&control, &Message::Begin { plan, warm }, &descriptors)
}

/// Sends command and files to a warm box.
pub fn send_completion(control: impl AsFd, completion: Completion, trees: &[OwnedFd]) -> Result<()> {
    send_trees(&control, trees)?;
    let packed = if wire::length(&completion)? > MAX_INLINE_PLAN { Some(wire::pack(&completion)?) } else { None };
    let descriptors: Vec<BorrowedFd<'_>> = packed.iter().map(AsFd::as_fd).collect();
    let completion = packed.is_none().then(|| Box::new(completion));
    wire::send(&control, &Message::Complete { completion }, &descriptors)
}

fn send_trees(control: impl AsFd, trees: &[OwnedFd]) -> Result<()> {
    for trees in trees.chunks(MAX_DESCRIPTORS) {
        let trees: Vec<BorrowedFd<'_>> = trees.iter().map(AsFd::as_fd).collect();
        wire::send(&control, &Message::Trees, &trees)?;
    }
    Ok(())
}

/// Sends the cgroups, and the protections that are known so far.
pub fn send_limits(
    control: impl AsFd,
    tasks_files: &[OwnedFd],
    counters: &[OwnedFd],
    socket_counter: Option<&OwnedFd>,
    protections: Vec<Protection>,
) -> Result<()> {
    let descriptors: Vec<BorrowedFd<'_>> =
        tasks_files.iter().chain(counters).chain(socket_counter).map(AsFd::as_fd).collect();
    let has_socket_counter = socket_counter.is_some();
    wire::send(
        &control,
        &Message::Limits { tasks_files: tasks_files.len(), has_socket_counter, protections },
        &descriptors,
    )
}

impl Start {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        let mut trees = Vec::new();
        loop {
            match receive(control) {
                (Message::Trees, some) => trees.extend(some),
                (Message::Begin { plan, warm }, mut descriptors) => {
                    let unread = |errno| Failure::new(Step::ReadPlan, "", errno);
                    let plan = match plan {
                        Some(plan) => *plan,
                        None => wire::unpack(descriptors.pop().ok_or_else(unexpected_message)?).map_err(unread)?,
                    };
                    let streams = <[OwnedFd; 3]>::try_from(descriptors).ok();
                    if plan.terminal.is_some() == streams.is_some() {
                        return Err(unexpected_message());
                    }
                    return Ok(Start { plan, warm, streams, trees });
                }
                (Message::Limits { .. } | Message::Complete { .. }, _) => return Err(unexpected_message()),
            }
        }
    }
}

impl Limits {
    pub(crate) fn receive(control: &OwnedFd) -> std::result::Result<Self, Failure> {
        match receive(control) {
            (Message::Limits { tasks_files, has_socket_counter, protections }, mut descriptors)
                if tasks_files <= descriptors.len() =>
            {
                let mut counters = descriptors.split_off(tasks_files);
                let socket_counter = if has_socket_counter { counters.pop() } else { None };
                Ok(Limits { tasks_files: descriptors, counters, socket_counter, protections })
            }
            _ => Err(unexpected_message()),
        }
    }
}

/// Returns the completion and its trees.
pub(crate) fn receive_completion(control: &OwnedFd) -> std::result::Result<(Completion, Vec<OwnedFd>), Failure> {
    let mut trees = Vec::new();
    loop {
        match receive(control) {
            (Message::Trees, some) => trees.extend(some),
            (Message::Complete { completion: Some(completion) }, _) => return Ok((*completion, trees)),
            (Message::Complete { completion: None }, mut descriptors) => {
                let unread = |errno| Failure::new(Step::ReadPlan, "", errno);
                let completion = wire::unpack(descriptors.pop().ok_or_else(unexpected_message)?).map_err(unread)?;
                return Ok((completion, trees));
            }
            (Message::Begin { .. } | Message::Limits { .. }, _) => return Err(unexpected_message()),
        }
    }
}

/// Receives the next message; exits if the executor has closed the socket or the message is
/// malformed.
pub(crate) fn receive<T: DeserializeOwned>(control: &OwnedFd) -> (T, Vec<OwnedFd>) {
    match wire::receive(control) {
        Ok(Some(message)) => message,
        Ok(None) | Err(_) => sys::exit_now(1),
    }
}

/// Both sides are the same build, so this is an internal error.
fn unexpected_message() -> Failure {
    Failure::plain(Step::ReadPlan, "(PID 1 received an unexpected message)")
}
