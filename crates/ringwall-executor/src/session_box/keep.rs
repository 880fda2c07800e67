//! A box that stays with one session, from its grant to its end.

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

/// A box that stays.
#[derive(Debug)]
pub struct Resident {
    /// The socket at which the box asks for connections, where its grant has a network. Taken by whoever answers.
    pub proxy_socket: Option<OwnedFd>,
    awake: Awake,
    grant: Grant,
    wardrobe: Wardrobe,
}

impl Resident {
    pub(crate) async fn begin(running: RunningBox, grant: Grant, wardrobe: Wardrobe) -> Result<Self, Error> {
        Ok(Self::of(Awake::begin(running).await?, grant, wardrobe))
    }

    /// A box that was nobody's is this grant's from now on.
    pub(crate) fn of(mut awake: Awake, grant: Grant, wardrobe: Wardrobe) -> Self {
        Resident { proxy_socket: awake.proxy_socket.take(), awake, grant, wardrobe }
    }

    /// Starts a granted command in the box. When this returns it runs.
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
            // Its clock may have stood still meanwhile, and then nobody could answer.
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

    /// What holds in the box, and so for every visit.
    pub fn protections(&self) -> &[Protection] {
        &self.awake.protections
    }

    pub fn is_alive(&self) -> bool {
        self.awake.is_alive()
    }

    pub fn is_paused(&self) -> bool {
        *self.awake.shared.life.borrow() == Life::Paused
    }

    /// Waits until the box is gone to its last process, and says why.
    pub async fn died(&self) -> Death {
        self.awake.died().await
    }

    /// The same for whoever does not hold the box, and so does not keep it.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.awake.shared.life.subscribe();
        async move {
            // Without anybody left who could say so it is gone too.
            let _ = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        }
    }

    /// Holds everything in the box still, where it is. The time limits of its visits stand still too. Neither this nor its
    /// contrary is broken off by whoever stops waiting for it.
    pub async fn pause(&self) -> Result<(), Error> {
        self.awake.shared.turn(Pause::Begin).await
    }

    /// Lets the box go on.
    pub async fn resume(&self) -> Result<(), Error> {
        self.awake.shared.turn(Pause::End).await
    }

    /// Ends the box with everything in it.
    pub fn dismiss(&self) {
        self.awake.shared.end_for(Death::Ordered);
    }

    /// The same, and waits until nothing is left.
    pub async fn end(&self) {
        self.awake.end().await;
    }

    /// How much memory everything in it may have together.
    pub fn memory_mb(&self) -> u64 {
        self.grant.effective().limits.get(Field::MemoryMb)
    }
}

/// Why the command did not start, in the words of every box.
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
