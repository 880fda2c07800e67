//! Records how long each step of making a box takes, and stops at a step if a crash test asks for
//! it.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::time::{ClockId, Timespec};

use crate::protocol::report::{Failure, Report, Step, StepTime};
use crate::protocol::wire;

#[derive(Debug)]
pub(crate) struct Progress {
    /// Start of the current step.
    since: Timespec,
    done: Vec<StepTime>,
    hold_at: Option<Step>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress { since: now(), done: Vec::with_capacity(Step::ALL.len()), hold_at: None }
    }

    pub(crate) fn hold_at(&mut self, step: Option<Step>) {
        self.hold_at = step;
    }

    /// Records a step as done. If the plan holds the box at this step, it is not continued.
    pub(crate) fn done(&mut self, step: Step, control: &OwnedFd) -> Result<(), Failure> {
        let now = now();
        let microseconds = (now.tv_sec - self.since.tv_sec) * 1_000_000 + (now.tv_nsec - self.since.tv_nsec) / 1_000;
        self.since = now;
        self.done.push(StepTime { step, microseconds: u32::try_from(microseconds).unwrap_or(u32::MAX) });
        self.hold_if_at(step, control)
    }

    pub(crate) fn hold_if_at(&self, step: Step, control: &OwnedFd) -> Result<(), Failure> {
        if self.hold_at != Some(step) {
            return Ok(());
        }
        let _ = wire::send(control, &Report::Holding(step), &[]);
        // Readable when the executor closes its end (or sends its next message).
        let _ = rustix::event::poll(&mut [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)], None);
        Err(Failure::plain(step, "(held at this step)"))
    }

    pub(crate) fn into_times(self) -> Vec<StepTime> {
        self.done
    }
}

fn now() -> Timespec {
    rustix::time::clock_gettime(ClockId::Monotonic)
}
