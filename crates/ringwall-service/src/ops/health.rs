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
use ringwall_policy::{Layer, LayerName, ProjectAccess, ProjectMounts, Request, Root, Verdict, decide};
use ringwall_record::Holder;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::causes;
use crate::exec::spec::{Backend, GvisorHome};
use crate::health::{Availability, Backends, Health, Looked, WritableCheck, platform};
use crate::service::Service;

/// The user and agent of probe boxes.
const PROBER: &str = "ringwall-probe";
/// Time limit of a probe box, which does almost nothing.
const CASE: Duration = Duration::from_secs(30);

/// Time limit for the AIO service, because other requests wait for this check.
const SERVICE: Duration = Duration::from_secs(2);

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
    #[error("the policy does not allow a trial: {0}")]
    Refused(String),
    #[error("the trial ended with {0:?}")]
    Ended(Ending),
    #[error("the trial did not end within {} seconds", CASE.as_secs())]
    Hung,
}

impl Service {
    /// Contract 003's health; with `probe`, after a test box in each available backend.
    pub async fn health(&self, by: &Principal, probe: bool) -> Health {
        let health = self.looked(probe).await;
        match by.holder() {
            Holder::Owner | Holder::Operator => health,
            Holder::User(_) | Holder::Agent(..) => health.without_paths(),
        }
    }

    async fn looked(&self, probe: bool) -> Health {
        let asked = Instant::now();
        let mut last = self.inner.looked.lock().await;
        if let Some(looked) = last.as_ref()
            && looked.begun >= asked
            && (looked.probe || !probe)
        {
            return looked.health.clone();
        }
        let begun = Instant::now();
        let health = self.look(probe).await;
        *last = Some(Looked { begun, probe, health: health.clone() });
        health
    }

    async fn look(&self, probe: bool) -> Health {
        let docker = self.inner.backends.docker.probe().await;
        let mut backends = Backends {
            native: Availability::of(Ok(())),
            docker: Availability::of(docker.available(Runtime::Default).map(drop)),
            gvisor: Availability::of(match self.inner.backends.executor.gvisor() {
                Ok(_) => Ok(()),
                Err(here) => {
                    let there = docker.available(Runtime::Gvisor).map(drop);
                    there.map_err(|there| format!("{here}, and as docker's runtime: {there}"))
                }
            }),
        };
        if probe {
            for backend in Backend::ALL {
                let availability = match backend {
                    Backend::Native => &mut backends.native,
                    Backend::Docker => &mut backends.docker,
                    Backend::Gvisor => &mut backends.gvisor,
                    // Checked below.
                    Backend::Aio | Backend::AioService => continue,
                };
                if availability.available {
                    let trial = async {
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
                    let tried = tokio::time::timeout(CASE, trial).await.unwrap_or(Err(ProbeError::Hung));
                    *availability = Availability::of(tried.map_err(|error| causes(&error)));
                }
            }
        }
        let aio_service = match &self.inner.aio {
            Some(assigned) => Some(Availability::of(answers(&assigned.service).await)),
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

    /// Runs a native box that does nothing.
    pub(crate) async fn try_native(&self) -> Result<(), ProbeError> {
        let running = self
            .inner
            .backends
            .executor
            .start(grant(Root::Host, ringwall_policy::Workspace::Private)?, Options::default())
            .await?;
        ended(running.wait().await?.ending)
    }

    /// The same for backends that need a project; uses one of the server's own.
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
        let tried = async {
            let grant = grant(root, ringwall_policy::Workspace::Project(Box::new(mounts)))?;
            let started = self.inner.start_single_use(backend, grant, exec_id.as_str()).await?;
            ended(started.wait().await?.ending)
        };
        let tried = tried.await;
        blocking::in_place(move || Ok(project.remove_artifacts(files.exec())?)).await?;
        tried
    }
}

async fn answers(service: &AioService) -> Result<(), String> {
    match tokio::time::timeout(SERVICE, service.info()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!("{error}; {}", error.hint())),
        Err(_) => Err(format!("the AIO service did not answer within {} s", SERVICE.as_secs())),
    }
}

fn grant(root: Root, workspace: ringwall_policy::Workspace) -> Result<ringwall_policy::Grant, ProbeError> {
    let request = Request {
        argv: vec!["true".into()],
        env: Default::default(),
        cwd: None,
        root,
        workspace,
        read_only: Vec::new(),
    };
    match decide(
        &request,
        &crate::settings::layers(ringwall_policy::profile::EXECS, Layer::new(LayerName::Settings), Vec::new()),
    ) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Deny(denial) => Err(ProbeError::Refused(denial.message)),
        Verdict::Ask(_) => Err(ProbeError::Refused("it asks for approval".to_owned())),
    }
}

fn ended(ending: Ending) -> Result<(), ProbeError> {
    match ending {
        Ending::Exited(0) => Ok(()),
        other => Err(ProbeError::Ended(other)),
    }
}
