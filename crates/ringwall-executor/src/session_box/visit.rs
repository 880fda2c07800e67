//! A command in a box that stays: its streams, orders to it, and its outcome.
//!
//! The time limit is kept here, by the box's clock: SIGTERM to the whole session, a moment to obey, SIGKILL; a box whose
//! agent does not even do that is ended. Dropping a visit ends it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use ringwall_jail::agent::frame::{Enabled, InputStream, OutputStream, ProcessId, SignalTarget, ToAgent};
use ringwall_jail::plan::WindowSize;
use ringwall_jail::report::{Ending as JailEnding, Protection};
use tokio::sync::watch;

use super::input::VisitInput;
use super::output::{Buffer, VisitOutput};
use super::register::{Death, Exit, Life, Progress, Registered, Shared};
use crate::error::Error;
use crate::outcome::{Ending, Outcome, Usage};
use crate::time_limit;

const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
/// How long a visit may live after everything in it was killed. It has no time to lose, so only an agent that does not
/// work any more takes so long.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// What a visit has beside its two outputs.
#[derive(Debug, Clone, Copy)]
pub struct VisitOptions {
    /// A terminal of its own, of this size, in place of the three streams.
    pub terminal: Option<WindowSize>,
    pub channel: Channel,
    pub stdin: Enabled,
}

impl Default for VisitOptions {
    fn default() -> Self {
        VisitOptions { terminal: None, channel: Channel::None, stdin: Enabled::No }
    }
}

/// Whether the command has descriptor 3, by which it talks with us beside its streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    None,
    Open,
}

/// The outer ends of a visit's streams. What is dropped is let go, and keeps the visit from nothing.
#[derive(Debug)]
pub struct VisitStreams {
    pub stdin: Option<VisitInput>,
    pub stdout: VisitOutput,
    /// Not with a terminal, which has one output.
    pub stderr: Option<VisitOutput>,
    pub channel: Option<(VisitInput, VisitOutput)>,
}

/// A started visit.
#[derive(Debug)]
pub struct RunningVisit {
    /// Taken by whoever moves the bytes.
    pub streams: Option<VisitStreams>,
    handle: VisitHandle,
    /// What waits to be read, whoever reads it.
    buffers: Vec<Arc<Buffer>>,
    began: Duration,
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
    memory_kills: u64,
}

/// Gives orders to a visit, from anywhere. One that is over ignores them.
#[derive(Debug, Clone)]
pub struct VisitHandle {
    shared: Arc<Shared>,
    id: ProcessId,
    progress: watch::Receiver<Progress>,
}

impl VisitHandle {
    /// Sends a signal to the command's process group.
    pub fn signal(&self, number: i32) {
        self.shared.order(&ToAgent::Signal { process: self.id, number, target: SignalTarget::Group });
    }

    /// Ends every process of the visit's session now.
    pub fn kill(&self) {
        self.signal_session(SIGKILL);
    }

    pub fn resize(&self, size: WindowSize) {
        self.shared.order(&ToAgent::Resize { process: self.id, size });
    }

    /// Asks all of the session with a signal, and after a moment insists. A box that stands still goes on for that.
    pub async fn stop(&self, signal: i32) {
        let _going_on = self.shared.stir().await;
        self.signal_session(signal);
        self.insist().await;
    }

    /// Asks the command as Ctrl-C does. Whoever sees that it obeyed, though it lives on, drops this: after a moment it insists
    /// as [`Self::stop`] does.
    pub async fn interrupt(&self) {
        let _going_on = self.shared.stir().await;
        self.signal(SIGINT);
        self.insist().await;
    }

    /// How much time its box has had, which stands still while the box does.
    pub fn box_time(&self) -> Duration {
        self.shared.clock.now()
    }

    /// Comes back when the box has had so much more time.
    pub async fn passed(&self, time: Duration) {
        self.shared.until(self.box_time() + time).await;
    }

    /// Waits until its command runs no more.
    pub async fn ended(&self) {
        let _ = self.progress.clone().wait_for(Progress::is_over).await;
    }

    async fn insist(&self) {
        self.reaches_within(Progress::is_over, time_limit::GRACE).await;
        self.kill();
        if !self.reaches_within(Progress::is_over, KILLED_WITHIN).await {
            self.shared.end_for(Death::Itself("its agent could not end a command".to_owned()));
        }
        // What it has printed is passed on before the box may stand still again.
        self.reaches_within(Progress::is_told, KILLED_WITHIN).await;
    }

    fn signal_session(&self, number: i32) {
        self.shared.order(&ToAgent::Signal { process: self.id, number, target: SignalTarget::Session });
    }

    /// Whether it is so before the box has had so much time.
    async fn reaches_within(&self, is_so: fn(&Progress) -> bool, patience: Duration) -> bool {
        let mut progress = self.progress.clone();
        tokio::select! {
            biased;
            _ = progress.wait_for(is_so) => true,
            () = self.shared.until(self.shared.clock.now() + patience) => false,
        }
    }
}

impl RunningVisit {
    pub(crate) fn new(
        shared: Arc<Shared>,
        registered: Registered,
        protections: Vec<Protection>,
        time_limit: Option<Duration>,
        memory_kills: u64,
    ) -> Self {
        let Registered { id, stdout, stderr, stdin, channel, progress } = registered;
        let channels = channel.iter().map(|(_, buffer)| buffer);
        let buffers = std::iter::once(&stdout).chain(&stderr).chain(channels).cloned().collect();
        let output = |buffer, from| VisitOutput::new(buffer, Arc::clone(&shared), id, from);
        let input = |window, to| VisitInput::new(window, Arc::clone(&shared), id, to);
        let streams = VisitStreams {
            stdin: stdin.map(|window| input(window, InputStream::Stdin)),
            stdout: output(stdout, OutputStream::Stdout),
            stderr: stderr.map(|buffer| output(buffer, OutputStream::Stderr)),
            channel: channel
                .map(|(window, buffer)| (input(window, InputStream::Channel), output(buffer, OutputStream::Channel))),
        };
        let began = shared.clock.now();
        RunningVisit {
            streams: Some(streams),
            handle: VisitHandle { shared, id, progress },
            buffers,
            began,
            time_limit,
            protections,
            memory_kills,
        }
    }

    pub(crate) fn id(&self) -> ProcessId {
        self.handle.id
    }

    /// The time limit is the command's own; starting it does not count.
    pub(crate) fn begin(&mut self) {
        self.began = self.handle.shared.clock.now();
    }

    pub fn handle(&self) -> VisitHandle {
        self.handle.clone()
    }

    /// What holds in the box.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// Waits until the command has ended and all that it printed was read by whoever took its streams.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        // What nobody took nobody reads.
        self.streams = None;
        let handle = self.handle();
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let mut progress = handle.progress.clone();
        let over = tokio::select! {
            biased;
            over = progress.wait_for(Progress::is_over) => over.map(|over| over.clone()),
            never = handle.keep_limit(deadline) => match never {},
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

    /// An agent whose visit is over, and of whose output nothing is left to be read, has a moment to say so.
    async fn insist_on_end(&self) -> Infallible {
        loop {
            let shared = &self.handle.shared;
            shared.until(shared.clock.now() + KILLED_WITHIN).await;
            if self.buffers.iter().all(|buffer| buffer.is_empty()) {
                shared.end_for(Death::Itself("its agent did not let go of a command".to_owned()));
            }
        }
    }

    async fn conclude(&mut self, exit: Exit, deadline: Option<Duration>) -> Outcome {
        let ending = match exit.ending {
            _ if deadline.is_some_and(|deadline| exit.at >= deadline) => Ending::TimedOut,
            JailEnding::Exited(code) => Ending::Exited(code),
            JailEnding::Signalled(signal) => Ending::Signalled(signal),
            JailEnding::OverMemory => Ending::Signalled(SIGKILL),
        };
        let reins = &self.handle.shared.reins;
        let out_of_memory = match ending {
            Ending::Signalled(SIGKILL) => reins.has_killed_since(self.memory_kills).await,
            _ => reins.memory_kills() > self.memory_kills,
        };
        self.outcome(ending, out_of_memory, exit.at, usage(&exit))
    }

    /// The box is gone, and the visit with it.
    fn mourn(&mut self, death: &Death, deadline: Option<Duration>) -> Result<Outcome, Error> {
        let now = self.handle.shared.clock.now();
        let is_late = deadline.is_some_and(|deadline| now >= deadline);
        match death {
            Death::OutOfMemory => Ok(self.outcome(Ending::Signalled(SIGKILL), true, now, Usage::default())),
            _ if is_late => Ok(self.outcome(Ending::TimedOut, false, now, Usage::default())),
            Death::Ordered => Ok(self.outcome(Ending::Stopped(SIGKILL), false, now, Usage::default())),
            Death::Itself(_) => Err(death.to_error()),
        }
    }

    fn outcome(&mut self, ending: Ending, out_of_memory: bool, at: Duration, usage: Usage) -> Outcome {
        Outcome {
            ending,
            out_of_memory,
            duration: at.saturating_sub(self.began),
            usage,
            protections: std::mem::take(&mut self.protections),
            steps: Vec::new(),
        }
    }
}

impl VisitHandle {
    /// Stops the visit at its deadline. Never comes back: whoever waits for the visit sees its end.
    async fn keep_limit(&self, deadline: Option<Duration>) -> Infallible {
        match deadline {
            Some(deadline) => self.shared.until(deadline).await,
            None => std::future::pending().await,
        }
        self.stop(SIGTERM).await;
        std::future::pending().await
    }
}

impl Drop for RunningVisit {
    fn drop(&mut self) {
        if !self.handle.progress.borrow().is_over() {
            self.handle.kill();
        }
    }
}

impl Progress {
    /// Whether the command runs no more.
    fn is_over(&self) -> bool {
        match self {
            Progress::Asked | Progress::Started => false,
            Progress::NotStarted { .. } | Progress::Exited(_) | Progress::Ended(_) | Progress::Lost(_) => true,
        }
    }

    /// Whether nothing more comes of it.
    fn is_told(&self) -> bool {
        match self {
            Progress::Asked | Progress::Started | Progress::Exited(_) => false,
            Progress::NotStarted { .. } | Progress::Ended(_) | Progress::Lost(_) => true,
        }
    }
}

impl Shared {
    /// Waits until the box has had so much time. One that is gone gets no more.
    async fn until(&self, deadline: Duration) {
        let mut life = self.life.subscribe();
        loop {
            let now = life.borrow_and_update().clone();
            let left = deadline.saturating_sub(self.clock.now());
            match now {
                Life::Over(_) => std::future::pending().await,
                _ if left.is_zero() => return,
                Life::Waking | Life::Awake => tokio::select! {
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
