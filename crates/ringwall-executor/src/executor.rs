//! The executor: facts about the machine, and resources that outlive a box.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use ringwall_jail::CgroupReaper;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use crate::cgroup::cache::CgroupCache;
use crate::counters::Guard;
use crate::error::Error;
use crate::host::Host;
use crate::image::Store;
use crate::process::find_in_path;
use crate::process::spawner::Spawner;
use crate::sources;
use crate::uids::Leases;

/// Starts boxes.
#[derive(Debug)]
pub struct Executor {
    pub(crate) host: Host,
    pub(crate) spawner: Spawner,
    pub(crate) images: Store,
    /// The data directory, hidden from every box; `None` if there is none.
    pub(crate) data: Option<PathBuf>,
    pub(crate) started: AtomicU64,
    /// Cgroups for reuse, if they can be reused.
    pub(crate) cache: Option<Arc<CgroupCache>>,
    /// PID 1 as a child of this process (`ringwall run`), and the reaper that removes its cgroups
    /// if this process is killed.
    pub(crate) own_child: Option<Pid>,
    pub(crate) cgroup_reaper: OnceLock<CgroupReaper>,
    pub(crate) warm_uids: Arc<Leases>,
    /// Uids of boxes without a workspace.
    pub(crate) own_uids: Arc<Leases>,
    /// The path of `runsc`, if there is one.
    pub(crate) runsc: Option<PathBuf>,
    /// Ends boxes that take too much of counters shared with this process.
    pub(crate) guard: Guard,
}

impl Executor {
    pub fn new(host: Host, data: &Path) -> Result<Self, Error> {
        ringwall_jail::restrict::allow_core_limit();
        let spawner = Spawner::new(&host)?;
        let mut executor = Self::with(host, data, spawner);
        executor.cache = executor.spawner.keeps_groups().then(Arc::default);
        executor.runsc = find_in_path("runsc");
        Ok(executor)
    }

    pub(crate) fn with(host: Host, data: &Path, spawner: Spawner) -> Self {
        // The kernel lets this process send descriptors to a new box only while its user, rootless boxes included, has
        // fewer unreceived ones than this limit.
        ringwall_jail::raise_open_files();
        Executor {
            guard: Guard::new(host.counter_caps),
            host,
            spawner,
            images: Store::open(data),
            data: sources::follow(data),
            started: AtomicU64::new(0),
            cache: None,
            own_child: None,
            cgroup_reaper: OnceLock::new(),
            warm_uids: Leases::of_warm_boxes(),
            own_uids: Leases::of_boxes_without_workspace(),
            runsc: None,
        }
    }

    /// Removes cgroups of executors that were killed together with their spawners.
    pub fn sweep(&self) {
        if let Ok(layout) = &self.host.cgroups {
            layout.sweep();
        }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }
}

impl Drop for Executor {
    /// Waits for PID 1 if it is our child. Dropping the cgroup reaper or the spawner then waits for
    /// the rest, cgroups included.
    fn drop(&mut self) {
        if let Some(init) = self.own_child {
            while matches!(rustix::process::waitpid(Some(init), WaitOptions::empty()), Err(Errno::INTR)) {}
        }
    }
}
