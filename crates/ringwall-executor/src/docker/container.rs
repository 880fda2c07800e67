//! A container while it runs: orders go in through the client, its story comes out of the daemon's events.
//!
//! The time limit is kept here, on the monotonic clock, as for every box: SIGTERM, a moment to obey, then the end. The
//! pulse ends the wait when the daemon is gone. Dropping a container removes it.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringwall_jail::report::Protection;
use tokio::sync::watch;

use super::client::Process;
use super::daemon::Runtime;
use super::doorway::Doorway;
use super::events::{Followed, Memory, Story};
use super::launch::{Shared, unavailable};
use super::name::ContainerName;
use super::pulse::{self, Beat};
use super::sweep;
use super::usage::Meter;
use super::words::{NotStarted, Words};
use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::outcome::{Ending, Outcome};
use crate::running::Streams;
use crate::time_limit;
use crate::uids::Lease;

/// How long an order to the daemon may take, and how long the container may take to end after the last one.
const ORDERED_WITHIN: Duration = Duration::from_secs(5);
const ENDED_WITHIN: Duration = Duration::from_secs(8);
/// How long the daemon's events may be behind the client's end.
const EVENTS_BEHIND: Duration = Duration::from_secs(2);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;
const SIGPIPE: i32 = 13;
const SIGNAL_BASE: i32 = 128;
const EACCES: i32 = 13;

/// A started container.
#[derive(Debug)]
pub struct RunningContainer {
    /// Taken by whoever moves the bytes.
    pub streams: Option<Streams>,
    /// The socket at which the box asks for connections, where its grant has a network. Taken by whoever answers.
    pub way_out: Option<OwnedFd>,
    handle: ContainerHandle,
    process: Process,
    words: Words,
    followed: Option<Followed>,
    meter: Meter,
    beat: Arc<Beat>,
    began: Instant,
    errand: Errand,
    protections: Vec<Protection>,
    runtime: Runtime,
    /// Given back when it is gone.
    lease: Option<Lease>,
}

/// What a container is there for.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) command: String,
    /// None where how long it stays is for its owner to say.
    pub(crate) time_limit: Option<Duration>,
}

/// Gives orders to a running container, from anywhere.
#[derive(Debug, Clone)]
pub struct ContainerHandle {
    shared: Arc<Shared>,
    name: ContainerName,
    ordered: Arc<watch::Sender<Ordered>>,
}

/// The strongest order so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ordered {
    Nothing,
    Signal,
    End,
}

impl ContainerHandle {
    /// Sends a signal to the command. (Docker reaches PID 1 alone, which passes it on to its one child.) A container
    /// that has ended ignores it. Like every order it is carried out in the background.
    pub fn signal(&self, number: i32) {
        self.order(number, if number == SIGKILL { Ordered::End } else { Ordered::Signal });
    }

    /// Holds the whole container still, or lets it go on.
    pub(crate) async fn pause(&self, pause: Pause) -> Result<(), Error> {
        let verb = match pause {
            Pause::Begin => "pause",
            Pause::End => "unpause",
        };
        let answer = self.shared.client.call([verb, self.name.as_str()], ORDERED_WITHIN).await;
        answer.map(drop).map_err(|failure| Error::NotPaused { why: failure.why() })
    }

    /// Ends the container now.
    pub fn kill(&self) {
        self.order(SIGKILL, Ordered::End);
    }

    /// Asks with a signal, and after a moment insists.
    pub async fn stop(&self, signal: i32) {
        self.signal(signal);
        tokio::time::sleep(time_limit::GRACE).await;
        self.kill();
    }

    fn order(&self, number: i32, order: Ordered) {
        self.ordered.send_modify(|ordered| *ordered = order.max(*ordered));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, name) = (self.shared.clone(), self.name.clone());
        runtime.spawn(async move {
            let signal = format!("--signal={number}");
            // Refused when the container is over, and late when the daemon is; `wait` sees either for itself.
            let _ = shared.client.call(["kill", &signal, name.as_str()], ORDERED_WITHIN).await;
        });
    }

    /// Comes back when the container was told to end and had long enough.
    async fn overdue(&self) {
        let mut ordered = self.ordered.subscribe();
        let told = ordered.wait_for(|ordered| *ordered == Ordered::End).await.is_ok();
        if !told {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(ENDED_WITHIN).await;
    }

    fn ordered(&self) -> Ordered {
        *self.ordered.borrow()
    }
}

impl RunningContainer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut process: Process,
        followed: Followed,
        beat: Arc<Beat>,
        protections: Vec<Protection>,
        runtime: Runtime,
        errand: Errand,
    ) -> Result<Self, Error> {
        let (stdin, stdout, stderr) = match process.take_streams() {
            Some((Some(stdin), stdout, stderr)) => (stdin, stdout, stderr),
            _ => return Err(Error::ClientStreams(std::io::ErrorKind::BrokenPipe.into())),
        };
        let pipes = || -> std::io::Result<(OwnedFd, OwnedFd, OwnedFd, Words)> {
            let (our_stderr, passed_on) = std::io::pipe()?;
            let words = Words::pass_on(stderr, passed_on.into())?;
            Ok((stdin.into_owned_fd()?, stdout.into_owned_fd()?, our_stderr.into(), words))
        };
        let (stdin, stdout, stderr, words) = pipes().map_err(Error::ClientStreams)?;
        let ordered = Arc::new(watch::Sender::new(Ordered::Nothing));
        let meter = Meter::begin(followed.watch());
        shared.unremoved.fetch_add(1, Ordering::AcqRel);
        let handle = ContainerHandle { shared, name: followed.name().clone(), ordered };
        Ok(RunningContainer {
            streams: Some(Streams::Pipes { stdin, stdout, stderr }),
            way_out: None,
            handle,
            process,
            words,
            followed: Some(followed),
            meter,
            beat,
            began: Instant::now(),
            errand,
            protections,
            runtime,
            lease: None,
        })
    }

    /// Who it is on the host, for as long as it lives.
    pub(crate) fn hold(&mut self, lease: Lease) {
        self.lease = Some(lease);
    }

    /// What the daemon tells of it.
    pub(crate) fn story(&self) -> Option<watch::Receiver<Story>> {
        self.followed.as_ref().map(Followed::watch)
    }

    pub fn handle(&self) -> ContainerHandle {
        self.handle.clone()
    }

    /// What holds in the box, as the daemon says.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// Waits until the daemon has started the container, and says whether it did: a client that has ended without that
    /// is asked for its reason.
    pub(crate) async fn started(&mut self, patience: Duration) -> Result<bool, Error> {
        let Some(followed) = &self.followed else { return Ok(false) };
        let ended = tokio::select! {
            () = followed.started() => false,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => {
                status.map_err(Error::ClientStreams)?;
                true
            }
        };
        let patience = if ended { patience } else { Duration::ZERO };
        let story = followed.until(|story| story.started.is_some(), patience).await;
        // The time limit is the command's own; making the box does not count.
        self.began = story.started.unwrap_or(self.began);
        Ok(story.started.is_some())
    }

    /// Waits until the way out was handed over and the command has begun, also where both are over already.
    pub(crate) async fn take_way_out(&mut self, doorway: Doorway, patience: Duration) -> Result<(), Error> {
        let command = self.errand.command.clone();
        let taking = doorway.take_way_out(&command);
        tokio::pin!(taking);
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => {
                status.map_err(Error::ClientStreams)?;
                tokio::time::timeout(patience, taking).await.unwrap_or(Err(Error::NoWayOut))
            }
        };
        match taken {
            Ok(way_out) => self.way_out = Some(way_out),
            Err(Error::NoWayOut) => return Err(Error::WayOutWithheld { words: self.last_words(patience).await }),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(crate) async fn last_words(&mut self, patience: Duration) -> String {
        self.words.last(patience).await
    }

    /// Waits until the command has ended and the container is gone.
    pub async fn wait(mut self) -> Result<Outcome, Error> {
        let handle = self.handle();
        let deadline = self.errand.time_limit.map(|limit| self.began + limit);
        let limit = time_limit::keep(deadline, handle.stop(SIGTERM));
        let status = tokio::select! {
            status = self.process.wait() => status.map_err(Error::ClientStreams)?,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            () = handle.overdue() => {
                let why = "the container was told to end and did not".to_owned();
                return Err(unavailable(self.runtime, why));
            }
            never = limit => match never {},
        };
        self.conclude(status, deadline).await
    }

    /// The outcome of a container whose client has ended. Whatever returns early leaves the removal to `drop`.
    async fn conclude(&mut self, status: ExitStatus, deadline: Option<Instant>) -> Result<Outcome, Error> {
        let Some(followed) = &self.followed else {
            return Err(unavailable(self.runtime, "the container was not followed".to_owned()));
        };
        let story = followed.until(|story| story.removed, EVENTS_BEHIND).await;
        let counted = self.meter.read().await;
        let out_of_memory = story.memory == Memory::RanOut || counted.memory_kills > 0;
        let (ending, ended) = match (status.code(), status.signal(), story.ended) {
            (Some(code), _, Some(ended)) => {
                if let Some(why) = self.words.why_not_started(code, EVENTS_BEHIND).await {
                    let command = self.errand.command.clone();
                    return Err(match why {
                        NotStarted::NotFound => Error::CommandNotFound { command },
                        NotStarted::NotExecutable => Error::CommandNotExecutable { command, errno: EACCES },
                    });
                }
                let by_others = story.signals > 0 && self.handle.ordered() == Ordered::Nothing;
                if by_others && let Err(failure) = pulse::ask(&self.handle.shared.client).await {
                    return Err(unavailable(self.runtime, failure.why()));
                }
                let was_signalled = story.signals > 0 || out_of_memory;
                let ending = match code - SIGNAL_BASE {
                    // PID 1 tells a signal only by its exit code, as a shell does. It is taken for one when a signal is
                    // known to have come from outside.
                    signal @ 1.. if was_signalled && by_others => Ending::Stopped(signal),
                    signal @ 1.. if was_signalled => Ending::Signalled(signal),
                    _ => Ending::Exited(code),
                };
                (ending, ended)
            }
            // Nobody reads the command's output any more, and the client felt it first.
            (_, Some(SIGPIPE), ended) => (Ending::Signalled(SIGPIPE), ended.unwrap_or_else(Instant::now)),
            (_, Some(signal), _) => {
                return Err(unavailable(self.runtime, format!("the docker client was ended by signal {signal}")));
            }
            (_, None, _) => {
                let words = self.words.last(EVENTS_BEHIND).await;
                let why = if words.is_empty() { "the container was lost".to_owned() } else { words };
                return Err(unavailable(self.runtime, why));
            }
        };
        if story.removed && self.followed.take().is_some() {
            self.handle.shared.unremoved.fetch_sub(1, Ordering::AcqRel);
        }
        let timed_out = deadline.is_some_and(|deadline| ended >= deadline);
        Ok(Outcome {
            ending: if timed_out { Ending::TimedOut } else { ending },
            out_of_memory,
            duration: ended.saturating_duration_since(self.began),
            usage: counted.usage,
            protections: std::mem::take(&mut self.protections),
            steps: Vec::new(),
        })
    }
}

impl Drop for RunningContainer {
    /// Whatever way we got here, no container stays. One that is known to be gone is followed no more.
    fn drop(&mut self) {
        if self.followed.take().is_some() {
            sweep::remove_later(&self.handle.shared, self.handle.name.clone());
        }
    }
}
