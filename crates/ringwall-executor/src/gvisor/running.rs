//! A box behind gVisor while it runs: `runsc` passes signals on to it, and its end is that of gVisor's kernel.
//!
//! That tells a signal which ended the command only by its exit code, as a shell does. It is taken for one when a signal is
//! known to have come from outside. Dropping a box ends it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringwall_jail::CgroupEntry;
use ringwall_jail::plan::CgroupVersion;
use ringwall_jail::report::{Ending as KernelEnding, Protection};
use tokio::sync::oneshot;

use super::launch::{NOWHERE, null, words_of_pause, words_of_signal};
use super::warden::Warden;
use crate::cgroup::freezer::Pause;
use crate::cgroup::groups::Groups;
use crate::error::Error;
use crate::outcome::{Ending, Outcome, Usage};
use crate::running::Streams;
use crate::time_limit;

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
const SIGNAL_BASE: i32 = 128;

/// A started box.
#[derive(Debug)]
pub struct RunningGvisor {
    /// Taken by whoever moves the bytes.
    pub streams: Option<Streams>,
    kept: Kept,
    handle: GvisorHandle,
    /// How gVisor's kernel ended.
    ended: oneshot::Receiver<KernelEnding>,
    began: Instant,
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
}

/// Gives orders to a running box, from anywhere.
#[derive(Debug, Clone)]
pub struct GvisorHandle {
    warden: Arc<Warden>,
    /// Whether a signal was ever sent from outside.
    signalled: Arc<AtomicBool>,
}

impl GvisorHandle {
    /// Sends a signal to every process in the box, in the background. A box that has ended ignores it.
    pub fn signal(&self, number: i32) {
        self.signalled.store(true, Ordering::Release);
        let (Ok(runtime), Ok(streams)) = (tokio::runtime::Handle::try_current(), nothing()) else { return };
        let warden = Arc::clone(&self.warden);
        runtime.spawn(async move {
            // Refused when the box is over; whoever waits for it sees that for itself.
            let _ = warden.run(words_of_signal(number), streams, NOWHERE).await;
        });
    }

    /// Holds the whole box still, or lets it go on.
    pub(crate) async fn pause(&self, pause: Pause) -> Result<(), Error> {
        let refused = |why: &str| Error::NotPaused { why: why.to_owned() };
        match self.warden.run(words_of_pause(pause), nothing()?, NOWHERE).await {
            Some(KernelEnding::Exited(0)) => Ok(()),
            Some(_) => Err(refused("runsc refused")),
            None => Err(refused("the box has ended")),
        }
    }

    /// Ends the box now: without its warden no process of it lives.
    pub fn kill(&self) {
        self.signalled.store(true, Ordering::Release);
        self.warden.kill();
    }

    /// Asks with a signal, and after a moment insists.
    pub async fn stop(&self, signal: i32) {
        self.signal(signal);
        tokio::time::sleep(time_limit::GRACE).await;
        self.kill();
    }
}

impl RunningGvisor {
    pub(super) fn new(
        kept: Kept,
        warden: Arc<Warden>,
        ended: oneshot::Receiver<KernelEnding>,
        streams: Streams,
        protections: Vec<Protection>,
        time_limit: Option<Duration>,
    ) -> Self {
        RunningGvisor {
            streams: Some(streams),
            kept,
            handle: GvisorHandle { warden, signalled: Arc::default() },
            ended,
            began: Instant::now(),
            time_limit,
            protections,
        }
    }

    pub fn handle(&self) -> GvisorHandle {
        self.handle.clone()
    }

    /// What holds in the box.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// Waits until the command has ended and no process of the box is left.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        let handle = self.handle();
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let ended = tokio::select! {
            biased;
            ended = &mut self.ended => ended.ok(),
            never = time_limit::keep(deadline, handle.stop(SIGTERM)) => match never {},
        };
        let over = Instant::now();
        let cost = handle.warden.end().await;
        let counted = self.kept.groups.count();
        self.kept.groups.remove().await;
        let out_of_memory = counted.oom_kills > 0;
        let was_signalled = handle.signalled.load(Ordering::Acquire) || out_of_memory;
        let ending = match ended {
            _ if deadline.is_some_and(|deadline| over >= deadline) => Ending::TimedOut,
            Some(KernelEnding::Exited(code)) if code > SIGNAL_BASE && was_signalled => {
                Ending::Signalled(code - SIGNAL_BASE)
            }
            Some(KernelEnding::Exited(code)) => Ending::Exited(code),
            // gVisor's kernel itself was killed: for memory, or by somebody outside.
            Some(KernelEnding::Signalled(_) | KernelEnding::OverMemory) if out_of_memory => Ending::Signalled(SIGKILL),
            Some(KernelEnding::Signalled(_) | KernelEnding::OverMemory) | None => Ending::Stopped(SIGKILL),
        };
        let cpu = Some(counted.cpu_microseconds).filter(|microseconds| *microseconds > 0).or(cost);
        Ok(Outcome {
            ending,
            out_of_memory,
            duration: over - self.began,
            usage: Usage { cpu: cpu.map(Duration::from_micros), peak_memory_bytes: counted.peak_memory_bytes },
            protections: std::mem::take(&mut self.protections),
            steps: Vec::new(),
        })
    }
}

/// What has to go when a box does, however it goes: everything in the room, and then the cgroups.
#[derive(Debug)]
pub(super) struct Kept {
    groups: Groups,
    warden: Option<Arc<Warden>>,
}

impl Kept {
    pub(super) fn new(groups: Groups) -> Self {
        Kept { groups, warden: None }
    }

    pub(super) fn keep(&mut self, warden: Warden) -> Arc<Warden> {
        Arc::clone(self.warden.insert(Arc::new(warden)))
    }

    /// How a program gets into the cgroups.
    pub(super) fn entrance(&self, version: Option<CgroupVersion>) -> (CgroupEntry, Vec<BorrowedFd<'_>>) {
        match version {
            None => NOWHERE,
            Some(CgroupVersion::V1) => (CgroupEntry::TasksFiles, self.groups.doors.iter().map(AsFd::as_fd).collect()),
            Some(CgroupVersion::V2) => (CgroupEntry::CloneInto, self.groups.birthplace().into_iter().collect()),
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (warden, mut groups) = (self.warden.take(), std::mem::take(&mut self.groups));
        if let Some(warden) = &warden {
            warden.kill();
        }
        // Without a runtime this process is ending; the spawner removes what it left.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(warden) = warden {
                warden.gone().await;
            }
            groups.remove().await;
        });
    }
}

fn nothing() -> Result<[OwnedFd; 3], Error> {
    Ok([null()?, null()?, null()?])
}
