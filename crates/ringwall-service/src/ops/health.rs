//! Health of the server: the record, the files and each backend.
//!
//! A probe runs a real box in every available backend. Only operators see paths of the host. A
//! check starts programs and boxes outside the queue, so one runs at a time and answers all
//! requests that came before it started.

use std::time::{Duration, Instant};

use ringwall_executor::aio_service::AioService;
use ringwall_executor::docker::Runtime;
use ringwall_executor::{Ending, Options};
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_policy::{
    Layer, LayerName, ProjectAccess, ProjectMounts, Request, Root, Verdict, Workspace, decide, profile,
};
use ringwall_record::Holder;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::causes;
use crate::exec::spec::{Backend, GvisorHome};
use crate::health::{Availability, Backends, Health, LastCheck, WritableCheck, platform};
use crate::service::Service;
use crate::settings::layers;

/// The user and agent of probe boxes.
const PROBER: &str = "ringwall-probe";
/// Time limit of a probe box, which does almost nothing.
const PROBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the AIO service, because other requests wait for this check.
const AIO_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a probe failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error(transparent)]
    Box(#[from] ringwall_executor::Error),
    #[error(transparent)]
    Service(#[from] crate::error::Error),
    #[error(transparent)]
    Name(#[from] ringwall_ids::IdError),
    #[error(transparent)]
    Files(#[from] ringwall_workspace::Error),
    #[error(transparent)]
    Policy(#[from] ringwall_policy::Error),
    #[error("the policy does not allow the test box: {0}")]
    Refused(String),
    #[error("the test box ended with {0:?}")]
    Ended(Ending),
    #[error("the test box did not end within {} seconds", PROBE_TIMEOUT.as_secs())]
    Hung,
}

impl Service {
    /// The health report; with `probe`, after a test box in each available backend.
    pub async fn health(&self, by: &Principal, probe: bool) -> Health {
        let health = self.current_health(probe).await;
        match by.holder() {
            Holder::Owner | Holder::Operator => health,
            Holder::User(_) | Holder::Agent(..) => health.without_paths(),
        }
    }

    /// The result of a check that started after this call, by this or a concurrent request.
    async fn current_health(&self, probe: bool) -> Health {
        let asked = Instant::now();
        let mut last = self.inner.last_check.lock().await;
        if let Some(check) = last.as_ref().filter(|check| check.begun >= asked && (check.probe || !probe)) {
            return check.health.clone();
        }
        let begun = Instant::now();
        let health = self.check_health(probe).await;
        *last = Some(LastCheck { begun, probe, health: health.clone() });
        health
    }

    async fn check_health(&self, probe: bool) -> Health {
        let docker = self.inner.backends.docker.probe().await;
        let gvisor = self.inner.backends.executor.gvisor().map(drop).or_else(|here| {
            let there = docker.available(Runtime::Gvisor).map(drop);
            there.map_err(|there| format!("{here}, and as docker's runtime: {there}"))
        });
        let mut backends = Backends {
            native: Availability::of(Ok(())),
            docker: Availability::of(docker.available(Runtime::Default).map(drop)),
            gvisor: Availability::of(gvisor),
        };
        if probe {
            self.probe_box(Backend::Native, &mut backends.native).await;
            self.probe_box(Backend::Docker, &mut backends.docker).await;
            self.probe_box(Backend::Gvisor, &mut backends.gvisor).await;
        }
        let aio_service = match &self.inner.aio {
            Some(assigned) => Some(Availability::of(check_aio(&assigned.service).await)),
            None => None,
        };
        let root = &self.inner.workspace_root;
        Health {
            runtime_mode: root.platform.to_string(),
            workspace_root_native: Some(root.host_path_native.clone()),
            workspace_root_docker_mount: Some(root.docker_mount_path.clone()),
            docker_cli_path: docker.client.as_ref().map(|path| path.display().to_string()),
            docker_version: docker.daemon.ok().map(|daemon| daemon.version),
            docker_context: docker.context,
            platform: platform(),
            writable_check: self.check_writable().await,
            backends,
            aio_service,
        }
    }

    async fn check_writable(&self) -> WritableCheck {
        let root = self.inner.workspaces_path.clone();
        let access = blocking::in_place(move || {
            let access = rustix::fs::access(&root, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
            Ok(access.err().map(|errno| format!("the workspaces cannot be written to: {errno}")))
        });
        let error = match self.inner.store.health().await {
            Err(error) => Some(causes(&error)),
            Ok(()) => access.await.unwrap_or_else(|error| Some(error.to_string())),
        };
        WritableCheck { ok: error.is_none(), error }
    }

    /// Runs a box that does nothing, if the backend is available, and stores the result.
    async fn probe_box(&self, backend: Backend, availability: &mut Availability) {
        if !availability.available {
            return;
        }
        let probe = async {
            match backend {
                Backend::Native | Backend::Aio | Backend::AioService => self.try_native().await,
                Backend::Gvisor if self.inner.gvisor_home() == GvisorHome::Host => {
                    self.try_in_project(backend, Root::Host).await
                }
                Backend::Docker | Backend::Gvisor => {
                    let image = self.settings_now().image.clone();
                    self.try_in_project(backend, Root::Docker(image)).await
                }
            }
        };
        let probed = tokio::time::timeout(PROBE_TIMEOUT, probe).await.unwrap_or(Err(ProbeError::Hung));
        *availability = Availability::of(probed.map_err(|error| causes(&error)));
    }

    /// Runs a native box that does nothing.
    pub(crate) async fn try_native(&self) -> Result<(), ProbeError> {
        let grant = grant(Root::Host, Workspace::Private)?;
        let running = self.inner.backends.executor.start(grant, Options::default()).await?;
        succeeded(running.wait().await?.ending)
    }

    /// The same on a backend that needs a project; uses a project of the server's own.
    async fn try_in_project(&self, backend: Backend, root: Root) -> Result<(), ProbeError> {
        let (user, agent): (UserId, AgentId) = (PROBER.parse()?, PROBER.parse()?);
        let owner = self.owner_of(&user, &agent).await?;
        let workspaces = self.inner.workspaces.clone();
        let exec_id = ExecId::random().map_err(crate::error::Error::from)?;
        let begun = exec_id.clone();
        let (project, files) = blocking::in_place(move || {
            let workspace = workspaces.workspace(&PROBER.parse()?, &PROBER.parse()?, owner)?;
            let project = workspace.project(&PROBER.parse()?)?;
            let files = project.begin(&begun)?;
            Ok((project, files))
        })
        .await?;
        let mounts = ProjectMounts {
            inputs: project.inputs().path().to_owned(),
            work: project.work().path().to_owned(),
            artifacts: files.artifacts().map(|artifacts| artifacts.path().to_owned()).unwrap_or_default(),
            access: ProjectAccess::WIDEST,
            owner: ringwall_policy::Owner::new(owner.uid, owner.gid)?,
        };
        let result = async {
            let grant = grant(root, Workspace::Project(Box::new(mounts)))?;
            let started = self.inner.start_single_use(backend, grant, exec_id.as_str()).await?;
            succeeded(started.wait().await?.ending)
        }
        .await;
        blocking::in_place(move || Ok(project.remove_artifacts(files.exec())?)).await?;
        result
    }
}

async fn check_aio(service: &AioService) -> Result<(), String> {
    match tokio::time::timeout(AIO_TIMEOUT, service.info()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{error}; {}", error.hint())),
        Err(_) => Err(format!("the AIO service did not answer within {} s", AIO_TIMEOUT.as_secs())),
    }
}

fn grant(root: Root, workspace: Workspace) -> Result<ringwall_policy::Grant, ProbeError> {
    let request = Request {
        argv: vec!["true".into()],
        env: Default::default(),
        cwd: None,
        root,
        workspace,
        read_only: Vec::new(),
    };
    match decide(&request, &layers(profile::EXECS, Layer::new(LayerName::Settings), Vec::new())) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Deny(denial) => Err(ProbeError::Refused(denial.message)),
        Verdict::Ask(_) => Err(ProbeError::Refused("it asks for approval".to_owned())),
    }
}

fn succeeded(ending: Ending) -> Result<(), ProbeError> {
    match ending {
        Ending::Exited(0) => Ok(()),
        other => Err(ProbeError::Ended(other)),
    }
}
