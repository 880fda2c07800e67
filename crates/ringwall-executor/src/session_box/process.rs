//! A process of a session box: its streams, its control and its outcome.
//!
//! The time limit is enforced here, on the box's clock: SIGTERM to all processes of the command's
//! session (`setsid`), [`GRACE`], SIGKILL. If the agent does not end the command then, the box is
//! killed. Dropping the running process kills it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::agent::frame::{Enabled, ProcessId, SignalTarget, ToAgent};
use ringwall_jail::plan::WindowSize;
use ringwall_jail::report::{Ending as JailEnding, Protection};
use rustix::process::Signal;
use tokio::sync::watch;

use super::state::{BoxState, Death, Exit, Progress, Shared};
use super::streams::{Buffer, ProcessInput, ProcessOutput};
use crate::error::Error;
use crate::running::{BoxControl, BoxExit, Ending, GRACE, Input, Output, RunningBox, Streams, Usage};

const KILLED: Ending = Ending::Signalled(Signal::KILL.as_raw());
/// Time limit between SIGKILL and the agent's report of the end. Only a broken agent takes longer.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Options of a session process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessOptions {
    /// A terminal of this size instead of the three streams.
    pub terminal: Option<WindowSize>,
    /// Descriptor 3 of the command is a socket to the server.
    pub channel: Enabled,
    /// A terminal is always an input.
    pub stdin: Enabled,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        ProcessOptions { terminal: None, channel: Enabled::No, stdin: Enabled::No }
    }
}

/// The server's ends of the streams. A dropped output is discarded and does not block the process.
#[derive(Debug)]
pub struct ProcessStreams {
    pub stdin: Option<ProcessInput>,
    pub stdout: ProcessOutput,
    /// `None` with a terminal, which has one output.
    pub stderr: Option<ProcessOutput>,
    pub channel: Option<(ProcessInput, ProcessOutput)>,
}

/// A started process of a session box. Dropping it kills the process.
#[derive(Debug)]
pub struct StartedProcess {
    pub process: SessionProcess,
    pub streams: ProcessStreams,
    /// It has no streams before [`into_running`](Self::into_running).
    pub running: RunningBox,
}

impl StartedProcess {
    /// The process with its streams, like a box of its own. Closes the channel.
    pub fn into_running(self) -> RunningBox {
        let Self { streams: ProcessStreams { stdin, stdout, stderr, .. }, mut running, .. } = self;
        let output = |output| Output::Stream(Box::new(output));
        running.streams = Streams {
            stdin: stdin.map(|stdin| Input::Stream(Box::new(stdin))),
            stdout: Some(output(stdout)),
            stderr: stderr.map(output),
        };
        running
    }
}

/// Kills the process when dropped, unless it has ended.
#[derive(Debug)]
pub(crate) struct ProcessGuard {
    process: SessionProcess,
    /// The buffers of all outputs.
    buffers: Vec<Arc<Buffer>>,
    /// By the box's clock.
    started_at: Duration,
    time_limit: Option<Duration>,
    /// OOM kills in the box before the process.
    oom_kills: u64,
}

/// Controls a session process from any task. After its end all calls are ignored.
#[derive(Debug, Clone)]
pub struct SessionProcess {
    shared: Arc<Shared>,
    id: ProcessId,
    progress: watch::Receiver<Progress>,
}

impl BoxControl for SessionProcess {
    /// Reaches the process group of the command.
    fn signal(&self, signal: Signal) {
        self.send(signal, SignalTarget::Group);
    }

    /// In the background, because a paused box has to be resumed first.
    fn kill(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let process = self.clone();
        runtime.spawn(async move { process.stop(Signal::KILL).await });
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Err(Error::PauseUnsupported { what: "a single process of a session's box" })).boxed()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Ok(())).boxed()
    }

    /// Reaches every process of the command's session (`setsid`), also those in other process groups.
    fn stop(&self, signal: Signal) -> BoxFuture<'_, ()> {
        async move {
            // The agent of a paused box receives nothing. The box is paused again when this is dropped.
            let _hold = self.shared.hold_running().await;
            self.send(signal, SignalTarget::Session);
            self.kill_after_grace().await;
        }
        .boxed()
    }
}

impl SessionProcess {
    pub(super) fn new(shared: Arc<Shared>, id: ProcessId, progress: watch::Receiver<Progress>) -> Self {
        SessionProcess { shared, id, progress }
    }

    pub(super) fn id(&self) -> ProcessId {
        self.id
    }

    pub(super) fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    pub fn resize(&self, size: WindowSize) {
        self.shared.send_urgent(&ToAgent::Resize { process: self.id, size });
    }

    /// Sends SIGINT to the command's process group, and after [`GRACE`] SIGKILL to its session. A
    /// caller that sees the command react drops the future.
    pub async fn interrupt(&self) {
        let _hold = self.shared.hold_running().await;
        self.signal(Signal::INT);
        self.kill_after_grace().await;
    }

    /// The running time of its box, without pauses.
    pub fn box_time(&self) -> Duration {
        self.shared.clock.now()
    }

    /// Returns after this much running time of the box.
    pub async fn passed(&self, time: Duration) {
        self.shared.until(self.box_time() + time).await;
    }

    /// Waits for the end of its command.
    pub async fn ended(&self) {
        let _ = self.progress.clone().wait_for(Progress::has_ended).await;
    }

    async fn kill_after_grace(&self) {
        self.reaches_within(Progress::has_ended, GRACE).await;
        self.send(Signal::KILL, SignalTarget::Session);
        if !self.reaches_within(Progress::has_ended, KILL_TIMEOUT).await {
            self.shared.kill_for("its agent could not end a command");
        }
        // Its output arrives before the box may be paused again.
        self.reaches_within(Progress::is_final, KILL_TIMEOUT).await;
    }

    fn send(&self, signal: Signal, target: SignalTarget) {
        self.shared.send_urgent(&ToAgent::Signal { process: self.id, number: signal.as_raw(), target });
    }

    /// Returns true if the state is reached within this running time of the box.
    async fn reaches_within(&self, is_reached: fn(&Progress) -> bool, timeout: Duration) -> bool {
        let mut progress = self.progress.clone();
        tokio::select! {
            biased;
            _ = progress.wait_for(is_reached) => true,
            () = self.shared.until(self.shared.clock.now() + timeout) => false,
        }
    }
}

impl ProcessGuard {
    pub(crate) fn new(
        process: SessionProcess,
        buffers: Vec<Arc<Buffer>>,
        time_limit: Option<Duration>,
        oom_kills: u64,
    ) -> Self {
        let started_at = process.box_time();
        ProcessGuard { process, buffers, started_at, time_limit, oom_kills }
    }

    /// The time limit is the command's own; starting it does not count.
    pub(crate) fn begin(mut self, streams: ProcessStreams, protections: Vec<Protection>) -> StartedProcess {
        self.started_at = self.process.shared.clock.now();
        let process = self.process.clone();
        let running = RunningBox {
            streams: Streams::default(),
            proxy_socket: None,
            protections,
            control: Arc::new(process.clone()),
            started_at: Instant::now(),
            time_limit: None,
            exit: self.follow().boxed(),
        };
        StartedProcess { process, streams, running }
    }

    /// Waits until the command has ended and its output was read or discarded.
    async fn follow(self) -> Result<BoxExit, Error> {
        let process = &self.process;
        let deadline = self.time_limit.map(|limit| self.started_at + limit);
        let mut progress = process.progress.clone();
        tokio::select! {
            biased;
            _ = progress.wait_for(Progress::has_ended) => {}
            never = process.enforce(deadline) => match never {},
        }
        let end = tokio::select! {
            biased;
            end = progress.wait_for(Progress::is_final) => end.map(|end| end.clone()),
            never = self.enforce_last_message() => match never {},
        };
        match end {
            Ok(Progress::Ended(exit)) => Ok(self.exit_of(exit, deadline).await),
            Ok(Progress::Lost(death)) => self.exit_with_box(&death, deadline),
            Ok(Progress::Requested | Progress::Started | Progress::NotStarted { .. } | Progress::Exited(_))
            | Err(_) => Err(no_result()),
        }
    }

    /// Kills the box if the agent does not report the end of a process whose output was read.
    async fn enforce_last_message(&self) -> Infallible {
        loop {
            let shared = &self.process.shared;
            shared.until(shared.clock.now() + KILL_TIMEOUT).await;
            if self.buffers.iter().all(|buffer| buffer.is_empty()) {
                shared.kill_for("its agent did not report the end of a command");
            }
        }
    }

    async fn exit_of(&self, exit: Exit, deadline: Option<Duration>) -> BoxExit {
        let ending = match exit.ending {
            _ if deadline.is_some_and(|deadline| exit.at >= deadline) => Ending::TimedOut,
            JailEnding::Exited(code) => Ending::Exited(code),
            JailEnding::Signalled(signal) => Ending::Signalled(signal),
            JailEnding::OverMemory => KILLED,
        };
        let control = &self.process.shared.control;
        let out_of_memory = match ending {
            KILLED => control.was_oom_killed_since(self.oom_kills).await,
            _ => control.oom_kills() > self.oom_kills,
        };
        self.exit(ending, out_of_memory, exit.at, usage(&exit))
    }

    /// The exit of a process that ended with its box.
    fn exit_with_box(&self, death: &Death, deadline: Option<Duration>) -> Result<BoxExit, Error> {
        let now = self.process.shared.clock.now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        match death {
            Death::OutOfMemory => Ok(self.exit(KILLED, true, now, Usage::default())),
            _ if is_late => Ok(self.exit(Ending::TimedOut, false, now, Usage::default())),
            Death::Stopped => Ok(self.exit(Ending::Stopped(Signal::KILL.as_raw()), false, now, Usage::default())),
            Death::Failed(_) => Err(death.to_error()),
        }
    }

    fn exit(&self, ending: Ending, out_of_memory: bool, at: Duration, usage: Usage) -> BoxExit {
        BoxExit { ending, duration: at.saturating_sub(self.started_at), out_of_memory, usage, steps: Vec::new() }
    }
}

impl SessionProcess {
    /// Stops the process at its deadline. Never returns: the caller waits for the end of the
    /// process.
    async fn enforce(&self, deadline: Option<Duration>) -> Infallible {
        match deadline {
            Some(deadline) => self.shared.until(deadline).await,
            None => std::future::pending().await,
        }
        self.stop(Signal::TERM).await;
        std::future::pending().await
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        if !self.process.progress.borrow().has_ended() {
            self.process.send(Signal::KILL, SignalTarget::Session);
        }
    }
}

impl Progress {
    /// True if the command has ended or never starts.
    fn has_ended(&self) -> bool {
        match self {
            Progress::Requested | Progress::Started => false,
            Progress::NotStarted { .. } | Progress::Exited(_) | Progress::Ended(_) | Progress::Lost(_) => true,
        }
    }

    /// True if no further message about it can come.
    fn is_final(&self) -> bool {
        self.has_ended() && !matches!(self, Progress::Exited(_))
    }
}

impl Shared {
    /// Waits until the box has run for this long. Never returns if the box dies before.
    async fn until(&self, deadline: Duration) {
        let mut state = self.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            let left = deadline.saturating_sub(self.clock.now());
            match now {
                BoxState::Dead(_) => std::future::pending().await,
                _ if left.is_zero() => return,
                BoxState::Starting | BoxState::Running => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    _ = state.changed() => {}
                },
                // The sender is `self`.
                BoxState::Paused => drop(state.changed().await),
            }
        }
    }
}

/// For a progress that ends without a result, which no message of the agent can cause.
pub(super) fn no_result() -> Error {
    Error::BoxDied { why: "it lost a command".to_owned() }
}

fn usage(exit: &Exit) -> Usage {
    Usage { cpu: Some(Duration::from_micros(exit.cpu_microseconds)), peak_memory_bytes: Some(exit.peak_memory_bytes) }
}
