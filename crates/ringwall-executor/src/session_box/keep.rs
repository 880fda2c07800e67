//! A session box, from its grant to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_jail::agent::frame::{Enabled, ToAgent};
use ringwall_jail::report::Protection;
use ringwall_policy::{Field, Grant};

use super::admit::admit;
use super::awake::{Awake, TIMEOUT};
use super::lower::Wardrobe;
use super::process::{Channel, StartedProcess, Visit, VisitOptions};
use super::register::{Death, Life, Progress, Wanted};
use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::running::{RunningBox, time_limit};

const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const ENOTTY: i32 = 25;

/// A session box.
#[derive(Debug)]
pub struct Resident {
    /// The listening socket of the egress proxy if the grant has a network. Taken by the code that
    /// serves it.
    pub proxy_socket: Option<OwnedFd>,
    awake: Awake,
    grant: Grant,
    wardrobe: Wardrobe,
}

impl Resident {
    pub(crate) async fn begin(running: RunningBox, grant: Grant, wardrobe: Wardrobe) -> Result<Self, Error> {
        Ok(Self::of(Awake::begin(running).await?, grant, wardrobe))
    }

    /// Gives a box without a grant this grant.
    pub(crate) fn of(mut awake: Awake, grant: Grant, wardrobe: Wardrobe) -> Self {
        Resident { proxy_socket: awake.proxy_socket.take(), awake, grant, wardrobe }
    }

    /// Starts a command in the box and returns when it runs.
    pub async fn visit(&self, grant: Grant, options: VisitOptions) -> Result<StartedProcess, Error> {
        admit(&self.grant, &grant)?;
        match &*self.awake.shared.life.borrow() {
            Life::Paused => return Err(Error::BoxPaused),
            Life::Waking | Life::Awake | Life::Over(_) => {}
        }
        let VisitOptions { terminal, channel, stdin } = options;
        let channel = match channel {
            Channel::None => Enabled::No,
            Channel::Open => Enabled::Yes,
        };
        let stdin = if terminal.is_some() { Enabled::Yes } else { stdin };
        let start = self.wardrobe.dress(&grant, terminal, channel, stdin)?;
        let stderr = if terminal.is_some() { Enabled::No } else { Enabled::Yes };
        let memory_kills = self.awake.shared.control.oom_kills();
        let registered = self.awake.shared.register(Wanted { stdin, stderr, channel })?;
        let mut progress = registered.progress.clone();
        let (visit, streams) = Visit::new(Arc::clone(&self.awake.shared), registered, time_limit(&grant), memory_kills);
        let begun = async {
            if let Some(place) = self.awake.shared.mouth.place().await {
                place.say(&ToAgent::Start { process: visit.id(), spec: Box::new(start) });
            }
            progress.wait_for(|progress| *progress != Progress::Asked).await.map(|progress| progress.clone())
        };
        let begun = match tokio::time::timeout(TIMEOUT, begun).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => Progress::Lost(Death::Itself("it was forgotten".to_owned())),
            // A pause during the start explains a missing answer.
            Err(_) if *self.awake.shared.life.borrow() == Life::Paused => return Err(Error::BoxPaused),
            Err(_) => {
                self.awake.shared.end_for(Death::Itself("its agent did not answer".to_owned()));
                return Err(Error::NoAnswer { from: "the agent in the box", timeout: TIMEOUT });
            }
        };
        match begun {
            Progress::NotStarted { errno, tried } => Err(not_started(&grant, errno, tried)),
            Progress::Lost(death) => Err(death.to_error()),
            Progress::Asked | Progress::Started | Progress::Exited(_) | Progress::Ended(_) => {
                Ok(visit.begin(streams, self.awake.protections.clone()))
            }
        }
    }

    /// The protections of the box, which hold for every process in it.
    pub fn protections(&self) -> &[Protection] {
        &self.awake.protections
    }

    pub fn is_alive(&self) -> bool {
        self.awake.is_alive()
    }

    pub fn is_paused(&self) -> bool {
        *self.awake.shared.life.borrow() == Life::Paused
    }

    /// Waits for the last process of the box and returns the reason of its end.
    pub async fn died(&self) -> Death {
        self.awake.died().await
    }

    /// The same without a reference that keeps the box alive.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.awake.shared.life.subscribe();
        async move {
            // A closed channel also means that the box is gone.
            let _ = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        }
    }

    /// Pauses all processes of the box; time limits stop too. Dropping the future does not
    /// interrupt the change.
    pub async fn pause(&self) -> Result<(), Error> {
        self.awake.shared.turn(Pause::Begin).await
    }

    /// Resumes the box.
    pub async fn resume(&self) -> Result<(), Error> {
        self.awake.shared.turn(Pause::End).await
    }

    /// Ends the box and all its processes.
    pub fn dismiss(&self) {
        self.awake.shared.end_for(Death::Ordered);
    }

    /// The same, and waits for the last process.
    pub async fn end(&self) {
        self.awake.end().await;
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
