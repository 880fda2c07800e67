//! A started box, the same for every backend.
//!
//! A backend starts its box and returns a [`RunningBox`]: the command's streams, a [`BoxControl`] to signal it, and a future
//! that resolves when it has ended. The time limit, the grace period and the conversion to an [`Outcome`] are here and nowhere
//! else. A new backend is one folder; no `match` over backends exists outside of the functions that choose one.
//!
//! Dropping a `RunningBox` kills the box, because the exit future owns the backend's guard.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use ringwall_jail::plan::Owner;
use ringwall_jail::report::{Protection, StepTime};
use ringwall_policy::{Field, Grant, UNLIMITED};
use rustix::fs::{Gid, Uid};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::AsyncRead;

use crate::error::Error;

/// Time between the first signal and the kill.
pub const GRACE: Duration = Duration::from_secs(1);

pub struct RunningBox {
    /// Resolves when every process of the box is dead. Owns the guard that kills the box on drop. Dropped
    /// before the streams, so that a command is killed before it could see them closed.
    pub exit: BoxFuture<'static, Result<BoxExit, Error>>,
    /// Socket on which the box asks for outgoing connections; `None` without network access.
    pub proxy_socket: Option<OwnedFd>,
    pub streams: Streams,
    /// Each with its state. Known from the start, also for a command that turns out not to exist.
    pub protections: Vec<Protection>,
    pub control: Arc<dyn BoxControl>,
    /// When the command started. Making the box does not count against the time limit.
    pub started_at: Instant,
    /// `None` for session boxes, and for their processes, which keep their limit on the box's clock.
    pub time_limit: Option<Duration>,
}

/// The server's ends of the command's standard streams.
///
/// With a terminal, `stdin` and `stdout` are duplicates of its master and `stderr` is `None`.
#[derive(Debug, Default)]
pub struct Streams {
    pub stdin: Option<Input>,
    pub stdout: Option<Output>,
    pub stderr: Option<Output>,
}

pub enum Input {
    Pipe(OwnedFd),
    /// To a process of a session box, through the agent in that box.
    Stream(Box<dyn InputWriter>),
}

pub enum Output {
    /// EOF may never come: a box can pass the write end to another box of its project. After the box has ended, read the
    /// bytes that `FIONREAD` reports and stop.
    Pipe(OwnedFd),
    /// From a process of a session box. EOF follows the end of the process.
    Stream(Box<dyn AsyncRead + Send + Unpin>),
}

/// Input that is sent in messages. Dropping it closes the input.
pub trait InputWriter: Send {
    /// Writes as fast as the process reads. If the future is dropped, a part may have been written.
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> BoxFuture<'a, std::io::Result<()>>;
}

/// Controls a running box from any task. A box that has ended ignores all calls.
pub trait BoxControl: fmt::Debug + Send + Sync {
    /// Sends a signal to the command. Returns before it is delivered.
    fn signal(&self, signal: Signal);

    /// Kills every process, also of a paused box. Returns before they are dead; the exit future resolves when they are.
    fn kill(&self);

    /// Freezes every process until [`resume`](Self::resume). [`Error::PauseUnsupported`] if the backend cannot.
    fn pause(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Succeeds also if the box is not paused.
    fn resume(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// How often the kernel killed a process of the box for memory; 0 if the backend cannot tell.
    fn oom_kills(&self) -> u64 {
        0
    }

    /// True if [`oom_kills`](Self::oom_kills) is above `before`. A backend whose reports come late waits for them.
    fn was_oom_killed_since(&self, before: u64) -> BoxFuture<'_, bool> {
        Box::pin(std::future::ready(self.oom_kills() > before))
    }

    /// Sends `signal`, waits [`GRACE`] and kills; `Signal::KILL` kills at once. Drop the future when the box has ended.
    ///
    /// Only processes in a session box override this: they resume a paused box first, measure the grace period on the box's
    /// clock, which stands still during a pause, and end the whole box if the agent does not end the process.
    fn stop(&self, signal: Signal) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if signal != Signal::KILL {
                self.signal(signal);
                tokio::time::sleep(GRACE).await;
            }
            self.kill();
        })
    }
}

/// How a box ended, as its backend saw it.
#[derive(Debug)]
pub struct BoxExit {
    pub ending: Ending,
    /// From the start of the command to its end. Processes in a session box take it from the box's clock.
    pub duration: Duration,
    pub out_of_memory: bool,
    pub usage: Usage,
    pub steps: Vec<StepTime>,
}

impl From<Outcome> for BoxExit {
    fn from(outcome: Outcome) -> Self {
        let Outcome { ending, out_of_memory, duration, usage, steps, protections: _ } = outcome;
        Self { ending, duration, out_of_memory, usage, steps }
    }
}

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

impl RunningBox {
    /// The streams, once; a second call returns empty ones.
    pub fn take_streams(&mut self) -> Streams {
        std::mem::take(&mut self.streams)
    }

    pub fn control(&self) -> Arc<dyn BoxControl> {
        Arc::clone(&self.control)
    }

    /// Waits until every process of the box is dead, and enforces the time limit.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        self.streams.drop_unread();
        let Self { exit, control, started_at, time_limit, .. } = &mut self;
        let enforce = async {
            match time_limit {
                Some(limit) => tokio::time::sleep_until((*started_at + *limit).into()).await,
                None => std::future::pending().await,
            }
            control.stop(Signal::TERM).await;
        };
        let exit = tokio::select! {
            biased;
            exit = &mut *exit => exit?,
            () = enforce => exit.await?,
        };
        let timed_out = self.time_limit.is_some_and(|limit| exit.duration >= limit);
        Ok(Outcome {
            ending: if timed_out { Ending::TimedOut } else { exit.ending },
            out_of_memory: exit.out_of_memory,
            duration: exit.duration,
            usage: exit.usage,
            protections: self.protections,
            steps: exit.steps,
        })
    }
}

impl Streams {
    /// Makes three pipes and returns our ends and the command's. A box never gets a descriptor of the
    /// host's own streams. The pipes belong to the box's user, because programs reopen their streams by
    /// name (`> /dev/stderr`).
    pub(crate) fn pipes(owner: Owner) -> rustix::io::Result<(Self, [OwnedFd; 3])> {
        let make = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::fs::fchown(&read, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
            Ok((read, write))
        };
        let ((stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr)) = (make()?, make()?, make()?);
        Ok((Self::of_pipes(our_stdin, our_stdout, our_stderr), [stdin, stdout, stderr]))
    }

    pub(crate) fn of_pipes(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> Self {
        Self { stdin: Some(Input::Pipe(stdin)), stdout: Some(Output::Pipe(stdout)), stderr: Some(Output::Pipe(stderr)) }
    }

    pub(crate) fn of_terminal(master: OwnedFd) -> Self {
        let stdin = master.try_clone().ok().map(Input::Pipe);
        Self { stdin, stdout: Some(Output::Pipe(master)), stderr: None }
    }

    /// The pipes, if all three streams are pipes.
    pub fn into_pipes(self) -> Option<[OwnedFd; 3]> {
        match self {
            Self {
                stdin: Some(Input::Pipe(stdin)),
                stdout: Some(Output::Pipe(stdout)),
                stderr: Some(Output::Pipe(stderr)),
            } => Some([stdin, stdout, stderr]),
            _ => None,
        }
    }

    /// Closes the streams of a process in a session box: unread output would keep it from ending. Pipes stay open, because a
    /// command that writes to a closed one is ended by SIGPIPE.
    fn drop_unread(&mut self) {
        self.stdin.take_if(|input| matches!(input, Input::Stream(_)));
        for output in [&mut self.stdout, &mut self.stderr] {
            output.take_if(|output| matches!(output, Output::Stream(_)));
        }
    }
}

/// How long the grant lets its command run; `None` without a limit.
pub(crate) fn time_limit(grant: &Grant) -> Option<Duration> {
    let milliseconds = grant.effective().limits.get(Field::TimeoutMs);
    (milliseconds != UNLIMITED).then(|| Duration::from_millis(milliseconds))
}

impl fmt::Debug for RunningBox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RunningBox").field("control", &self.control).finish_non_exhaustive()
    }
}

impl fmt::Debug for Input {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Input")
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Output")
    }
}
