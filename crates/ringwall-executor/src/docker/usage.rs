//! What a container used, as the kernel counted it in the container's cgroup.
//!
//! The daemon forgets it with the container, and a container that removes itself is soon gone. So the group is found when
//! the container is made, by the id that the daemon tells, and read in the moment between the end of its last process and
//! its removal. Whatever of that does not work (a daemon elsewhere, groups in another place, a reader that came too late)
//! makes a figure that is not known; none is ever estimated. Nobody waits for this, and nothing is asked of the daemon.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::events::{ContainerId, Story};
use crate::cgroup::layout::is_version_2;
use crate::kernel_file;
use crate::outcome::Usage;

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// Between two looks for a group that is about to be made.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const A_MOMENT: Duration = Duration::from_millis(1);
/// One wait for the end of a process.
const MAX_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
/// All that is left to do when a container is over is to read two files.
const READ_WITHIN: Duration = Duration::from_millis(100);

/// Watches one container's group.
#[derive(Debug)]
pub(crate) struct Meter {
    reading: JoinHandle<Counted>,
}

/// What the kernel counted; nothing where nobody could look.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) usage: Usage,
    /// Processes that were killed because the container's memory was used up. The daemon tells of it too, but not always
    /// before the container is gone.
    pub(crate) memory_kills: u64,
}

impl Meter {
    /// Begins before the container is made.
    pub(crate) fn begin(story: watch::Receiver<Story>) -> Self {
        Meter { reading: tokio::spawn(async move { measure(story).await.unwrap_or_default() }) }
    }

    /// What is known once the container is over.
    pub(crate) async fn read(&mut self) -> Counted {
        match tokio::time::timeout(READ_WITHIN, &mut self.reading).await {
            Ok(Ok(counted)) => counted,
            Ok(Err(_)) | Err(_) => Counted::default(),
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn measure(mut story: watch::Receiver<Story>) -> Option<Counted> {
    let id = story.wait_for(|story| story.id.is_some()).await.ok()?.id?;
    let is_over = || story.borrow().removed || story.has_changed().is_err();
    let group = loop {
        match Group::find(id) {
            Some(group) => break group,
            None if is_over() => return None,
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    };
    // Empty before its first process and after its last one. In between it never is: a runtime's helpers leave when the
    // container's own PID 1 is in.
    let mut was_inhabited = false;
    loop {
        match group.inhabitant()? {
            Some(process) => {
                was_inhabited = true;
                ended(process).await;
            }
            None if was_inhabited => return Some(group.count()),
            None if is_over() => return None,
            None => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

/// Waits for a process's end on a thread where that may block, and comes back now and then so that a server which stops is
/// not kept. A process that cannot be waited for is on its way out.
async fn ended(process: Pid) {
    let wait = move || {
        let Ok(watched) = pidfd_open(process, PidfdFlags::empty()) else { return std::thread::sleep(A_MOMENT) };
        let _ = poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&MAX_WAIT));
    };
    let _ = tokio::task::spawn_blocking(wait).await;
}

/// The directories of one container: one on version 2, one for each controller on version 1.
#[derive(Debug)]
enum Group {
    Version1 { cpu: String, memory: String },
    Version2(String),
}

impl Group {
    /// Where daemons make groups, with either of their drivers.
    fn find(id: ContainerId) -> Option<Self> {
        let places = [format!("docker/{id}"), format!("system.slice/docker-{id}.scope")];
        places.iter().find_map(|place| {
            let below = |hierarchy: &str| format!("{HIERARCHIES}{hierarchy}/{place}");
            let is_there = |directory: &String| rustix::fs::stat(directory.as_str()).is_ok();
            if is_version_2() {
                return Some(below("")).filter(is_there).map(Group::Version2);
            }
            let (cpu, memory) = (below("/cpuacct"), below("/memory"));
            (is_there(&cpu) && is_there(&memory)).then_some(Group::Version1 { cpu, memory })
        })
    }

    /// Some process that is in it; nothing at all when the group is gone, or holds whom we cannot see.
    fn inhabitant(&self) -> Option<Option<Pid>> {
        let (Group::Version1 { cpu: directory, .. } | Group::Version2(directory)) = self;
        let processes = kernel_file::read(&format!("{directory}/cgroup.procs")).ok()?;
        match processes.lines().next() {
            Some(first) => Pid::from_raw(first.parse().ok()?).map(Some),
            None => Some(None),
        }
    }

    fn count(&self) -> Counted {
        let keyed = |directory: &str, file: &str, key: &str| -> Option<u64> {
            let text = kernel_file::read(&format!("{directory}/{file}")).ok()?;
            text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
        };
        let number = |directory: &str, file: &str| -> Option<u64> {
            kernel_file::read(&format!("{directory}/{file}")).ok()?.trim().parse().ok()
        };
        match self {
            Group::Version1 { cpu, memory } => Counted {
                usage: Usage {
                    cpu: number(cpu, "cpuacct.usage").map(Duration::from_nanos),
                    peak_memory_bytes: number(memory, "memory.max_usage_in_bytes"),
                },
                memory_kills: keyed(memory, "memory.oom_control", "oom_kill ").unwrap_or(0),
            },
            Group::Version2(directory) => Counted {
                usage: Usage {
                    cpu: keyed(directory, "cpu.stat", "usage_usec ").map(Duration::from_micros),
                    peak_memory_bytes: number(directory, "memory.peak"),
                },
                memory_kills: keyed(directory, "memory.events", "oom_kill ").unwrap_or(0),
            },
        }
    }
}
