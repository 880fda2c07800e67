//! A running container: commands to it go through the docker client, its state comes from the
//! daemon's events.
//!
//! The wait ends when the health check finds the daemon gone. Dropping a container removes it.

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

use super::cleanup;
use super::client::Process;
use super::daemon::{Health, Runtime, ask_version};
use super::events::{ContainerState, Followed};
use super::instance::ContainerName;
use super::launch::{Shared, unavailable};
use super::proxy_socket::ProxySocketReceiver;
use super::stderr::StderrCopy;
use super::usage::Meter;
use crate::error::Error;
use crate::running::{BoxControl, BoxExit, Ending, RunningBox, Streams};

/// Limit for a docker command on the container, and for the end of the container after SIGKILL.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
const ENDED_WITHIN: Duration = Duration::from_secs(8);
/// The maximum delay of the daemon's events: of the start and of the removal after the client's end,
/// and of `oom` after the end of the killed process.
const START_EVENT_DELAY: Duration = Duration::from_secs(1);
const REMOVAL_EVENT_DELAY: Duration = Duration::from_secs(2);
const OOM_EVENT_DELAY: Duration = Duration::from_millis(500);
const SIGNAL_BASE: i32 = 128;

/// A started container, removed on drop.
#[derive(Debug)]
pub(crate) struct Container {
    streams: Streams,
    proxy_socket: Option<OwnedFd>,
    control: Arc<DockerControl>,
    process: Process,
    stderr: StderrCopy,
    /// `None` once the container is known to be removed.
    followed: Option<Followed>,
    meter: Meter,
    health: Arc<Health>,
    began: Instant,
    /// The command's name, for messages.
    command: String,
    /// `None` for a session box: its owner decides when it ends.
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
    runtime: Runtime,
}

#[derive(Debug)]
struct DockerControl {
    shared: Arc<Shared>,
    name: ContainerName,
    state: watch::Receiver<ContainerState>,
    sent: watch::Sender<Sent>,
}

/// The strongest signal sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Nothing,
    Signal,
    Kill,
}

impl BoxControl for DockerControl {
    /// Docker signals the container's PID 1, which forwards the signal to its one child. The client
    /// runs in the background and fails if the container has ended.
    fn signal(&self, signal: Signal) {
        let kind = if signal == Signal::KILL { Sent::Kill } else { Sent::Signal };
        self.sent.send_modify(|sent| *sent = kind.max(*sent));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (shared, name) = (self.shared.clone(), self.name.clone());
        runtime.spawn(async move {
            let option = format!("--signal={}", signal.as_raw());
            // Fails if the container has ended, or times out if the daemon hangs; `follow` notices
            // both.
            let _ = shared.client.call(["kill", &option, name.as_str()], ANSWERED_WITHIN).await;
        });
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.call("pause").boxed()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        self.call("unpause").boxed()
    }

    fn oom_kills(&self) -> u64 {
        self.state.borrow().memory_kills
    }

    /// The daemon's event may come after the end of the process.
    fn was_oom_killed_since(&self, before: u64) -> BoxFuture<'_, bool> {
        let mut state = self.state.clone();
        async move {
            let reported = state.wait_for(|state| state.memory_kills > before);
            tokio::time::timeout(OOM_EVENT_DELAY, reported).await.is_ok_and(|reported| reported.is_ok())
        }
        .boxed()
    }
}

impl DockerControl {
    async fn call(&self, verb: &str) -> Result<(), Error> {
        let answer = self.shared.client.call([verb, self.name.as_str()], ANSWERED_WITHIN).await;
        answer.map(drop).map_err(|failure| Error::NotPaused { why: failure.why() })
    }

    /// Returns [`ENDED_WITHIN`] after the container was killed.
    async fn overdue(&self) {
        let mut sent = self.sent.subscribe();
        // Waits forever without a kill: `self` keeps the sender.
        let _ = sent.wait_for(|sent| *sent == Sent::Kill).await;
        tokio::time::sleep(ENDED_WITHIN).await;
    }
}

impl Container {
    pub(crate) fn new(
        shared: Arc<Shared>,
        mut process: Process,
        followed: Followed,
        protections: Vec<Protection>,
        runtime: Runtime,
        command: String,
        time_limit: Option<Duration>,
    ) -> Result<Self, Error> {
        let (stdin, stdout, stderr) = match process.take_streams() {
            Some((Some(stdin), stdout, stderr)) => (stdin, stdout, stderr),
            _ => return Err(Error::ClientStreams(std::io::ErrorKind::BrokenPipe.into())),
        };
        let pipes = || -> std::io::Result<(Streams, StderrCopy)> {
            let (our_stderr, passed_on) = std::io::pipe()?;
            let copy = StderrCopy::start(stderr, passed_on.into())?;
            Ok((Streams::of_pipes(stdin.into_owned_fd()?, stdout.into_owned_fd()?, our_stderr.into()), copy))
        };
        let (streams, stderr) = pipes().map_err(Error::ClientStreams)?;
        let (meter, health) = (Meter::begin(followed.watch()), shared.health.watch());
        shared.unremoved.fetch_add(1, Ordering::AcqRel);
        let control = DockerControl {
            shared,
            name: followed.name().clone(),
            state: followed.watch(),
            sent: watch::Sender::new(Sent::Nothing),
        };
        Ok(Container {
            streams,
            proxy_socket: None,
            control: Arc::new(control),
            process,
            stderr,
            followed: Some(followed),
            meter,
            health,
            began: Instant::now(),
            command,
            time_limit,
            protections,
            runtime,
        })
    }

    /// Waits until the daemon has started the container. `false` if the client ended without that;
    /// `last_words` then has the reason.
    pub(crate) async fn started(&mut self) -> Result<bool, Error> {
        let Some(followed) = &self.followed else { return Ok(false) };
        tokio::select! {
            () = followed.started() => {}
            why = self.health.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => drop(status.map_err(Error::ClientStreams)?),
        }
        let state = followed.until(|state| state.started.is_some(), START_EVENT_DELAY).await;
        // Making the container does not count against the time limit.
        self.began = state.started.unwrap_or(self.began);
        Ok(state.started.is_some())
    }

    /// Waits until the shim has sent the proxy socket and executed the command.
    pub(crate) async fn receive_proxy_socket(&mut self, receiver: ProxySocketReceiver) -> Result<(), Error> {
        let taking = receiver.receive(&self.command);
        tokio::pin!(taking);
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            why = self.health.failed() => return Err(unavailable(self.runtime, why)),
            status = self.process.wait() => {
                status.map_err(Error::ClientStreams)?;
                tokio::time::timeout(START_EVENT_DELAY, taking).await.unwrap_or(Err(Error::NoProxySocket))
            }
        };
        match taken {
            Ok(proxy_socket) => self.proxy_socket = Some(proxy_socket),
            Err(Error::NoProxySocket) => {
                return Err(Error::EgressWithheld { words: self.stderr.last(START_EVENT_DELAY).await });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The end of stderr, in which the client reports why it could not start the container.
    pub(crate) async fn last_words(&mut self) -> String {
        self.stderr.last(START_EVENT_DELAY).await
    }

    pub(crate) fn into_running(mut self) -> RunningBox {
        RunningBox {
            streams: std::mem::take(&mut self.streams),
            proxy_socket: self.proxy_socket.take(),
            protections: std::mem::take(&mut self.protections),
            control: Arc::clone(&self.control) as Arc<dyn BoxControl>,
            started_at: self.began,
            time_limit: self.time_limit,
            exit: self.follow().boxed(),
        }
    }

    /// Waits until the command has ended and, up to [`REMOVAL_EVENT_DELAY`], until the container is
    /// removed.
    async fn follow(mut self) -> Result<BoxExit, Error> {
        let control = Arc::clone(&self.control);
        let status = tokio::select! {
            status = self.process.wait() => status.map_err(Error::ClientStreams)?,
            why = self.health.failed() => return Err(unavailable(self.runtime, why)),
            () = control.overdue() => {
                let why = format!("the container did not end within {} s after SIGKILL", ENDED_WITHIN.as_secs());
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
        let state = followed.until(|state| state.removed, REMOVAL_EVENT_DELAY).await;
        let counted = self.meter.read().await;
        let out_of_memory = state.memory_kills > 0 || counted.memory_kills > 0;
        let (ending, ended) = match (status.code(), status.signal(), state.ended) {
            (Some(code), _, Some(ended)) => {
                if let Some(errno) = self.stderr.exec_errno(code, REMOVAL_EVENT_DELAY).await {
                    return Err(Error::not_executed(&self.command, errno));
                }
                let by_others = state.signals > 0 && *self.control.sent.borrow() == Sent::Nothing;
                if by_others && let Err(failure) = ask_version(&self.control.shared.client).await {
                    return Err(unavailable(self.runtime, failure.why()));
                }
                let was_signalled = state.signals > 0 || out_of_memory;
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
                let words = self.stderr.last(REMOVAL_EVENT_DELAY).await;
                let why = if words.is_empty() { "the container was lost".to_owned() } else { words };
                return Err(unavailable(self.runtime, why));
            }
        };
        if state.removed && self.followed.take().is_some() {
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
            cleanup::remove_later(&self.control.shared, self.control.name.clone());
        }
    }
}
