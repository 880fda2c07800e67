//! The makers of boxes behind one face. Which one makes a box was decided before; no other ever stands in.

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
use crate::boxes::SessionBox;
use crate::egress::ExecGate;
use crate::error::Error;
use crate::service::Inner;

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

/// A started box, and what it uses of its session.
#[derive(Debug)]
pub(crate) struct StartedBox {
    pub(crate) running: RunningBox,
    /// For commands in a session box.
    pub(crate) session: Option<InSession>,
}

/// What a command in a session box uses of its session.
#[derive(Debug)]
pub(crate) struct InSession {
    pub(crate) home: Arc<SessionBox>,
    /// Answers the box's requests for the network while the command has it.
    pub(crate) gate: Option<Arc<ExecGate>>,
    /// Shows the output of the command's terminal.
    pub(crate) screen: Option<mpsc::Sender<Vec<u8>>>,
    pub(crate) _stay: Stay,
}

/// How a command has its session's box. The box is given back when this is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held, and let go of when it is dropped")]
pub(crate) enum Stay {
    /// No other command may start in it.
    Alone(Lease<Boxes>),
    /// Others may start in it too.
    Beside(Hold<Boxes>),
}

impl Inner {
    pub(crate) fn gvisor_home(&self) -> GvisorHome {
        match self.makers.executor.gvisor() {
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
            Backend::Docker => self.makers.docker.start(grant, exec_id, Runtime::Usual).await,
            // gVisor is a runtime of either: an image of docker's is docker's to run.
            Backend::Gvisor => match grant.root() {
                Root::Docker(_) => self.makers.docker.start(grant, exec_id, Runtime::Gvisor).await,
                Root::Host | Root::Image(_) => self.makers.executor.start_on_gvisor(grant).await,
            },
            Backend::Aio => Err(ringwall_executor::Error::NotForThisBox { what: "files" }),
            Backend::AioService => Err(AioError::NotForService("what is no code of its own workspace").into()),
        }
    }
}

impl StartedBox {
    pub(crate) fn home(&self) -> Option<&Arc<SessionBox>> {
        self.session.as_ref().map(|session| &session.home)
    }

    /// Waits for the end of the box, and gives the session's box back.
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
