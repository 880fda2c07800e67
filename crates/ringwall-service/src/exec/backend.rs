//! The makers of boxes behind one face. Which one makes a box was decided before; no other ever stands in.

use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::Arc;

use ringwall_executor::aio_service::{AioError, ServiceHandle};
use ringwall_executor::docker::{ContainerHandle, RunningContainer, Runtime};
use ringwall_executor::gvisor::{GvisorHandle, RunningGvisor};
use ringwall_executor::session_box::{VisitHandle, VisitStreams};
use ringwall_executor::{Handle, Outcome, Protection, Running, Streams, backend};
use ringwall_policy::{Grant, Root};

use crate::aio::OnService;
use crate::egress::ExecGate;
use crate::error::Error;
use crate::exec::output::{Fed, Printed};
use crate::service::Inner;
use crate::session::context::{CellHandle, RunningCell, SessionBox};
use crate::session::residents::OnVisit;

const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Backend {
    Native,
    Docker,
    Gvisor,
    /// The box that stays with a session, whoever made it; nothing that an exec without a session can ask for.
    Aio,
    /// An external service, which makes no boxes on demand and so is nothing that an exec can ask for by itself.
    AioService,
}

impl Backend {
    /// Those that an exec can name.
    pub(crate) const ALL: [Self; 3] = [Self::Native, Self::Docker, Self::Gvisor];

    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Native => backend::NATIVE,
            Self::Docker => backend::DOCKER,
            Self::Gvisor => backend::GVISOR,
            Self::Aio | Self::AioService => backend::AIO,
        }
    }
}

/// Who runs, behind gVisor, what asks for no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GvisorHome {
    /// This server, with the `runsc` that it has found.
    Host,
    Docker,
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|backend| backend.key() == text);
        found.ok_or_else(|| Error::invalid("backend must be native, docker or gvisor"))
    }
}

/// A started box of any maker.
#[derive(Debug)]
pub(crate) enum Started {
    Native(Box<Running>),
    Gvisor(Box<RunningGvisor>),
    Docker(Box<RunningContainer>),
    Visit(Box<OnVisit>),
    Service(Box<OnService>),
    Cell(Box<RunningCell>),
}

/// The outer ends of a command's streams.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: Fed,
    pub(crate) stdout: Printed,
    pub(crate) stderr: Printed,
}

#[derive(Debug)]
pub(crate) enum Reins {
    Native(Handle),
    Gvisor(GvisorHandle),
    Docker(ContainerHandle),
    Visit(VisitHandle),
    Service(ServiceHandle),
    Cell(CellHandle),
}

impl Inner {
    pub(crate) fn gvisor_home(&self) -> GvisorHome {
        match self.executor.gvisor() {
            Ok(_) => GvisorHome::Host,
            Err(_) => GvisorHome::Docker,
        }
    }

    pub(crate) async fn start(
        &self,
        backend: Backend,
        grant: Grant,
        exec_id: &str,
    ) -> Result<Started, ringwall_executor::Error> {
        match backend {
            Backend::Native => self.start_native(grant).await.map(Box::new).map(Started::Native),
            Backend::Docker => {
                self.docker.start(grant, exec_id, Runtime::Usual).await.map(Box::new).map(Started::Docker)
            }
            // gVisor is a runtime of either: an image of docker's is docker's to run.
            Backend::Gvisor => match grant.root() {
                Root::Docker(_) => {
                    self.docker.start(grant, exec_id, Runtime::Gvisor).await.map(Box::new).map(Started::Docker)
                }
                Root::Host | Root::Image(_) => {
                    self.executor.start_on_gvisor(grant).await.map(Box::new).map(Started::Gvisor)
                }
            },
            Backend::Aio => Err(ringwall_executor::Error::NotForThisBox { what: "files" }),
            Backend::AioService => Err(AioError::NotForService("what is no code of its own workspace").into()),
        }
    }
}

impl Started {
    /// Nothing where they were taken already, or are a terminal of a box of its own.
    pub(crate) fn take_streams(&mut self) -> Option<Ends> {
        let streams = match self {
            Started::Native(running) => running.streams.take(),
            Started::Gvisor(running) => running.streams.take(),
            Started::Docker(container) => container.streams.take(),
            Started::Service(on_service) => on_service.running.streams.take(),
            Started::Cell(cell) => {
                let [stdout, stderr] = cell.streams.take()?.map(Printed::Cell);
                return Some(Ends { stdin: Fed::Visit(None), stdout, stderr });
            }
            Started::Visit(on_visit) => {
                let VisitStreams { stdin, stdout, stderr, .. } = on_visit.visit.streams.take()?;
                let stdout = match on_visit.screen.take() {
                    Some(screen) => Printed::Screen(stdout, screen),
                    None => Printed::Visit(stdout),
                };
                let stderr = stderr.map_or(Printed::Nothing, Printed::Visit);
                return Some(Ends { stdin: Fed::Visit(stdin), stdout, stderr });
            }
        };
        match streams? {
            Streams::Pipes { stdin, stdout, stderr } => {
                Some(Ends { stdin: Fed::Pipe(stdin), stdout: stdout.into(), stderr: stderr.into() })
            }
            Streams::Terminal(_) => None,
        }
    }

    /// Where the box asks for connections, if its grant has a network.
    pub(crate) fn take_way_out(&mut self) -> Option<OwnedFd> {
        match self {
            Started::Native(running) => running.way_out.take(),
            Started::Docker(container) => container.way_out.take(),
            Started::Gvisor(_) | Started::Visit(_) | Started::Service(_) | Started::Cell(_) => None,
        }
    }

    /// Who answers for what a command asks of the network in a box that stays, where that has one.
    pub(crate) fn gate(&self) -> Option<Arc<ExecGate>> {
        match self {
            Started::Visit(on_visit) => on_visit.gate.clone(),
            Started::Cell(cell) => cell.gate.clone(),
            Started::Native(_) | Started::Gvisor(_) | Started::Docker(_) | Started::Service(_) => None,
        }
    }

    /// The box that it shares with others of its session, if it does.
    pub(crate) fn home(&self) -> Option<&Arc<SessionBox>> {
        match self {
            Started::Visit(on_visit) => Some(&on_visit.home),
            Started::Cell(cell) => Some(&cell.home),
            Started::Native(_) | Started::Gvisor(_) | Started::Docker(_) | Started::Service(_) => None,
        }
    }

    pub(crate) fn protections(&self) -> Vec<Protection> {
        match self {
            Started::Native(running) => running.protections().to_vec(),
            Started::Gvisor(running) => running.protections().to_vec(),
            Started::Docker(container) => container.protections().to_vec(),
            Started::Visit(on_visit) => on_visit.visit.protections().to_vec(),
            Started::Service(on_service) => on_service.running.protections().to_vec(),
            Started::Cell(cell) => cell.protections.clone(),
        }
    }

    pub(crate) fn reins(&self) -> Reins {
        match self {
            Started::Native(running) => Reins::Native(running.handle()),
            Started::Gvisor(running) => Reins::Gvisor(running.handle()),
            Started::Docker(container) => Reins::Docker(container.handle()),
            Started::Visit(on_visit) => Reins::Visit(on_visit.visit.handle()),
            Started::Service(on_service) => Reins::Service(on_service.running.handle()),
            Started::Cell(cell) => Reins::Cell(cell.handle()),
        }
    }

    pub(crate) async fn wait(self) -> Result<Outcome, ringwall_executor::Error> {
        match self {
            Started::Native(running) => running.wait().await,
            Started::Gvisor(running) => running.wait().await,
            Started::Docker(container) => container.wait().await,
            Started::Visit(on_visit) => on_visit.visit.wait().await,
            Started::Service(on_service) => on_service.wait().await,
            Started::Cell(cell) => cell.wait().await,
        }
    }
}

impl Reins {
    /// Asks, and after a moment insists.
    pub(crate) async fn stop(&self) {
        match self {
            Reins::Native(handle) => handle.stop(SIGTERM).await,
            Reins::Gvisor(handle) => handle.stop(SIGTERM).await,
            Reins::Docker(handle) => handle.stop(SIGTERM).await,
            Reins::Visit(handle) => handle.stop(SIGTERM).await,
            Reins::Service(handle) => handle.stop(SIGTERM).await,
            Reins::Cell(handle) => handle.stop().await,
        }
    }

    /// Says that nobody is at its terminal any more, and after a moment insists. Only what is in a session's box has one.
    pub(crate) async fn hang_up(&self) {
        match self {
            Reins::Visit(handle) => handle.stop(SIGHUP).await,
            Reins::Native(_) | Reins::Gvisor(_) | Reins::Docker(_) | Reins::Service(_) | Reins::Cell(_) => {
                self.stop().await;
            }
        }
    }

    /// Ends it without asking. A command of a session's box ends alone, unless it takes more than that.
    pub(crate) async fn kill(&self) {
        match self {
            Reins::Native(handle) => handle.kill(),
            Reins::Gvisor(handle) => handle.kill(),
            Reins::Docker(handle) => handle.kill(),
            Reins::Visit(handle) => handle.stop(SIGKILL).await,
            Reins::Service(handle) => handle.kill(),
            Reins::Cell(handle) => handle.kill().await,
        }
    }
}
