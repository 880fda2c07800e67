//! A running container: commands to it go through the docker client, its state comes from the
//! daemon's events.
//!
//! The wait ends when `pulse` finds the daemon gone. Dropping a container removes it.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use ringwall_jail::report::Protection;
use rustix::process::Signal;
use tokio::sync::watch;

use super::client::Process;
use super::daemon::Runtime;
use super::doorway::Doorway;
use super::events::{ContainerState, Followed, Memory};
use super::launch::{Shared, unavailable};
use super::name::ContainerName;
use super::pulse::{self, Beat};
use super::sweep;
use super::usage::Meter;
use super::words::{NotStarted, Words};
use crate::error::Error;
use crate::outcome::Ending;
use crate::running::{BoxControl, BoxExit, RunningBox, StartedParts, Streams};

/// Limit for a docker command on the container, and for the end of the container after SIGKILL.
const ORDERED_WITHIN: Duration = Duration::from_secs(5);
const ENDED_WITHIN: Duration = Duration::from_secs(8);
/// The maximum delay of the daemon's events after the client's end.
const EVENTS_BEHIND: Duration = Duration::from_secs(2);
/// The maximum delay of the daemon's `oom` event after the end of the killed process.
const OOM_EVENT_DELAY: Duration = Duration::from_millis(500);
const SIGNAL_BASE: i32 = 128;
const EACCES: i32 = 13;

/// A started container, removed on drop.
#[derive(Debug)]
pub(crate) struct Container {
    streams: Streams,
    proxy_socket: Option<OwnedFd>,
    control: Arc<DockerControl>,
    process: Process,
    words: Words,
    followed: Option<Followed>,
    meter: Meter,
    beat: Arc<Beat>,
    began: Instant,
    errand: Errand,
    protections: Vec<Protection>,
    runtime: Runtime,
}

/// The command's name, for messages, and its time limit.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) command: String,
    /// `None` for a session box: its owner decides when it ends.
    pub(crate) time_limit: Option<Duration>,
}

#[derive(Debug)]
struct DockerControl {
    shared: Arc<Shared>,
    name: ContainerName,
    container_state: watch::Receiver<ContainerState>,
    ordered: watch::Sender<Ordered>,
}

/// The strongest signal sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ordered {
    Nothing,
    Signal,
    End,
}

impl BoxControl for DockerControl {
    /// Docker signals the container's PID 1, which forwards the signal to its one child. The client
    /// runs in the background and fails if the container has ended.
    fn signal(&self, signal: Signal) {
        self.order(signal, if signal == Signal::KILL { Ordered::End } else { Ordered::Signal });
    }

    fn kill(&self) {
        self.order(Signal::KILL, Ordered::End);
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.turn("pause").boxed()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.turn("unpause").boxed()
    }

    fn oom_kills(&self) -> u64 {
        self.container_state.borrow().memory_kills
    }

    /// The daemon's event may come after the end of the process.
    fn was_oom_killed_since(&self, before: u64) -> BoxFuture<'_, bool> {
        let mut container_state = self.container_state.clone();
        async move {
            let reported = container_state.wait_for(|container_state| container_state.memory_kills > before);
            tokio::time::timeout(OOM_EVENT_DELAY, reported).await.is_ok_and(|reported| reported.is_ok())
        }
        .boxed()
    }
}

impl DockerControl {
    fn order(&self, signal: Signal, order: Ordered) {
        self.ordered.send_modify(|ordered| *ordered = order.max(*ordered));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, name) = (self.shared.clone(), self.name.clone());
        runtime.spawn(async move {
            let option = format!("--signal={}", signal.as_raw());
            // Fails if the container has ended, or times out if the daemon hangs; `follow` notices
            // both.
            let _ = shared.client.call(["kill", &option, name.as_str()], ORDERED_WITHIN).await;
        });
    }

    async fn turn(&self, verb: &str) -> Result<(), Error> {
        let answer = self.shared.client.call([verb, self.name.as_str()], ORDERED_WITHIN).await;
        answer.map(drop).map_err(|failure| Error::NotPaused { why: failure.why() })
    }

    /// Returns [`ENDED_WITHIN`] after the container was killed.
    async fn overdue(&self) {
        let mut ordered = self.ordered.subscribe();
        let told = ordered.wait_for(|ordered| *ordered == Ordered::End).await.is_ok();
        if !told {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(ENDED_WITHIN).await;
    }
}

impl Container {
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
        let pipes = || -> std::io::Result<(Streams, Words)> {
            let (our_stderr, passed_on) = std::io::pipe()?;
            let words = Words::pass_on(stderr, passed_on.into())?;
            Ok((Streams::of_pipes(stdin.into_owned_fd()?, stdout.into_owned_fd()?, our_stderr.into()), words))
        };
        let (streams, words) = pipes().map_err(Error::ClientStreams)?;
        let meter = Meter::begin(followed.watch());
        shared.unremoved.fetch_add(1, Ordering::AcqRel);
        let control = DockerControl {
            shared,
            name: followed.name().clone(),
            container_state: followed.watch(),
            ordered: watch::Sender::new(Ordered::Nothing),
        };
        Ok(Container {
            streams,
            proxy_socket: None,
            control: Arc::new(control),
            process,
            words,
            followed: Some(followed),
            meter,
            beat,
            began: Instant::now(),
            errand,
            protections,
            runtime,
        })
    }

    /// Waits until the daemon has started the container. `false` if the client ended without that;
    /// `last_words` then has the reason.
    pub(crate) async fn started(&mut self, timeout: Duration) -> Result<bool, Error> {
        let Some(followed) = &self.followed else { return Ok(false) };
        let ended = tokio::select! {
            () = followed.started() => false,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => {
                status.map_err(Error::ClientStreams)?;
                true
            }
        };
        let timeout = if ended { timeout } else { Duration::ZERO };
        let container_state = followed.until(|container_state| container_state.started.is_some(), timeout).await;
        // Making the container does not count against the time limit.
        self.began = container_state.started.unwrap_or(self.began);
        Ok(container_state.started.is_some())
    }

    /// Waits until the shim has sent the proxy socket and executed the command. If the client has
    /// ended already, waits at most `timeout` for them.
    pub(crate) async fn take_proxy_socket(&mut self, doorway: Doorway, timeout: Duration) -> Result<(), Error> {
        let command = self.errand.command.clone();
        let taking = doorway.take_proxy_socket(&command);
        tokio::pin!(taking);
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => {
                status.map_err(Error::ClientStreams)?;
                tokio::time::timeout(timeout, taking).await.unwrap_or(Err(Error::NoProxySocket))
            }
        };
        match taken {
            Ok(proxy_socket) => self.proxy_socket = Some(proxy_socket),
            Err(Error::NoProxySocket) => return Err(Error::EgressWithheld { words: self.last_words(timeout).await }),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(crate) async fn last_words(&mut self, timeout: Duration) -> String {
        self.words.last(timeout).await
    }

    pub(crate) fn into_running(mut self) -> RunningBox {
        RunningBox::new(StartedParts {
            streams: std::mem::take(&mut self.streams),
            proxy_socket: self.proxy_socket.take(),
            protections: std::mem::take(&mut self.protections),
            control: Arc::clone(&self.control) as Arc<dyn BoxControl>,
            started_at: self.began,
            time_limit: self.errand.time_limit,
            exit: self.follow().boxed(),
        })
    }

    /// Waits until the command has ended and, up to [`EVENTS_BEHIND`], until the container is
    /// removed.
    async fn follow(mut self) -> Result<BoxExit, Error> {
        let control = Arc::clone(&self.control);
        let status = tokio::select! {
            status = self.process.wait() => status.map_err(Error::ClientStreams)?,
            why = self.beat.failed() => return Err(unavailable(self.runtime, why)),
            () = control.overdue() => {
                let why = "the container was told to end and did not".to_owned();
                return Err(unavailable(self.runtime, why));
            }
        };
        self.conclude(status).await
    }

    /// Determines the outcome after the client has ended. If this returns early, `drop` removes the
    /// container.
    async fn conclude(&mut self, status: ExitStatus) -> Result<BoxExit, Error> {
        let Some(followed) = &self.followed else {
            return Err(unavailable(self.runtime, "the container was not followed".to_owned()));
        };
        let container_state = followed.until(|container_state| container_state.removed, EVENTS_BEHIND).await;
        let counted = self.meter.read().await;
        let out_of_memory = container_state.memory == Memory::RanOut || counted.memory_kills > 0;
        let (ending, ended) = match (status.code(), status.signal(), container_state.ended) {
            (Some(code), _, Some(ended)) => {
                if let Some(why) = self.words.why_not_started(code, EVENTS_BEHIND).await {
                    let command = self.errand.command.clone();
                    return Err(match why {
                        NotStarted::NotFound => Error::CommandNotFound { command },
                        NotStarted::NotExecutable => Error::CommandNotExecutable { command, errno: EACCES },
                    });
                }
                let by_others = container_state.signals > 0 && *self.control.ordered.borrow() == Ordered::Nothing;
                if by_others && let Err(failure) = pulse::ask(&self.control.shared.client).await {
                    return Err(unavailable(self.runtime, failure.why()));
                }
                let was_signalled = container_state.signals > 0 || out_of_memory;
                let ending = match code - SIGNAL_BASE {
                    // PID 1 reports a signal only as an exit code above 128, as a shell does. It
                    // counts as a signal if one is known to have been sent from outside or memory
                    // ran out.
                    signal @ 1.. if was_signalled && by_others => Ending::Stopped(signal),
                    signal @ 1.. if was_signalled => Ending::Signalled(signal),
                    _ => Ending::Exited(code),
                };
                (ending, ended)
            }
            // The client got SIGPIPE: the reader of the command's output is gone.
            (_, Some(signal), ended) if signal == Signal::PIPE.as_raw() => {
                (Ending::Signalled(signal), ended.unwrap_or_else(Instant::now))
            }
            (_, Some(signal), _) => {
                return Err(unavailable(self.runtime, format!("the docker client was ended by signal {signal}")));
            }
            (_, None, _) => {
                let words = self.words.last(EVENTS_BEHIND).await;
                let why = if words.is_empty() { "the container was lost".to_owned() } else { words };
                return Err(unavailable(self.runtime, why));
            }
        };
        if container_state.removed && self.followed.take().is_some() {
            self.control.shared.unremoved.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(BoxExit {
            ending,
            duration: ended.saturating_duration_since(self.began),
            out_of_memory,
            usage: counted.usage,
            steps: Vec::new(),
        })
    }
}

impl Drop for Container {
    /// Removes the container unless it is known to be gone.
    fn drop(&mut self) {
        if self.followed.take().is_some() {
            sweep::remove_later(&self.control.shared, self.control.name.clone());
        }
    }
}
