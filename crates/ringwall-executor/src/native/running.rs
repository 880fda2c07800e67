//! A box while it runs: orders go in, reports come out, and its end is waited for to the last process.
//!
//! The time limit is kept here, on the monotonic clock: SIGTERM, a moment to obey, then the end. Dropping a
//! running box ends it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ringwall_jail::report::{ControlMessage, Ending as JailEnding, Protection, Report, StepTime};
use ringwall_jail::wire;
use rustix::net::Shutdown;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::net::UnixStream;

use crate::cgroup::cache::ShelvedGroups;
use crate::cgroup::freezer::Freezer;
use crate::counters::Watched;
use crate::error::Error;
use crate::outcome::{Ending, Outcome, Usage};
use crate::pidfd::{ended, process_id};
use crate::process::receive;
use crate::process::spawner::Parent;
use crate::running::Streams;
use crate::time_limit;
use crate::uids::Lease;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A started box.
#[derive(Debug)]
pub struct Running {
    /// Taken by whoever moves the bytes.
    pub streams: Option<Streams>,
    /// The socket at which the box asks for connections, where its grant has a network. Taken by whoever answers.
    pub way_out: Option<OwnedFd>,
    handle: Handle,
    began: Instant,
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
    steps: Vec<StepTime>,
    groups: ShelvedGroups,
    /// Whoever bore it, where that is a spawner.
    parent: Option<Parent>,
    /// The user that it is on the host, where another one will be that after it.
    pub(crate) lease: Option<Lease>,
    /// Rootless: what ends it when it takes too much of a counter that all boxes share.
    pub(crate) watched: Option<Arc<Watched>>,
}

/// Gives orders to a running box, from anywhere.
#[derive(Debug, Clone)]
pub struct Handle {
    control: Arc<UnixStream>,
    init: Arc<OnceLock<OwnedFd>>,
}

impl Handle {
    /// Sends a signal to every process in the box. A box that has ended ignores it.
    pub fn signal(&self, number: i32) {
        let _ = wire::send(self.control.as_ref(), &ControlMessage::Signal(number), &[]);
    }

    /// Ends the box now: without its PID 1 no process of it lives.
    pub fn kill(&self) {
        if let Some(init) = self.init.get() {
            let _ = pidfd_send_signal(init, Signal::KILL);
        }
    }

    /// Asks with a signal, and after a moment insists.
    pub async fn stop(&self, signal: i32) {
        self.signal(signal);
        tokio::time::sleep(time_limit::GRACE).await;
        self.kill();
    }
}

impl Running {
    pub(crate) fn new(
        control: UnixStream,
        time_limit: Option<Duration>,
        groups: ShelvedGroups,
        steps: Vec<StepTime>,
        parent: Option<Parent>,
    ) -> Self {
        Running {
            streams: None,
            way_out: None,
            handle: Handle { control: Arc::new(control), init: Arc::default() },
            began: Instant::now(),
            time_limit,
            protections: Vec::new(),
            steps,
            groups,
            parent,
            lease: None,
            watched: None,
        }
    }

    /// Of one that was made ahead and now begins: what it is to be.
    pub(crate) fn commission(&mut self, time_limit: Option<Duration>) {
        self.time_limit = time_limit;
        self.steps.clear();
    }

    /// A handle to its PID 1.
    pub(crate) fn introduce(&self, init: OwnedFd) {
        let _ = self.handle.init.set(init);
    }

    /// The same as whoever keeps it gets to see it.
    pub(crate) fn init(&self) -> Arc<OnceLock<OwnedFd>> {
        Arc::clone(&self.handle.init)
    }

    pub(crate) fn parent(&self) -> Option<&Parent> {
        self.parent.as_ref()
    }

    pub(crate) fn control(&self) -> &UnixStream {
        &self.handle.control
    }

    pub(crate) fn started(&mut self, protections: Vec<Protection>, steps: Vec<StepTime>, init: Option<OwnedFd>) {
        if let Some(init) = init {
            self.introduce(init);
        }
        self.protections = protections;
        self.steps.extend(steps);
        self.steps.sort_by_key(|step| step.step);
        // The time limit is the command's own; making the box does not count.
        self.began = Instant::now();
    }

    /// By what the whole box is held still, and what counts its memory, for whoever keeps it for long.
    pub(crate) fn freezer(&self) -> Option<Freezer> {
        self.groups.freezer()
    }

    pub(crate) fn copy_counters(&self) -> Vec<OwnedFd> {
        self.groups.copy_counters()
    }

    /// Waits for the end of a box that was told to stop half-made.
    pub(crate) async fn hold(&self) {
        while let Ok(Some(_)) = receive::<Report>(self.control()).await {}
    }

    /// Gives up a box that is not up. When this returns, its command has not begun and never will, or is over: with the
    /// socket closed PID 1 cannot say that it starts the command, and without having said so it does not. If it has said
    /// so before, that lies here to be read, with a handle to end it by.
    pub(crate) async fn give_up(&mut self) {
        let _ = rustix::net::shutdown(self.control(), Shutdown::Both);
        while let Ok(Some((report, descriptors))) = wire::receive(self.control()) {
            if let Report::Started { protections, steps } = report {
                self.started(protections, steps, descriptors.into_iter().next());
                self.end().await;
            }
        }
        self.clean_up().await;
    }

    /// Kills the box and waits until no process of it is left.
    pub(crate) async fn end(&self) {
        self.handle.kill();
        self.gone().await;
    }

    /// Waits until no process of the box is left. Its socket does not tell: a killed PID 1 closes that before the kernel
    /// has ended the others. Its handle does: the kernel says that PID 1 is over when all of its namespace are.
    async fn gone(&self) {
        if let Some(init) = self.handle.init.get() {
            ended(init).await;
        }
    }

    /// Does what a spawner that was killed could not do any more.
    pub(crate) async fn clean_up(&mut self) {
        self.groups.remove().await;
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// What holds in the box. Known from its start, also of one whose command then turns out not to exist.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// The process id of PID 1 on this side, for measuring it.
    pub fn init_pid(&self) -> Option<u32> {
        self.handle.init.get().and_then(process_id)
    }

    /// Waits until the command has ended and every process of the box but PID 1 is gone. The kernel takes the rest
    /// apart while the answer is on its way; dropping the executor waits for that too.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        let handle = self.handle();
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let limit = time_limit::keep(deadline, handle.stop(SIGTERM));
        tokio::pin!(limit);
        let (ending, usage, oom_kills) = loop {
            let report = tokio::select! {
                biased;
                report = receive(&self.handle.control) => report,
                never = &mut limit => match never {},
            };
            let report = match report {
                Ok(report) => report,
                Err(error) => {
                    self.end().await;
                    return Err(error);
                }
            };
            match report {
                Some((Report::Ended { ending, cpu_microseconds, peak_memory_bytes, oom_kills }, _)) => {
                    let cpu = Duration::from_micros(cpu_microseconds);
                    let usage = Usage { cpu: Some(cpu), peak_memory_bytes: Some(peak_memory_bytes) };
                    break (Some(ending), usage, oom_kills);
                }
                Some((Report::NotExecuted { tried, errno }, _)) => {
                    return Err(Error::not_executed(tried.to_string_lossy(), errno));
                }
                Some((Report::Failed(failure), _)) => return Err(Error::Setup(failure)),
                Some((
                    Report::Waiting
                    | Report::Started { .. }
                    | Report::Terminal
                    | Report::Holding(_)
                    | Report::ProxySocket,
                    _,
                )) => {}
                // PID 1 said nothing: it was killed itself, by us at a deadline, by the kernel for memory, or by others.
                None => {
                    self.gone().await;
                    let counted = self.groups.count();
                    let usage = Usage {
                        // Version 1 has nobody left who counted it.
                        cpu: (counted.cpu_microseconds > 0).then(|| Duration::from_micros(counted.cpu_microseconds)),
                        peak_memory_bytes: counted.peak_memory_bytes,
                    };
                    self.clean_up().await;
                    break (None, usage, counted.oom_kills);
                }
            }
        };
        let ended = Instant::now();
        let timed_out = deadline.is_some_and(|deadline| ended >= deadline);
        Ok(Outcome {
            ending: match ending {
                _ if timed_out => Ending::TimedOut,
                Some(JailEnding::Exited(code)) => Ending::Exited(code),
                Some(JailEnding::Signalled(signal)) => Ending::Signalled(signal),
                Some(JailEnding::OverMemory) => Ending::Signalled(SIGKILL),
                None if self.watched.as_ref().is_some_and(|watched| watched.was_ended()) => Ending::OverCounters,
                None => Ending::Stopped(SIGKILL),
            },
            out_of_memory: oom_kills > 0 || ending == Some(JailEnding::OverMemory),
            duration: ended - self.began,
            usage,
            protections: std::mem::take(&mut self.protections),
            steps: std::mem::take(&mut self.steps),
        })
    }
}

impl Drop for Running {
    /// Whatever way we got here, no box stays.
    fn drop(&mut self) {
        self.handle.kill();
        let _ = rustix::net::shutdown(self.handle.control.as_ref(), Shutdown::Both);
    }
}
