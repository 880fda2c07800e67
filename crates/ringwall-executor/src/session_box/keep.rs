//! A session box, from its grant to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_jail::agent::frame::{Enabled, ToAgent};
use ringwall_jail::report::Protection;
use ringwall_policy::{Field, Grant};

use super::admit::admit;
use super::agent::{AgentConnection, TIMEOUT};
use super::lower::Wardrobe;
use super::process::{Channel, ProcessGuard, ProcessOptions, StartedProcess};
use super::register::{Death, Life, Progress, Wanted};
use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::running::{RunningBox, time_limit};

const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const ENOTTY: i32 = 25;

/// A session box.
#[derive(Debug)]
pub struct SessionBox {
    /// The listening socket of the egress proxy if the grant has a network. Taken by the code that
    /// serves it.
    pub proxy_socket: Option<OwnedFd>,
    agent: AgentConnection,
    grant: Grant,
    wardrobe: Wardrobe,
}

impl SessionBox {
    pub(crate) async fn begin(running: RunningBox, grant: Grant, wardrobe: Wardrobe) -> Result<Self, Error> {
        let mut agent = AgentConnection::begin(running).await?;
        Ok(SessionBox { proxy_socket: agent.proxy_socket.take(), agent, grant, wardrobe })
    }

    /// Starts a command in the box and returns when it runs.
    pub async fn process(&self, grant: Grant, options: ProcessOptions) -> Result<StartedProcess, Error> {
        admit(&self.grant, &grant)?;
        match &*self.agent.shared.life.borrow() {
            Life::Paused => return Err(Error::BoxPaused),
            Life::Waking | Life::AgentConnection | Life::Over(_) => {}
        }
        let ProcessOptions { terminal, channel, stdin } = options;
        let channel = match channel {
            Channel::None => Enabled::No,
            Channel::Open => Enabled::Yes,
        };
        let stdin = if terminal.is_some() { Enabled::Yes } else { stdin };
        let start = self.wardrobe.dress(&grant, terminal, channel, stdin)?;
        let stderr = if terminal.is_some() { Enabled::No } else { Enabled::Yes };
        let memory_kills = self.agent.shared.control.oom_kills();
        let registered = self.agent.shared.register(Wanted { stdin, stderr, channel })?;
        let mut progress = registered.progress.clone();
        let (process, streams) =
            ProcessGuard::new(Arc::clone(&self.agent.shared), registered, time_limit(&grant), memory_kills);
        let begun = async {
            if let Some(place) = self.agent.shared.writer.place().await {
                place.say(&ToAgent::Start { process: process.id(), spec: Box::new(start) });
            }
            progress.wait_for(|progress| *progress != Progress::Asked).await.map(|progress| progress.clone())
        };
        let begun = match tokio::time::timeout(TIMEOUT, begun).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => Progress::Lost(Death::Itself("it was forgotten".to_owned())),
            // A pause during the start explains a missing answer.
            Err(_) if *self.agent.shared.life.borrow() == Life::Paused => return Err(Error::BoxPaused),
            Err(_) => {
                self.agent.shared.end_for(Death::Itself("its agent did not answer".to_owned()));
                return Err(Error::NoAnswer { from: "the agent in the box", timeout: TIMEOUT });
            }
        };
        match begun {
            Progress::NotStarted { errno, tried } => Err(not_started(&grant, errno, tried)),
            Progress::Lost(death) => Err(death.to_error()),
            Progress::Asked | Progress::Started | Progress::Exited(_) | Progress::Ended(_) => {
                Ok(process.begin(streams, self.agent.protections.clone()))
            }
        }
    }

    /// The protections of the box, which hold for every process in it.
    pub fn protections(&self) -> &[Protection] {
        &self.agent.protections
    }

    pub fn is_alive(&self) -> bool {
        self.agent.is_alive()
    }

    pub fn is_paused(&self) -> bool {
        *self.agent.shared.life.borrow() == Life::Paused
    }

    /// Waits for the last process of the box and returns the reason of its end.
    pub async fn died(&self) -> Death {
        self.agent.died().await
    }

    /// The same without a reference that keeps the box alive.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.agent.shared.life.subscribe();
        async move {
            // A closed channel also means that the box is gone.
            let _ = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        }
    }

    /// Pauses all processes of the box; time limits stop too. Dropping the future does not
    /// interrupt the change.
    pub async fn pause(&self) -> Result<(), Error> {
        self.agent.shared.turn(Pause::Begin).await
    }

    /// Resumes the box.
    pub async fn resume(&self) -> Result<(), Error> {
        self.agent.shared.turn(Pause::End).await
    }

    /// Ends the box and all its processes.
    pub fn dismiss(&self) {
        self.agent.shared.end_for(Death::Ordered);
    }

    /// The same, and waits for the last process.
    pub async fn end(&self) {
        self.agent.end().await;
    }

    /// The memory limit of the box.
    pub fn memory_mb(&self) -> u64 {
        self.grant.effective().limits.get(Field::MemoryMb)
    }
}

/// The error for a command that did not start, as for every box.
fn not_started(grant: &Grant, errno: i32, tried: String) -> Error {
    let directory = || grant.cwd().to_owned();
    match errno {
        ENOENT if tried.is_empty() => Error::DirectoryMissing(directory()),
        ENOTDIR if tried.is_empty() => Error::NotADirectory(directory()),
        ENOENT => Error::CommandNotFound { command: tried },
        ENOTTY if tried.is_empty() => Error::NoTerminal,
        errno => {
            let command = grant.argv().first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            Error::CommandNotExecutable { command, errno }
        }
    }
}
