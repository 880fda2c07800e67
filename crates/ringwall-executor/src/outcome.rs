//! How a box ended, and what it cost.

use std::time::Duration;

use ringwall_jail::report::{Protection, StepTime};

/// The one ending that every box has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    /// The command ended by a signal, its own or another's.
    Signalled(i32),
    /// The time limit was reached.
    TimedOut,
    /// Somebody outside ended it with this signal.
    Stopped(i32),
    /// It held too much of a counter that rootless boxes share with the server: epoll watches, or descriptors that
    /// were sent and not received.
    OverCounters,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub ending: Ending,
    /// The box reached its memory limit and something in it was killed for that.
    pub out_of_memory: bool,
    pub duration: Duration,
    pub usage: Usage,
    pub protections: Vec<Protection>,
    pub steps: Vec<StepTime>,
}

/// What is not known is not there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Option<Duration>,
    /// Of the whole box where a cgroup counted it, otherwise of its largest process.
    pub peak_memory_bytes: Option<u64>,
}

impl Outcome {
    /// The exit code that a shell would show.
    pub fn exit_code(&self) -> i32 {
        const SHELL_SIGNAL_BASE: i32 = 128;
        const TIMED_OUT: i32 = 124;
        const SIGKILL: i32 = 9;
        match self.ending {
            Ending::Exited(code) => code,
            Ending::Signalled(signal) | Ending::Stopped(signal) => signal.saturating_add(SHELL_SIGNAL_BASE),
            Ending::TimedOut => TIMED_OUT,
            Ending::OverCounters => SHELL_SIGNAL_BASE + SIGKILL,
        }
    }
}
