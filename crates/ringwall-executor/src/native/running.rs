//! A native box from the moment when PID 1 has its plan to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::cgroups::CgroupUsage;
use ringwall_jail::report::{ControlMessage, Ending as InitEnding, Protection, Report, StepTime};
use ringwall_jail::wire;
use rustix::net::Shutdown;
use rustix::process::{Signal, pidfd_send_signal};
use tokio::net::UnixStream;

use crate::cgroup::cache::ReusableGroups;
use crate::cgroup::freezer::Freezer;
use crate::counters::Watched;
use crate::error::Error;
use crate::native::start::Hold;
use crate::pidfd::{Init, ended, process_id};
use crate::plan::limits::Stay;
use crate::process::receive;
use crate::process::spawner::{Parent, Spawner, TIMEOUT};
use crate::running::{BoxControl, BoxExit, Ending, RunningBox, Streams, Usage};
use crate::uids::Lease;

/// Kills the box when dropped, and then keeps its cgroups for the next one.
#[derive(Debug)]
pub(crate) struct NativeBox {
    socket: Arc<UnixStream>,
    init: Init,
    started_at: Instant,
    protections: Vec<Protection>,
    steps: Vec<StepTime>,
    groups: ReusableGroups,
    /// The spawner that made it; `None` if PID 1 is a child of this process.
    parent: Option<Parent>,
    /// Returned after the box has ended, so that no other box gets the uid before.
    pub(crate) lease: Option<Lease>,
    /// Rootless only.
    pub(crate) watched: Option<Arc<Watched>>,
}

#[derive(Debug)]
struct NativeControl {
    socket: Arc<UnixStream>,
    init: Init,
    /// Session boxes only, and `None` if the box has no cgroup of its own.
    freezer: Option<Freezer>,
    /// Session boxes only.
    counters: Vec<OwnedFd>,
}

impl BoxControl for NativeControl {
    /// PID 1 forwards the signal to every process of the box.
    fn signal(&self, signal: Signal) {
        let _ = wire::send(self.socket.as_ref(), &ControlMessage::Signal(signal.as_raw()), &[]);
    }

    /// The kernel kills a PID namespace together with its PID 1. On cgroup v1 a frozen process cannot die, so the box is thawed
    /// after the kill.
    fn kill(&self) {
        kill(&self.init);
        if let Some(freezer) = &self.freezer {
            let _ = freezer.thaw();
        }
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match &self.freezer {
                Some(freezer) => freezer.freeze().await.map_err(not_paused),
                // PID 1 forwards SIGSTOP, which no process can catch or ignore.
                None => {
                    self.signal(Signal::STOP);
                    Ok(())
                }
            }
        })
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(match &self.freezer {
            Some(freezer) => freezer.thaw().map_err(not_paused),
            None => {
                self.signal(Signal::CONT);
                Ok(())
            }
        }))
    }

    fn oom_kills(&self) -> u64 {
        CgroupUsage::read(&self.counters).oom_kills
    }
}

fn not_paused(errno: rustix::io::Errno) -> Error {
    Error::NotPaused { why: errno.to_string() }
}

fn kill(init: &Init) {
    if let Some(init) = init.get() {
        let _ = pidfd_send_signal(init, Signal::KILL);
    }
}

impl NativeBox {
    pub(crate) fn new(
        socket: UnixStream,
        groups: ReusableGroups,
        steps: Vec<StepTime>,
        parent: Option<Parent>,
    ) -> Self {
        NativeBox {
            socket: Arc::new(socket),
            init: Init::default(),
            started_at: Instant::now(),
            protections: Vec::new(),
            steps,
            groups,
            parent,
            lease: None,
            watched: None,
        }
    }

    /// For a warm box, whose outcome counts only the steps after its grant.
    pub(crate) fn forget_steps(&mut self) {
        self.steps.clear();
    }

    pub(crate) fn set_init(&self, init: OwnedFd) {
        let _ = self.init.set(init);
    }

    pub(crate) fn init(&self) -> Init {
        Arc::clone(&self.init)
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The next report of PID 1 of a box that has not started. On failure the box is given up; a
    /// spawner whose PID 1 does not answer by `deadline` is retired.
    pub(super) async fn next_report(
        &mut self,
        spawner: &Spawner,
        deadline: tokio::time::Instant,
    ) -> Result<(Report, Vec<OwnedFd>), Error> {
        let Ok(received) = tokio::time::timeout_at(deadline, receive(self.socket())).await else {
            if let Some(parent) = &self.parent {
                spawner.retire(parent);
            }
            self.give_up().await;
            return Err(Error::NoAnswer { from: "its first process", timeout: TIMEOUT });
        };
        match received? {
            Some((Report::Failed(failure), _)) => {
                self.clean_up().await;
                Err(Error::Setup(failure))
            }
            Some(report) => Ok(report),
            None => Err(self.died_early().await),
        }
    }

    /// The error for a box that ended, or sent a wrong report, before its start.
    pub(super) async fn died_early(&mut self) -> Error {
        self.clean_up().await;
        Error::JailDied
    }

    /// PID 1 has reported that every protection is in force and that it starts the command.
    pub(crate) fn started(&mut self, protections: Vec<Protection>, steps: Vec<StepTime>, init: Option<OwnedFd>) {
        if let Some(init) = init {
            self.set_init(init);
        }
        self.protections = protections;
        self.steps.extend(steps);
        self.steps.sort_by_key(|step| step.step);
        self.started_at = Instant::now();
    }

    /// Reports that the box is held at its step, and waits for its end.
    pub(super) async fn hold(&self, hold: Hold) -> Error {
        (hold.held)(hold.step);
        while let Ok(Some(_)) = receive::<Report>(self.socket()).await {}
        Error::Held(hold.step)
    }

    /// Gives up a box that has not started. When this returns, its command never starts or has
    /// ended: with a closed socket PID 1 cannot report `Started`, and without that report it does
    /// not fork the command. If it reported before, the report with the handle by which it is killed
    /// is read here.
    async fn give_up(&mut self) {
        let _ = rustix::net::shutdown(self.socket(), Shutdown::Both);
        while let Ok(Some((report, descriptors))) = wire::receive(self.socket()) {
            if let Report::Started { protections, steps } = report {
                self.started(protections, steps, descriptors.into_iter().next());
                self.end().await;
            }
        }
        self.clean_up().await;
    }

    /// Kills the box and waits until no process of it is left.
    pub(crate) async fn end(&self) {
        kill(&self.init);
        self.gone().await;
    }

    /// Waits until no process of the box is left. A killed PID 1 closes its socket before the
    /// kernel has ended the others, so the pidfd is used: it becomes readable after the last
    /// process of the namespace.
    async fn gone(&self) {
        if let Some(init) = self.init.get() {
            ended(init).await;
        }
    }

    /// Removes the cgroups, which a killed spawner could not.
    pub(crate) async fn clean_up(&mut self) {
        self.groups.remove().await;
    }

    /// The host PID of PID 1, for measurements.
    pub(crate) fn init_pid(&self) -> Option<u32> {
        self.init.get().and_then(process_id)
    }

    /// Call after [`started`](Self::started).
    pub(crate) fn into_running(
        mut self,
        streams: Streams,
        proxy_socket: Option<OwnedFd>,
        stay: Stay,
        time_limit: Option<Duration>,
    ) -> RunningBox {
        let (freezer, counters) = match stay {
            Stay::OneCommand => (None, Vec::new()),
            Stay::SessionBox => (self.groups.freezer(), self.groups.copy_counters()),
        };
        let control = NativeControl { socket: Arc::clone(&self.socket), init: self.init(), freezer, counters };
        RunningBox {
            streams,
            proxy_socket,
            protections: std::mem::take(&mut self.protections),
            control: Arc::new(control),
            started_at: self.started_at,
            exit: self.follow().boxed(),
            time_limit,
        }
    }

    /// Waits until the command and every process of the box but PID 1 have ended. The kernel
    /// removes the rest while the answer is sent; dropping the executor waits for it.
    async fn follow(mut self) -> Result<BoxExit, Error> {
        let (ending, usage, oom_kills) = loop {
            let report = match receive(self.socket()).await {
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
                // Reports before the start.
                Some(_) => {}
                // PID 1 was killed: by us at a deadline, by the kernel for memory, or from outside.
                None => {
                    self.gone().await;
                    let counted = self.groups.count();
                    let usage = Usage {
                        // On version 1 no count is left.
                        cpu: (counted.cpu_microseconds > 0).then(|| Duration::from_micros(counted.cpu_microseconds)),
                        peak_memory_bytes: counted.peak_memory_bytes,
                    };
                    self.clean_up().await;
                    break (None, usage, counted.oom_kills);
                }
            }
        };
        Ok(BoxExit {
            ending: match ending {
                Some(InitEnding::Exited(code)) => Ending::Exited(code),
                Some(InitEnding::Signalled(signal)) => Ending::Signalled(signal),
                Some(InitEnding::OverMemory) => Ending::Signalled(Signal::KILL.as_raw()),
                None if self.watched.as_ref().is_some_and(|watched| watched.was_ended()) => Ending::OverCounters,
                None => Ending::Stopped(Signal::KILL.as_raw()),
            },
            duration: self.started_at.elapsed(),
            out_of_memory: oom_kills > 0 || ending == Some(InitEnding::OverMemory),
            usage,
            steps: std::mem::take(&mut self.steps),
        })
    }
}

impl Drop for NativeBox {
    fn drop(&mut self) {
        kill(&self.init);
        let _ = rustix::net::shutdown(self.socket.as_ref(), Shutdown::Both);
    }
}
