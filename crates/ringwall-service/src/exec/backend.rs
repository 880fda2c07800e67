//! Starts a single-use box on the backend that was chosen at submit. No other backend replaces one
//! that is unavailable.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ringwall_executor::aio_service::AioError;
use ringwall_executor::docker::Runtime;
use ringwall_executor::pool::{Hold, Lease};
use ringwall_executor::{Outcome, RunningBox, backend};
use ringwall_policy::{Grant, Root};
use tokio::sync::mpsc;

use crate::boxes::Boxes;
use crate::boxes::PooledBox;
use crate::egress::ExecGate;
use crate::error::Error;
use crate::service::Inner;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Backend {
    Native,
    Docker,
    Gvisor,
    /// The session box, created by any backend. Not available to execs without a session.
    Aio,
    /// An external AIO service. It creates no boxes on demand, so a request cannot name it.
    AioService,
}

impl Backend {
    /// The backends that a request can name.
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

/// How gVisor runs an exec that needs no image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GvisorHome {
    /// With the `runsc` that this server found.
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

/// A started box, and its use of the session.
#[derive(Debug)]
pub(crate) struct StartedBox {
    pub(crate) running: RunningBox,
    /// Set for commands in a session box.
    pub(crate) session: Option<InSession>,
}

/// The session resources of a command in a session box.
#[derive(Debug)]
pub(crate) struct InSession {
    pub(crate) home: Arc<PooledBox>,
    /// Decides on the box's connections while this command uses it.
    pub(crate) gate: Option<Arc<ExecGate>>,
    /// Receives the output of the command's terminal.
    pub(crate) screen: Option<mpsc::Sender<Vec<u8>>>,
    pub(crate) _stay: Stay,
}

/// A command's use of its session box. Released when dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held, and let go of when it is dropped")]
pub(crate) enum Stay {
    /// Exclusive: no other command may start in the box.
    UntilStopped(Lease<Boxes>),
    /// Shared: other commands may start in the box.
    Beside(Hold<Boxes>),
}

impl Inner {
    pub(crate) fn gvisor_home(&self) -> GvisorHome {
        match self.backends.executor.gvisor() {
            Ok(_) => GvisorHome::Host,
            Err(_) => GvisorHome::Docker,
        }
    }

    pub(crate) async fn start(
        &self,
        backend: Backend,
        grant: Grant,
        exec_id: &str,
    ) -> Result<RunningBox, ringwall_executor::Error> {
        match backend {
            Backend::Native => self.start_native(grant).await,
            Backend::Docker => self.backends.docker.start(grant, exec_id, Runtime::Default).await,
            // Docker runs its own images with gVisor as the runtime.
            Backend::Gvisor => match grant.root() {
                Root::Docker(_) => self.backends.docker.start(grant, exec_id, Runtime::Gvisor).await,
                Root::Host | Root::Image(_) => self.backends.executor.start_on_gvisor(grant).await,
            },
            Backend::Aio => Err(ringwall_executor::Error::NotForThisBox { what: "files" }),
            Backend::AioService => Err(AioError::NotForService("what is no code of its own workspace").into()),
        }
    }
}

impl StartedBox {
    pub(crate) fn home(&self) -> Option<&Arc<PooledBox>> {
        self.session.as_ref().map(|session| &session.home)
    }

    /// Waits for the end of the box, then releases the session box.
    pub(crate) async fn wait(self) -> Result<Outcome, ringwall_executor::Error> {
        let outcome = self.running.wait().await;
        drop(self.session);
        outcome
    }
}

impl From<RunningBox> for StartedBox {
    fn from(running: RunningBox) -> Self {
        Self { running, session: None }
    }
}
