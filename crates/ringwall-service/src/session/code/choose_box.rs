//! Chooses the isolation of a box: the one that strict mode demands, or a stronger one that the
//! request names.
//!
//! If the demanded or requested isolation is not available, the request is refused; it never falls
//! back to a weaker one. The kind of warm box that the pool keeps ready is derived here too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_executor::docker::{DockerState, Runtime};
use ringwall_executor::warm::WarmSpec;
use ringwall_policy::{
    Denial, DockerImage, Isolation, Owner, PathAccess, PathControl, Request, Root, SecurityMode, SessionMounts,
    Verdict, Workspace, choose_isolation, decide, requires_isolation,
};
use ringwall_record::SessionKey;
use ringwall_risk::Level;

use crate::boxes::WORKSPACE;
use crate::error::{Error, causes};
use crate::exec::code::{ALL_IN_ONE, CodeRequest};
use crate::exec::spec::{Backend, image_for};
use crate::service::Service;
use crate::settings::Settings;

const DOCKER_STATE_TTL: Duration = Duration::from_secs(5);

/// The backend and image for the code, and the denial if the requested isolation is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) backend: Backend,
    pub(crate) image: Option<DockerImage>,
    /// The isolation of the box; `backend` does not determine it if it is `Aio`.
    pub(crate) isolation: Isolation,
    pub(crate) denial: Option<Denial>,
}

impl Service {
    pub(super) async fn choose_box(
        &self,
        session: &SessionKey,
        asked: Option<&str>,
        mode: SecurityMode,
        level: Level,
    ) -> Result<Choice, Error> {
        let asked = match asked {
            None => None,
            Some(ALL_IN_ONE) if self.inner.service_for(&session.user_id, &session.agent_id).is_some() => {
                return self.choose_service(mode, level).await;
            }
            Some(ALL_IN_ONE) => return self.choose_session_box(mode).await,
            Some(text) => Some(read(text)?),
        };
        let demanded = if requires_isolation(mode, level) { Some(self.demanded_box().await?) } else { None };
        let settings = self.settings_now();
        let chosen = choose_isolation(asked, demanded);
        let isolation = chosen.as_ref().ok().copied().or(asked).unwrap_or(Isolation::Native);
        if chosen.is_ok() && demanded != Some(isolation) {
            self.require_box(isolation).await?;
        }
        let backend = backend_of(isolation);
        let image = image_for(backend, None, &settings, self.inner.gvisor_home())?;
        Ok(Choice { backend, image, isolation, denial: chosen.err() })
    }

    /// The session box. Code that will run in it later is unknown, so in strict mode it has the
    /// isolation that high-risk code demands.
    async fn choose_session_box(&self, mode: SecurityMode) -> Result<Choice, Error> {
        let isolation = self.session_isolation(mode).await?;
        let image = image_for(backend_of(isolation), None, &self.settings_now(), self.inner.gvisor_home())?;
        Ok(Choice { backend: Backend::Aio, image, isolation, denial: None })
    }

    /// The isolation of the session box.
    pub(crate) async fn session_isolation(&self, mode: SecurityMode) -> Result<Isolation, Error> {
        match mode {
            SecurityMode::Strict => self.demanded_box().await,
            SecurityMode::Permissive => Ok(Isolation::Native),
        }
    }

    /// The external AIO service of this workspace. Strict mode counts it as native: only its
    /// operator claims that it isolates, and the server cannot check it.
    async fn choose_service(&self, mode: SecurityMode, level: Level) -> Result<Choice, Error> {
        let demanded = if requires_isolation(mode, level) { Some(self.demanded_box().await?) } else { None };
        let denial = choose_isolation(Some(Isolation::Native), demanded).err();
        Ok(Choice { backend: Backend::AioService, image: None, isolation: Isolation::Native, denial })
    }

    /// The strongest available isolation among those that `strict.backends` names.
    async fn demanded_box(&self) -> Result<Isolation, Error> {
        let named = &self.settings_now().strict.backends;
        let mut missing = Vec::new();
        for isolation in Isolation::ALL.into_iter().filter(|isolation| named.contains(isolation)) {
            match self.require_box(isolation).await {
                Ok(()) => return Ok(isolation),
                Err(Error::BackendUnavailable { why, .. }) => missing.push((isolation.key(), why)),
                Err(error) => return Err(error),
            }
        }
        let backend = missing.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" or ");
        let why = missing.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; ");
        Err(Error::BackendUnavailable { backend, why: format!("{why}; the strict mode demands it for this code") })
    }

    async fn require_box(&self, isolation: Isolation) -> Result<(), Error> {
        let is_there = match isolation {
            Isolation::Native => Ok(()),
            Isolation::Docker => self.docker_now().await.available(Runtime::Default).map(drop),
            Isolation::Gvisor => match self.inner.backends.executor.gvisor() {
                Ok(_) => Ok(()),
                Err(here) => {
                    let there = self.docker_now().await.available(Runtime::Gvisor).map(drop);
                    there.map_err(|there| format!("{here}, and as docker's runtime: {there}"))
                }
            },
        };
        is_there.map_err(|why| Error::BackendUnavailable { backend: isolation.key().to_owned(), why })
    }

    /// The state of docker, at most 5 s old: a probe takes longer than most execs. If docker goes
    /// away in between, creating the box fails.
    async fn docker_now(&self) -> Arc<DockerState> {
        let mut seen = self.inner.docker_seen.lock().await;
        if let Some((at, state)) = seen.as_ref()
            && at.elapsed() < DOCKER_STATE_TTL
        {
            return state.clone();
        }
        let state = Arc::new(self.inner.backends.docker.probe().await);
        *seen = Some((Instant::now(), state.clone()));
        state
    }
}

fn read(text: &str) -> Result<Isolation, Error> {
    text.parse().map_err(|_| Error::invalid("backend must be native, docker, gvisor or aio"))
}

pub(super) const fn backend_of(isolation: Isolation) -> Backend {
    match isolation {
        Isolation::Native => Backend::Native,
        Isolation::Docker => Backend::Docker,
        Isolation::Gvisor => Backend::Gvisor,
    }
}

/// Placeholder uid and gid. The owner of the files is not known when a warm box is made, but it is
/// never root.
const PLACEHOLDER_ID: u32 = 1000;

impl Service {
    /// The kind of warm box that can serve a Python exec with these settings; `None` if none can.
    /// The policy decides on a sample request. Nothing runs.
    pub(crate) fn default_spec(&self, settings: &Settings) -> Option<WarmSpec> {
        let spec = self.try_default_spec(settings);
        spec.inspect_err(|error| tracing::warn!(error = %causes(error), "no warm boxes are made")).ok().flatten()
    }

    fn try_default_spec(&self, settings: &Settings) -> Result<Option<WarmSpec>, Error> {
        let run = CodeRequest::default();
        let mounts = SessionMounts {
            work: self.inner.workspaces_path.clone(),
            owner: Owner::new(PLACEHOLDER_ID, PLACEHOLDER_ID)?,
            control: PathControl::On(PathAccess::default()),
            hidden: Vec::new(),
        };
        let request = Request {
            argv: run.words().iter().map(Into::into).collect(),
            env: Default::default(),
            cwd: Some(WORKSPACE.into()),
            root: Root::Host,
            workspace: Workspace::Session(Box::new(mounts)),
            read_only: Vec::new(),
        };
        let layers = run.layers(settings.operator.clone(), true)?;
        Ok(match decide(&request, &layers) {
            Verdict::Allow(grant) => self.inner.backends.executor.warm_spec_for(&grant),
            Verdict::Ask(_) | Verdict::Deny(_) => None,
        })
    }
}
