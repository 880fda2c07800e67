//! How the box around an agent is held, whoever made it.

use std::os::fd::OwnedFd;
use std::time::Duration;

use ringwall_jail::cgroups::CgroupUsage;
use ringwall_jail::report::Protection;
use tokio::sync::watch;

use crate::cgroup::freezer::{Freezer, Pause};
use crate::docker::{ContainerHandle, RunningContainer, Story};
use crate::error::Error;
use crate::gvisor::{GvisorHandle, RunningGvisor};
use crate::native::running::{Handle, Running};
use crate::outcome::Outcome;
use crate::running::Streams;

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;
/// How long a daemon's word that memory ran out may be behind the end of what was killed for it.
const WORD_BEHIND: Duration = Duration::from_millis(500);

/// A box of any maker.
#[derive(Debug)]
pub(crate) enum Body {
    Native(Box<Running>),
    Gvisor(Box<RunningGvisor>),
    Docker(Box<RunningContainer>),
}

#[derive(Debug)]
pub(crate) enum Reins {
    Native { handle: Handle, freezer: Option<Freezer>, counters: Vec<OwnedFd> },
    Gvisor(GvisorHandle),
    Docker { handle: ContainerHandle, story: Option<watch::Receiver<Story>> },
}

impl Body {
    pub(crate) fn reins(&self) -> Reins {
        match self {
            Body::Native(running) => Reins::Native {
                handle: running.handle(),
                freezer: running.freezer(),
                counters: running.copy_counters(),
            },
            Body::Gvisor(running) => Reins::Gvisor(running.handle()),
            Body::Docker(container) => Reins::Docker { handle: container.handle(), story: container.story() },
        }
    }

    pub(crate) fn take_streams(&mut self) -> Option<Streams> {
        match self {
            Body::Native(running) => running.streams.take(),
            Body::Gvisor(running) => running.streams.take(),
            Body::Docker(container) => container.streams.take(),
        }
    }

    /// Where it asks for connections, if its grant has a network.
    pub(crate) fn take_way_out(&mut self) -> Option<OwnedFd> {
        match self {
            Body::Native(running) => running.way_out.take(),
            Body::Docker(container) => container.way_out.take(),
            Body::Gvisor(_) => None,
        }
    }

    pub(crate) fn protections(&self) -> Vec<Protection> {
        match self {
            Body::Native(running) => running.protections().to_vec(),
            Body::Gvisor(running) => running.protections().to_vec(),
            Body::Docker(container) => container.protections().to_vec(),
        }
    }

    pub(crate) async fn wait(self) -> Result<Outcome, Error> {
        match self {
            Body::Native(running) => running.wait().await,
            Body::Gvisor(running) => running.wait().await,
            Body::Docker(container) => container.wait().await,
        }
    }
}

impl Reins {
    /// Ends the box now, also one that is held still.
    pub(crate) fn kill(&self) {
        match self {
            Reins::Native { handle, freezer, .. } => {
                handle.kill();
                if let Some(freezer) = freezer {
                    let _ = freezer.thaw();
                }
            }
            Reins::Gvisor(handle) => handle.kill(),
            Reins::Docker { handle, .. } => handle.kill(),
        }
    }

    pub(crate) async fn pause(&self, pause: Pause) -> Result<(), Error> {
        match self {
            Reins::Native { freezer: Some(freezer), .. } => match pause {
                Pause::Begin => freezer.freeze().await,
                Pause::End => freezer.thaw(),
            }
            .map_err(|errno| Error::NotPaused { why: errno.to_string() }),
            // PID 1 passes them on to everybody but itself; neither can be refused.
            Reins::Native { handle, freezer: None, .. } => {
                handle.signal(match pause {
                    Pause::Begin => SIGSTOP,
                    Pause::End => SIGCONT,
                });
                Ok(())
            }
            Reins::Gvisor(handle) => handle.pause(pause).await,
            Reins::Docker { handle, .. } => handle.pause(pause).await,
        }
    }

    /// How often something in the box was killed for its memory, as far as that is known.
    pub(crate) fn memory_kills(&self) -> u64 {
        match self {
            Reins::Native { counters, .. } => CgroupUsage::read(counters).oom_kills,
            // Memory that runs out ends gVisor's kernel, and so the box.
            Reins::Gvisor(_) => 0,
            Reins::Docker { story, .. } => story.as_ref().map_or(0, |story| story.borrow().memory_kills),
        }
    }

    /// Whether something was killed for its memory since there were so many. Asked of a visit that was killed by nobody
    /// known, whose maker may tell it a moment later.
    pub(crate) async fn has_killed_since(&self, before: u64) -> bool {
        if let Reins::Docker { story: Some(story), .. } = self {
            let mut story = story.clone();
            let told = story.wait_for(|story| story.memory_kills > before);
            return tokio::time::timeout(WORD_BEHIND, told).await.is_ok_and(|told| told.is_ok());
        }
        self.memory_kills() > before
    }
}
