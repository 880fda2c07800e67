//! Measures what a container used, from the kernel's counters in the container's cgroup.
//!
//! The daemon forgets these figures with the container, which removes itself at its end. So the
//! cgroup is found when the container is created, by its id, and is read between the end of its
//! last process and its removal. If that fails (remote daemon, unusual cgroup path, read too late)
//! the figure is unknown; none is estimated. No start waits for this, and the daemon is not asked.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::events::{ContainerId, ContainerState};
use crate::cgroup::layout::is_version_2;
use crate::running::Usage;

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// Interval of looking for a cgroup that is about to be created.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const EXIT_DELAY: Duration = Duration::from_millis(1);
/// Maximum time of one `poll` on a process.
const MAX_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// When the container is gone, only two files have to be read.
const READ_WITHIN: Duration = Duration::from_millis(100);

/// Watches the cgroup of one container.
#[derive(Debug)]
pub(crate) struct Meter {
    /// One task; dropping it ends the watch.
    task: JoinSet<Counted>,
}

/// The kernel's figures; empty if they could not be read.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) usage: Usage,
    /// OOM kills in the container. The daemon reports them too, but not always before the container
    /// is gone.
    pub(crate) memory_kills: u64,
}

impl Meter {
    /// Call before the container is created.
    pub(crate) fn begin(state: watch::Receiver<ContainerState>) -> Self {
        let mut task = JoinSet::new();
        task.spawn(async move { measure(state).await.unwrap_or_default() });
        Meter { task }
    }

    /// The figures, after the end of the container.
    pub(crate) async fn read(&mut self) -> Counted {
        match tokio::time::timeout(READ_WITHIN, self.task.join_next()).await {
            Ok(Some(Ok(counted))) => counted,
            Ok(Some(Err(_)) | None) | Err(_) => Counted::default(),
        }
    }
}

async fn measure(mut state: watch::Receiver<ContainerState>) -> Option<Counted> {
    let id = state.wait_for(|state| state.id.is_some()).await.ok()?.id?;
    let is_over = || state.borrow().removed || state.has_changed().is_err();
    let group = loop {
        match Group::find(id) {
            Some(group) => break group,
            None if is_over() => return None,
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    // The cgroup is empty before the first and after the last process, and never in between: the
    // runtime's helpers leave when the container's PID 1 has joined.
    let mut had_process = false;
    loop {
        match group.first_process()? {
            Some(process) => {
                had_process = true;
                ended(process).await;
            }
            None if had_process => return Some(group.count()),
            None if is_over() => return None,
            None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits on a blocking thread until the process ends, at most [`MAX_WAIT`], so that it does not
/// delay the server's shutdown. A process without a pidfd is about to end.
async fn ended(process: Pid) {
    let wait = move || {
        let Ok(watched) = pidfd_open(process, PidfdFlags::empty()) else { return std::thread::sleep(EXIT_DELAY) };
        let _ = poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&MAX_WAIT));
    };
    let _ = tokio::task::spawn_blocking(wait).await;
}

/// The directories of one container's cgroup: the same on version 2, one per controller on version 1.
#[derive(Debug)]
struct Group {
    cpu: String,
    memory: String,
}

impl Group {
    /// Looks for the paths of dockerd's cgroupfs and systemd drivers.
    fn find(id: ContainerId) -> Option<Self> {
        let (cpu, memory) = if is_version_2() { ("", "") } else { ("/cpuacct", "/memory") };
        [format!("docker/{id}"), format!("system.slice/docker-{id}.scope")].iter().find_map(|path| {
            let directory = |hierarchy: &str| format!("{HIERARCHIES}{hierarchy}/{path}");
            let exists = |directory: &str| rustix::fs::stat(directory).is_ok();
            let group = Group { cpu: directory(cpu), memory: directory(memory) };
            (exists(&group.cpu) && exists(&group.memory)).then_some(group)
        })
    }

    /// A process of the cgroup, `Some(None)` if there is none. `None` if the cgroup is gone or the
    /// process has no PID in our namespace.
    fn first_process(&self) -> Option<Option<Pid>> {
        let processes = std::fs::read_to_string(format!("{}/cgroup.procs", self.cpu)).ok()?;
        match processes.lines().next() {
            Some(first) => Pid::from_raw(first.parse().ok()?).map(Some),
            None => Some(None),
        }
    }

    fn count(&self) -> Counted {
        // An empty key reads a file that holds one number.
        let read = |directory: &str, file: &str, key: &str| -> Option<u64> {
            let text = std::fs::read_to_string(format!("{directory}/{file}")).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        };
        let (cpu, peak, events) = match is_version_2() {
            true => {
                (read(&self.cpu, "cpu.stat", "usage_usec ").map(Duration::from_micros), "memory.peak", "memory.events")
            }
            false => (
                read(&self.cpu, "cpuacct.usage", "").map(Duration::from_nanos),
                "memory.max_usage_in_bytes",
                "memory.oom_control",
            ),
        };
        Counted {
            usage: Usage { cpu, peak_memory_bytes: read(&self.memory, peak, "") },
            memory_kills: read(&self.memory, events, "oom_kill ").unwrap_or(0),
        }
    }
}
