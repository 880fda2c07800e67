//! A box that stays, from its agent's first word to its end.
//!
//! Three tasks are around it: one speaks, one listens, one waits for the end of the box and tells everybody. The box ends
//! with its value; when nobody is left who holds it, nothing of it stays.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use jail::report::{Protection, ProtectionName};
use jail::resident::frame::{Given, ToAgent};
use policy::{Field, Grant};
use tokio::sync::mpsc;

use super::admit::admit;
use super::listen::{ignore, listen, speak};
use super::lower::Wardrobe;
use super::register::{Death, Life, Progress, Shared, Wanted};
use super::reins::Body;
use super::visit::{Channel, RunningVisit, VisitOptions};
use crate::error::Error;
use crate::freezer::Pause;
use crate::outcome::Outcome;
use crate::running::Streams;
use crate::time_limit;

/// How long the agent may take for its first word, and to start a command.
const PATIENCE: Duration = Duration::from_secs(10);
/// Orders that wait because the agent is busy.
const MOST_URGENT: usize = 16 * 1024;
const MOST_ORDERS: usize = 16;
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const ENOTTY: i32 = 25;

/// A box that stays.
#[derive(Debug)]
pub struct Resident {
    /// The socket at which the box asks for connections, where its grant has a network. Taken by whoever answers.
    pub way_out: Option<OwnedFd>,
    shared: Arc<Shared>,
    grant: Grant,
    wardrobe: Wardrobe,
    protections: Vec<Protection>,
}

impl Resident {
    pub(crate) async fn begin(mut body: Body, grant: Grant, wardrobe: Wardrobe) -> Result<Self, Error> {
        let Some(Streams::Pipes { stdin, stdout, stderr }) = body.take_streams() else { return Err(Error::JailDied) };
        let (urgent, urgent_out) = mpsc::channel(MOST_URGENT);
        let (orders, orders_out) = mpsc::channel(MOST_ORDERS);
        let shared = Arc::new(Shared::new(body.reins(), urgent, orders));
        let (protections, way_out) = (body.protections(), body.take_way_out());
        tokio::spawn(speak(stdin, urgent_out, orders_out));
        tokio::spawn(listen(stdout, Arc::clone(&shared)));
        tokio::spawn(ignore(stderr));
        tokio::spawn(follow(body, Arc::clone(&shared)));
        // From here on dropping it ends the box.
        let mut resident = Resident { way_out, shared, grant, wardrobe, protections };
        let mut life = resident.shared.life.subscribe();
        match tokio::time::timeout(PATIENCE, life.wait_for(|life| *life != Life::Waking)).await {
            Ok(Ok(life)) => match &*life {
                Life::Over(death) => return Err(death.to_error()),
                Life::Waking | Life::Awake | Life::Paused => {}
            },
            Ok(Err(_)) | Err(_) => return Err(Error::NoAnswer { from: "the agent in the box" }),
        }
        resident.protections.push(match resident.shared.apart.get() {
            Some(Given::Yes) => Protection::enforced(ProtectionName::CommandsApart),
            Some(Given::No) | None => {
                Protection::not_available(ProtectionName::CommandsApart, "there is no Landlock in this box")
            }
        });
        Ok(resident)
    }

    /// Starts a granted command in the box. When this returns it runs.
    pub async fn visit(&self, grant: Grant, options: VisitOptions) -> Result<RunningVisit, Error> {
        admit(&self.grant, &grant)?;
        match &*self.shared.life.borrow() {
            Life::Paused => return Err(Error::BoxPaused),
            Life::Waking | Life::Awake | Life::Over(_) => {}
        }
        let VisitOptions { terminal, channel, stdin } = options;
        let channel = match channel {
            Channel::None => Given::No,
            Channel::Open => Given::Yes,
        };
        let stdin = if terminal.is_some() { Given::Yes } else { stdin };
        let start = self.wardrobe.dress(&grant, terminal, channel, stdin)?;
        let stderr = if terminal.is_some() { Given::No } else { Given::Yes };
        let memory_kills = self.shared.reins.memory_kills();
        let registered = self.shared.register(Wanted { stdin, stderr, channel })?;
        let mut progress = registered.progress.clone();
        let mut visit = RunningVisit::new(
            Arc::clone(&self.shared),
            registered,
            self.protections.clone(),
            time_limit::of(&grant),
            memory_kills,
        );
        let begun = async {
            if let Some(place) = self.shared.place_to_send().await {
                place.send(&ToAgent::Start { visit: visit.id(), start: Box::new(start) });
            }
            progress.wait_for(|progress| *progress != Progress::Asked).await.map(|progress| progress.clone())
        };
        let begun = match tokio::time::timeout(PATIENCE, begun).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => Progress::Lost(Death::Itself("it was forgotten".to_owned())),
            // Its clock may have stood still meanwhile, and then nobody could answer.
            Err(_) if *self.shared.life.borrow() == Life::Paused => return Err(Error::BoxPaused),
            Err(_) => {
                self.shared.end_for(Death::Itself("its agent did not answer".to_owned()));
                return Err(Error::NoAnswer { from: "the agent in the box" });
            }
        };
        match begun {
            Progress::NotStarted { errno, tried } => Err(not_started(&grant, errno, tried)),
            Progress::Lost(death) => Err(death.to_error()),
            Progress::Asked | Progress::Started | Progress::Exited(_) | Progress::Ended(_) => {
                visit.begin();
                Ok(visit)
            }
        }
    }

    /// What holds in the box, and so for every visit.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    pub fn is_alive(&self) -> bool {
        self.shared.doom().is_none() && !matches!(*self.shared.life.borrow(), Life::Over(_))
    }

    pub fn is_paused(&self) -> bool {
        *self.shared.life.borrow() == Life::Paused
    }

    /// Waits until the box is gone to its last process, and says why.
    pub async fn died(&self) -> Death {
        let mut life = self.shared.life.subscribe();
        let over = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        match over.as_deref() {
            Ok(Life::Over(death)) => death.clone(),
            Ok(Life::Waking | Life::Awake | Life::Paused) | Err(_) => Death::Ordered,
        }
    }

    /// The same for whoever does not hold the box, and so does not keep it.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut life = self.shared.life.subscribe();
        async move {
            // Without anybody left who could say so it is gone too.
            let _ = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        }
    }

    /// Holds everything in the box still, where it is. The time limits of its visits stand still too. Neither this nor its
    /// contrary is broken off by whoever stops waiting for it.
    pub async fn pause(&self) -> Result<(), Error> {
        self.shared.turn(Pause::Begin).await
    }

    /// Lets the box go on.
    pub async fn resume(&self) -> Result<(), Error> {
        self.shared.turn(Pause::End).await
    }

    /// Ends the box with everything in it.
    pub fn dismiss(&self) {
        self.shared.end_for(Death::Ordered);
    }

    /// The same, and waits until nothing is left.
    pub async fn end(&self) {
        self.dismiss();
        self.died().await;
    }

    /// How much memory everything in it may have together.
    pub fn memory_mb(&self) -> u64 {
        self.grant.effective().limits.get(Field::MemoryMb)
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.shared.end_for(Death::Ordered);
    }
}

/// Waits for the end of the box, and tells everybody.
async fn follow(body: Body, shared: Arc<Shared>) {
    let outcome = body.wait().await;
    // Also what it was thought to have ended for comes of that.
    let ran_out = matches!(&outcome, Ok(Outcome { out_of_memory: true, .. }));
    let death = match (shared.doom().cloned(), outcome) {
        (Some(Death::Ordered), _) => Death::Ordered,
        (_, Ok(_)) if ran_out && ended_by_kernel(&shared) => Death::OutOfMemory,
        (Some(death), Ok(_)) => death,
        (None, Ok(_)) => Death::Itself("its agent has ended".to_owned()),
        (_, Err(error)) => Death::Itself(error.to_string()),
    };
    shared.bury(death);
}

/// Whether the end was none of our own: then memory that ran out is the best reason there is.
fn ended_by_kernel(shared: &Shared) -> bool {
    matches!(shared.doom(), None | Some(Death::Itself(_)))
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
