//! How a box ended and what it used.

use std::time::Duration;

use ringwall_jail::report::{Protection, StepTime};

/// Why a box ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Exited(i32),
    /// A signal ended the command.
    Signalled(i32),
    /// The time limit was reached.
    TimedOut,
    /// The executor's caller stopped the box with this signal.
    Stopped(i32),
    /// The box held too much of a counter that rootless boxes share with the server: epoll watches,
    /// or descriptors that were sent and not received.
    OverCounters,
}

#[derive(Debug, Clone)]
pub struct Outcome {
    pub ending: Ending,
    /// The box reached its memory limit and a process was killed for it.
    pub out_of_memory: bool,
    pub duration: Duration,
    pub usage: Usage,
    pub protections: Vec<Protection>,
    pub steps: Vec<StepTime>,
}

/// Resources used; unknown values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Option<Duration>,
    /// Peak of the whole box if a cgroup counted it, otherwise of its largest process.
    pub peak_memory_bytes: Option<u64>,
}

impl Outcome {
    /// The exit code as a shell reports it.
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
