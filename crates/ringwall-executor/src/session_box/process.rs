//! A process of a session box: its streams, its control and its outcome.
//!
//! The time limit is enforced here, on the box's clock: SIGTERM to the whole process session,
//! [`time_limit::GRACE`], SIGKILL. If the agent does not even do that, the box is ended. Dropping
//! the running process ends it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::agent::frame::{Enabled, InputStream, OutputStream, ProcessId, SignalTarget, ToAgent};
use ringwall_jail::plan::WindowSize;
use ringwall_jail::report::{Ending as JailEnding, Protection};
use rustix::process::Signal;
use tokio::sync::watch;

use super::input::ProcessInput;
use super::output::{Buffer, ProcessOutput};
use super::register::{Death, Exit, Life, Progress, Registered, Shared};
use crate::error::Error;
use crate::outcome::{Ending, Usage};
use crate::running::{BoxControl, BoxExit, GRACE, Input, Output, RunningBox, StartedParts, Streams};

const KILLED: Ending = Ending::Signalled(Signal::KILL.as_raw());
/// Time between SIGKILL and the end of the process. It needs none, so only a broken agent takes
/// longer.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// Options of a session process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessOptions {
    /// A terminal of this size instead of the three streams.
    pub terminal: Option<WindowSize>,
    pub channel: Channel,
    pub stdin: Enabled,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        ProcessOptions { terminal: None, channel: Channel::None, stdin: Enabled::No }
    }
}

/// Whether the command has descriptor 3, a socket to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    None,
    Open,
}

/// The outer ends of the streams. A dropped output is discarded and does not block the process.
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
    /// Without streams, see [`into_running`](Self::into_running).
    pub running: RunningBox,
}

impl StartedProcess {
    /// The process as any box. Its channel is closed.
    pub fn into_running(self) -> RunningBox {
        let Self { streams: ProcessStreams { stdin, stdout, stderr, .. }, mut running, .. } = self;
        let output = |output| Output::Stream(Box::new(output));
        running.put_streams(Streams {
            stdin: stdin.map(|stdin| Input::Stream(Box::new(stdin))),
            stdout: Some(output(stdout)),
            stderr: stderr.map(output),
        });
        running
    }
}

/// Kills the process when dropped, unless it is over.
#[derive(Debug)]
pub(crate) struct ProcessGuard {
    process: SessionProcess,
    /// The buffers of all outputs.
    buffers: Vec<Arc<Buffer>>,
    began: Duration,
    time_limit: Option<Duration>,
    memory_kills: u64,
}

/// Controls a session process from anywhere. After its end all calls are ignored.
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
            let _going_on = self.shared.stir().await;
            self.send(signal, SignalTarget::Session);
            self.insist().await;
        }
        .boxed()
    }
}

impl SessionProcess {
    pub fn resize(&self, size: WindowSize) {
        self.shared.order(&ToAgent::Resize { process: self.id, size });
    }

    /// Sends SIGINT to the command's process group and kills like [`stop`](BoxControl::stop) after
    /// a moment. A caller that sees the command obey drops the future.
    pub async fn interrupt(&self) {
        let _going_on = self.shared.stir().await;
        self.signal(Signal::INT);
        self.insist().await;
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
        let _ = self.progress.clone().wait_for(Progress::is_over).await;
    }

    async fn insist(&self) {
        self.reaches_within(Progress::is_over, GRACE).await;
        self.send(Signal::KILL, SignalTarget::Session);
        if !self.reaches_within(Progress::is_over, KILLED_WITHIN).await {
            self.shared.end_for(Death::Itself("its agent could not end a command".to_owned()));
        }
        // Its output is passed on before the box may be paused again.
        self.reaches_within(Progress::is_told, KILLED_WITHIN).await;
    }

    fn send(&self, signal: Signal, target: SignalTarget) {
        self.shared.order(&ToAgent::Signal { process: self.id, number: signal.as_raw(), target });
    }

    /// Returns true if the state is reached within this running time of the box.
    async fn reaches_within(&self, is_so: fn(&Progress) -> bool, timeout: Duration) -> bool {
        let mut progress = self.progress.clone();
        tokio::select! {
            biased;
            _ = progress.wait_for(is_so) => true,
            () = self.shared.until(self.shared.clock.now() + timeout) => false,
        }
    }
}

impl ProcessGuard {
    pub(crate) fn new(
        shared: Arc<Shared>,
        registered: Registered,
        time_limit: Option<Duration>,
        memory_kills: u64,
    ) -> (Self, ProcessStreams) {
        let Registered { id, stdout, stderr, stdin, channel, progress } = registered;
        let channels = channel.iter().map(|(_, buffer)| buffer);
        let buffers = std::iter::once(&stdout).chain(&stderr).chain(channels).cloned().collect();
        let output = |buffer, from| ProcessOutput::new(buffer, Arc::clone(&shared), id, from);
        let input = |window, to| ProcessInput::new(window, Arc::clone(&shared), id, to);
        let streams = ProcessStreams {
            stdin: stdin.map(|window| input(window, InputStream::Stdin)),
            stdout: output(stdout, OutputStream::Stdout),
            stderr: stderr.map(|buffer| output(buffer, OutputStream::Stderr)),
            channel: channel
                .map(|(window, buffer)| (input(window, InputStream::Channel), output(buffer, OutputStream::Channel))),
        };
        let began = shared.clock.now();
        let process = SessionProcess { shared, id, progress };
        (ProcessGuard { process, buffers, began, time_limit, memory_kills }, streams)
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.process.id
    }

    /// The time limit is the command's own; starting it does not count.
    pub(crate) fn begin(mut self, streams: ProcessStreams, protections: Vec<Protection>) -> StartedProcess {
        self.began = self.process.shared.clock.now();
        let process = self.process.clone();
        let running = RunningBox::new(StartedParts {
            streams: Streams::default(),
            proxy_socket: None,
            protections,
            control: Arc::new(process.clone()),
            started_at: Instant::now(),
            time_limit: None,
            exit: self.follow().boxed(),
        });
        StartedProcess { process, streams, running }
    }

    /// Waits until the command has ended and its output was read or discarded.
    async fn follow(self) -> Result<BoxExit, Error> {
        let process = &self.process;
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let mut progress = process.progress.clone();
        let over = tokio::select! {
            biased;
            over = progress.wait_for(Progress::is_over) => over.map(|over| over.clone()),
            never = process.keep_limit(deadline) => match never {},
        };
        let over = match over {
            Ok(Progress::Exited(_)) => tokio::select! {
                biased;
                over = progress.wait_for(|now| !matches!(now, Progress::Exited(_))) => over.map(|now| now.clone()),
                never = self.insist_on_end() => match never {},
            },
            over => over,
        };
        match over {
            Ok(Progress::Ended(exit)) => Ok(self.conclude(exit, deadline).await),
            Ok(Progress::Lost(death)) => self.mourn(&death, deadline),
            Ok(Progress::Asked | Progress::Started | Progress::NotStarted { .. } | Progress::Exited(_)) | Err(_) => {
                Err(Error::BoxDied { why: "it was forgotten".to_owned() })
            }
        }
    }

    /// Ends the box if the agent does not report the end of a process whose output is complete.
    async fn insist_on_end(&self) -> Infallible {
        loop {
            let shared = &self.process.shared;
            shared.until(shared.clock.now() + KILLED_WITHIN).await;
            if self.buffers.iter().all(|buffer| buffer.is_empty()) {
                shared.end_for(Death::Itself("its agent did not let go of a command".to_owned()));
            }
        }
    }

    async fn conclude(&self, exit: Exit, deadline: Option<Duration>) -> BoxExit {
        let ending = match exit.ending {
            _ if deadline.is_some_and(|deadline| exit.at >= deadline) => Ending::TimedOut,
            JailEnding::Exited(code) => Ending::Exited(code),
            JailEnding::Signalled(signal) => Ending::Signalled(signal),
            JailEnding::OverMemory => KILLED,
        };
        let control = &self.process.shared.control;
        let out_of_memory = match ending {
            KILLED => control.was_oom_killed_since(self.memory_kills).await,
            _ => control.oom_kills() > self.memory_kills,
        };
        self.exit(ending, out_of_memory, exit.at, usage(&exit))
    }

    /// The result of a process whose box has ended.
    fn mourn(&self, death: &Death, deadline: Option<Duration>) -> Result<BoxExit, Error> {
        let now = self.process.shared.clock.now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        match death {
            Death::OutOfMemory => Ok(self.exit(KILLED, true, now, Usage::default())),
            _ if is_late => Ok(self.exit(Ending::TimedOut, false, now, Usage::default())),
            Death::Ordered => Ok(self.exit(Ending::Stopped(Signal::KILL.as_raw()), false, now, Usage::default())),
            Death::Itself(_) => Err(death.to_error()),
        }
    }

    fn exit(&self, ending: Ending, out_of_memory: bool, at: Duration, usage: Usage) -> BoxExit {
        BoxExit { ending, duration: at.saturating_sub(self.began), out_of_memory, usage, steps: Vec::new() }
    }
}

impl SessionProcess {
    /// Stops the process at its deadline. Never returns: the caller waits for the end of the
    /// process.
    async fn keep_limit(&self, deadline: Option<Duration>) -> Infallible {
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
        if !self.process.progress.borrow().is_over() {
            self.process.send(Signal::KILL, SignalTarget::Session);
        }
    }
}

impl Progress {
    /// True if the command has ended.
    fn is_over(&self) -> bool {
        match self {
            Progress::Asked | Progress::Started => false,
            Progress::NotStarted { .. } | Progress::Exited(_) | Progress::Ended(_) | Progress::Lost(_) => true,
        }
    }

    /// True if no further message about it can come.
    fn is_told(&self) -> bool {
        match self {
            Progress::Asked | Progress::Started | Progress::Exited(_) => false,
            Progress::NotStarted { .. } | Progress::Ended(_) | Progress::Lost(_) => true,
        }
    }
}

impl Shared {
    /// Waits until the box has run for this long, or has ended.
    async fn until(&self, deadline: Duration) {
        let mut life = self.life.subscribe();
        loop {
            let now = life.borrow_and_update().clone();
            let left = deadline.saturating_sub(self.clock.now());
            match now {
                Life::Over(_) => std::future::pending().await,
                _ if left.is_zero() => return,
                Life::Waking | Life::AgentConnection => tokio::select! {
                    () = tokio::time::sleep(left) => {}
                    _ = life.changed() => {}
                },
                Life::Paused => {
                    if life.changed().await.is_err() {
                        std::future::pending().await
                    }
                }
            }
        }
    }
}

fn usage(exit: &Exit) -> Usage {
    Usage { cpu: Some(Duration::from_micros(exit.cpu_microseconds)), peak_memory_bytes: Some(exit.peak_memory_bytes) }
}
