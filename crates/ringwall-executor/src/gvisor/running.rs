//! A running gVisor box: signals go through `runsc kill`, and the box ends when gVisor's kernel
//! ends.
//!
//! A signal that ended the command is reported only as an exit code above 128, as by a shell. It
//! counts as a signal if one was sent from outside or memory ran out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::CgroupEntry;
use ringwall_jail::plan::CgroupVersion;
use ringwall_jail::report::{Ending as KernelEnding, Protection};
use rustix::process::Signal;
use tokio::sync::oneshot;

use super::gvisor_init::GvisorInit;
use super::launch::{NO_CGROUP, kill_command, null, pause_command};
use crate::cgroup::freezer::Pause;
use crate::cgroup::groups::Groups;
use crate::error::Error;
use crate::running::{BoxControl, BoxExit, Ending, RunningBox, Streams, Usage};

const SIGNAL_BASE: i32 = 128;

#[derive(Debug)]
struct GvisorControl {
    gvisor_init: Arc<GvisorInit>,
    /// Set when a signal is sent from outside.
    signalled: AtomicBool,
}

impl BoxControl for GvisorControl {
    /// `runsc kill --all` in the background reaches every process of the box. It fails if the box has ended.
    fn signal(&self, signal: Signal) {
        self.signalled.store(true, Ordering::Release);
        let (Ok(runtime), Ok(streams)) = (tokio::runtime::Handle::try_current(), null_streams()) else { return };
        let gvisor_init = Arc::clone(&self.gvisor_init);
        runtime.spawn(async move {
            let _ = gvisor_init.run(kill_command(signal), streams, NO_CGROUP).await;
        });
    }

    /// Ends the init process; the kernel then kills every process of the box.
    fn kill(&self) {
        self.signalled.store(true, Ordering::Release);
        self.gvisor_init.kill();
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.set_paused(Pause::Begin).boxed()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.set_paused(Pause::End).boxed()
    }
}

impl GvisorControl {
    async fn set_paused(&self, pause: Pause) -> Result<(), Error> {
        let why = match self.gvisor_init.run(pause_command(pause), null_streams()?, NO_CGROUP).await {
            Some(KernelEnding::Exited(0)) => return Ok(()),
            Some(_) => "runsc refused",
            None => "the box has ended",
        };
        Err(Error::NotPaused { why: why.to_owned() })
    }
}

/// The resources that end with the box: the init process with its namespaces, then the cgroups.
#[derive(Debug)]
pub(super) struct BoxResources {
    groups: Groups,
    gvisor_init: Option<Arc<GvisorInit>>,
}

impl BoxResources {
    pub(super) fn new(groups: Groups) -> Self {
        Self { groups, gvisor_init: None }
    }

    pub(super) fn set_init(&mut self, gvisor_init: GvisorInit) -> Arc<GvisorInit> {
        Arc::clone(self.gvisor_init.insert(Arc::new(gvisor_init)))
    }

    /// How a program joins the box's cgroups.
    pub(super) fn cgroup_entry(&self, version: Option<CgroupVersion>) -> (CgroupEntry, Vec<BorrowedFd<'_>>) {
        match version {
            None => NO_CGROUP,
            Some(CgroupVersion::V1) => {
                (CgroupEntry::TasksFiles, self.groups.join_files.iter().map(AsFd::as_fd).collect())
            }
            Some(CgroupVersion::V2) => (CgroupEntry::CloneInto, self.groups.entry().into_iter().collect()),
        }
    }

    /// Called when `runsc start` has succeeded. `ended` receives how gVisor's kernel ended.
    pub(super) fn into_running(
        self,
        gvisor_init: Arc<GvisorInit>,
        ended: oneshot::Receiver<KernelEnding>,
        streams: Streams,
        protections: Vec<Protection>,
        time_limit: Option<Duration>,
    ) -> RunningBox {
        let started_at = Instant::now();
        let control = Arc::new(GvisorControl { gvisor_init, signalled: AtomicBool::new(false) });
        RunningBox {
            streams,
            proxy_socket: None,
            protections,
            exit: self.follow(Arc::clone(&control), ended, started_at).boxed(),
            control,
            started_at,
            time_limit,
        }
    }

    async fn follow(
        mut self,
        control: Arc<GvisorControl>,
        ended: oneshot::Receiver<KernelEnding>,
        started_at: Instant,
    ) -> Result<BoxExit, Error> {
        let ended = ended.await.ok();
        let duration = started_at.elapsed();
        let cpu_time = control.gvisor_init.end().await;
        let counted = self.groups.count();
        self.groups.remove().await;
        let out_of_memory = counted.oom_kills > 0;
        let was_signalled = control.signalled.load(Ordering::Acquire) || out_of_memory;
        let ending = match ended {
            Some(KernelEnding::Exited(code)) if code > SIGNAL_BASE && was_signalled => {
                Ending::Signalled(code - SIGNAL_BASE)
            }
            Some(KernelEnding::Exited(code)) => Ending::Exited(code),
            // gVisor's kernel itself was killed, for memory or from outside.
            Some(KernelEnding::Signalled(_) | KernelEnding::OverMemory) if out_of_memory => {
                Ending::Signalled(Signal::KILL.as_raw())
            }
            Some(KernelEnding::Signalled(_) | KernelEnding::OverMemory) | None => {
                Ending::Stopped(Signal::KILL.as_raw())
            }
        };
        let cpu = Some(counted.cpu_microseconds).filter(|microseconds| *microseconds > 0).or(cpu_time);
        let usage = Usage { cpu: cpu.map(Duration::from_micros), peak_memory_bytes: counted.peak_memory_bytes };
        Ok(BoxExit { ending, duration, out_of_memory, usage, steps: Vec::new() })
    }
}

impl Drop for BoxResources {
    fn drop(&mut self) {
        let (gvisor_init, mut groups) = (self.gvisor_init.take(), std::mem::take(&mut self.groups));
        if let Some(gvisor_init) = &gvisor_init {
            gvisor_init.kill();
        }
        // Without a runtime this process is ending; the spawner removes what it left.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Some(gvisor_init) = gvisor_init {
                gvisor_init.wait().await;
            }
            groups.remove().await;
        });
    }
}

fn null_streams() -> Result<[OwnedFd; 3], Error> {
    Ok([null()?, null()?, null()?])
}
