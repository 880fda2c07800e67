//! Session boxes: a box with our agent inside, which starts one *session process* after another.
//!
//! A session box is made like any other box, with the agent as its command, so all protections
//! apply, and the end of the box ends its processes. The agent is not trusted (`agent`): code in the
//! box can kill it and write in its place. Its messages are bounded, must be valid in the current
//! state (`state`), and affect only its own box; any other message ends the box.

mod admit;
mod agent;
mod pause;
mod process;
mod process_spec;
mod state;
mod streams;
mod writer;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_jail::agent::frame::ToAgent;
use ringwall_jail::report::Protection;
use ringwall_policy::{Field, Grant};
use rustix::io::Errno;

pub(crate) use process_spec::ProcessDefaults;

pub use process::{ProcessOptions, ProcessStreams, SessionProcess, StartedProcess};
pub use ringwall_jail::agent::frame::Enabled;
pub use state::Death;
pub use streams::{ProcessInput, ProcessOutput};

use crate::cgroup::freezer::Pause;
use crate::error::Error;
use crate::running::{RunningBox, time_limit};
use admit::admit;
use agent::TIMEOUT;
use process::ProcessGuard;
use state::{BoxState, Progress, Shared};

/// A session box. Dropping it kills the box.
#[derive(Debug)]
pub struct SessionBox {
    /// The listening socket of the egress proxy if the grant has a network. Taken by the code that
    /// serves it.
    pub proxy_socket: Option<OwnedFd>,
    shared: Arc<Shared>,
    protections: Vec<Protection>,
    grant: Grant,
    defaults: ProcessDefaults,
}

impl SessionBox {
    /// Returns after the agent's first message.
    pub(crate) async fn begin(mut running: RunningBox, grant: Grant, defaults: ProcessDefaults) -> Result<Self, Error> {
        let (proxy_socket, protections) = (running.proxy_socket.take(), running.protections.clone());
        let shared = agent::connect(running).await?;
        // From here on, dropping the value kills the box.
        let mut session_box = SessionBox { proxy_socket, shared, protections, grant, defaults };
        session_box.protections.push(agent::ready(&session_box.shared).await?);
        Ok(session_box)
    }

    /// Starts a command in the box and returns when it runs.
    pub async fn process(&self, grant: Grant, mut options: ProcessOptions) -> Result<StartedProcess, Error> {
        admit(&self.grant, &grant)?;
        let shared = &self.shared;
        if self.is_paused() {
            return Err(Error::BoxPaused);
        }
        if options.terminal.is_some() {
            options.stdin = Enabled::Yes;
        }
        let spec = self.defaults.process_spec(&grant, options)?;
        let oom_kills = shared.control.oom_kills();
        let (process, streams, buffers) = shared.register(options)?;
        let (id, mut progress) = (process.id(), process.progress());
        let process = ProcessGuard::new(process, buffers, time_limit(&grant), oom_kills);
        let started = async {
            if let Some(ticket) = shared.writer.reserve().await {
                ticket.send(&ToAgent::Start { process: id, spec: Box::new(spec) });
            }
            progress.wait_for(|progress| *progress != Progress::Requested).await.map(|progress| progress.clone())
        };
        let started = match tokio::time::timeout(TIMEOUT, started).await {
            Ok(Ok(started)) => started,
            Ok(Err(_)) => return Err(process::no_result()),
            // A pause during the start explains a missing answer.
            Err(_) if self.is_paused() => return Err(Error::BoxPaused),
            Err(_) => {
                shared.kill_for("its agent did not answer");
                return Err(Error::NoAnswer { from: "the agent in the box", timeout: TIMEOUT });
            }
        };
        match started {
            Progress::NotStarted { errno, tried } => Err(not_started(&grant, errno, tried)),
            Progress::Lost(death) => Err(death.to_error()),
            Progress::Requested | Progress::Started | Progress::Exited(_) | Progress::Ended(_) => {
                Ok(process.begin(streams, self.protections.clone()))
            }
        }
    }

    /// The protections of the box, which hold for every process in it.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    pub fn is_alive(&self) -> bool {
        self.shared.kill_reason().is_none() && !matches!(*self.shared.state.borrow(), BoxState::Dead(_))
    }

    pub fn is_paused(&self) -> bool {
        *self.shared.state.borrow() == BoxState::Paused
    }

    /// Waits for the last process of the box and returns the reason of its end.
    pub async fn died(&self) -> Death {
        let mut state = self.shared.state.subscribe();
        let dead = state.wait_for(|state| matches!(state, BoxState::Dead(_))).await;
        match dead.as_deref() {
            Ok(BoxState::Dead(death)) => death.clone(),
            Ok(BoxState::Starting | BoxState::Running | BoxState::Paused) | Err(_) => Death::Stopped,
        }
    }

    /// The same without a reference that keeps the box alive.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.shared.state.subscribe();
        async move {
            // A closed channel also means that the box is gone.
            let _ = state.wait_for(|state| matches!(state, BoxState::Dead(_))).await;
        }
    }

    /// Pauses all processes of the box; their time limits stop too. Dropping the future does not
    /// interrupt the change.
    pub async fn pause(&self) -> Result<(), Error> {
        self.shared.set_pause(Pause::Begin).await
    }

    pub async fn resume(&self) -> Result<(), Error> {
        self.shared.set_pause(Pause::End).await
    }

    /// Kills the box and returns before its last process has ended.
    pub fn kill(&self) {
        self.shared.kill(Death::Stopped);
    }

    /// Kills the box and waits for its last process.
    pub async fn end(&self) {
        self.kill();
        self.died().await;
    }

    /// The memory limit of the box.
    pub fn memory_mb(&self) -> u64 {
        self.grant.effective().limits.get(Field::MemoryMb)
    }
}

impl Drop for SessionBox {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The error of a command that did not start, the same as for other boxes.
fn not_started(grant: &Grant, errno: i32, tried: String) -> Error {
    let directory = || grant.cwd().to_owned();
    match (Errno::from_raw_os_error(errno), tried.is_empty()) {
        (Errno::NOENT, true) => Error::DirectoryMissing(directory()),
        (Errno::NOTDIR, true) => Error::NotADirectory(directory()),
        (Errno::NOENT, false) => Error::CommandNotFound { command: tried },
        (Errno::NOTTY, true) => Error::NoTerminal,
        _ => {
            let command = grant.argv().first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
            Error::CommandNotExecutable { command, errno }
        }
    }
}
