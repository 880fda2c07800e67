//! Starts a container for a grant: checks, starts the client, and waits until the daemon reports
//! the start.
//!
//! All checks that need no container come before the client is started. From then on dropping the
//! [`Container`], also when a time limit drops the future, removes what exists of it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_policy::{Grant, Net};

use super::argv::{ContainerParams, argv, image};
use super::cleanup::{self, CrashWatcher};
use super::client::{CallFailure, Client};
use super::container::Container;
use super::daemon::{self, Daemon, DockerState, HealthCheck, Runtime};
use super::environment::EnvironmentFile;
use super::events::Events;
use super::find_python::{self, Pythons};
use super::instance::{ContainerName, Instance};
use super::protection;
use super::proxy_socket::{self, ProxySocketReceiver};
use crate::error::Error;
use crate::host::python::Python;
use crate::plan::limits::Stay;
use crate::process::program;
use crate::protection::check;
use crate::running::{RunningBox, time_limit};
use crate::session_box::{ProcessDefaults, SessionBox};
use crate::sources;
use crate::sources::{ProjectPath, check_working_directory, open_mounts};

/// A start, or its failure, takes at most 10 s in all.
const STARTED_WITHIN: Duration = Duration::from_secs(9);

/// Settings of the operator.
#[derive(Debug, Clone, Default)]
pub struct DockerSettings {
    /// Path of the client. Default: the first `docker` in PATH.
    pub client: Option<PathBuf>,
    /// The client's context. Default: the client's own choice.
    pub context: Option<String>,
}

/// The docker backend.
#[derive(Debug, Clone)]
pub struct Docker {
    shared: Option<Arc<Shared>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) instance: Instance,
    pub(crate) events: Events,
    pub(super) health: HealthCheck,
    crash_watcher: CrashWatcher,
    daemon: Mutex<Option<Daemon>>,
    pub(crate) pythons: Pythons,
    /// Our data directory, with symbolic links resolved.
    data: Option<PathBuf>,
    /// Number of our containers that may exist.
    pub(crate) unremoved: AtomicU64,
    /// Sweeps requested since the last one that was completed.
    pub(crate) sweeps: AtomicU64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if *self.unremoved.get_mut() == 0 {
            self.crash_watcher.dismiss();
        }
    }
}

impl Docker {
    /// Does not contact the daemon. Without a docker client the backend is never available.
    pub fn new(settings: DockerSettings, data: &Path) -> Result<Self, Error> {
        let Some(client) = Client::find(settings.client, settings.context) else {
            return Ok(Docker { shared: None });
        };
        let instance = Instance::of(data)?;
        let shared = Shared {
            events: Events::new(client.clone(), instance.owner_label()),
            health: HealthCheck::new(client.clone()),
            crash_watcher: CrashWatcher::default(),
            daemon: Mutex::new(None),
            pythons: Pythons::default(),
            data: sources::follow(data),
            unremoved: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
            client,
            instance,
        };
        Ok(Docker { shared: Some(Arc::new(shared)) })
    }

    /// Asks the client and its daemon for their state; takes at most 10 s.
    pub async fn probe(&self) -> DockerState {
        daemon::probe(self.shared.as_ref().map(|shared| &shared.client)).await
    }

    /// Removes the orphaned containers of this data directory and returns their number; takes at
    /// most 10 s.
    pub async fn sweep(&self) -> Result<usize, Error> {
        let shared = self.shared(Runtime::Default)?;
        if let Some(data) = &shared.data {
            proxy_socket::sweep(data, &shared.instance);
        }
        cleanup::sweep(shared).await.map_err(|failure| unavailable(Runtime::Default, failure.why()))
    }

    /// Starts the granted command in a container that is named after its exec. When this returns,
    /// the container runs or has already ended; `wait` reports the outcome in both cases.
    pub async fn start(&self, grant: Grant, exec_id: &str, runtime: Runtime) -> Result<RunningBox, Error> {
        self.launch(&grant, exec_id, runtime, Stay::OneCommand).await
    }

    /// Starts a session box as a container of this name.
    pub async fn start_session_box(&self, grant: Grant, name: &str, runtime: Runtime) -> Result<SessionBox, Error> {
        let running = self.launch(&grant, name, runtime, Stay::SessionBox).await?;
        SessionBox::begin(running, grant, ProcessDefaults::DockerImage).await
    }

    /// Starts the granted command, or for a session box our agent in its place.
    async fn launch(&self, grant: &Grant, exec_id: &str, runtime: Runtime, stay: Stay) -> Result<RunningBox, Error> {
        let shared = self.shared(runtime)?;
        let start = shared.start(grant, exec_id, runtime, stay);
        let started = tokio::time::timeout(STARTED_WITHIN, start).await.unwrap_or_else(|_| {
            let why = format!("the container did not start within {} s", STARTED_WITHIN.as_secs());
            Err(unavailable(runtime, why))
        });
        if matches!(started, Err(Error::BackendUnavailable { .. })) {
            // The daemon may have other abilities when it is back.
            *shared.daemon.lock() = None;
        }
        started.map(Container::into_running)
    }

    pub(crate) fn client(&self) -> Result<&Client, Error> {
        self.shared(Runtime::Default).map(|shared| &shared.client)
    }

    fn shared(&self, runtime: Runtime) -> Result<&Arc<Shared>, Error> {
        self.shared.as_ref().ok_or_else(|| unavailable(runtime, "there is no docker client in PATH".to_owned()))
    }
}

pub(crate) fn unavailable(runtime: Runtime, why: String) -> Error {
    Error::BackendUnavailable { backend: runtime.backend(), why }
}

impl Shared {
    async fn start(
        self: &Arc<Self>,
        grant: &Grant,
        exec_id: &str,
        runtime: Runtime,
        stay: Stay,
    ) -> Result<Container, Error> {
        let name = ContainerName::of_exec(exec_id)?;
        let daemon = self.find_daemon(runtime).await?;
        let protections = protection::protections(&daemon, runtime);
        check(grant, &protections, runtime.backend())?;
        let environment = EnvironmentFile::new(grant)?;
        let directories = open_mounts(grant, self.data.as_deref())?;
        check_working_directory(grant, &directories)?;
        self.crash_watcher.start(&self.client, &self.instance.owner_label()).map_err(Error::StartWatcher)?;
        let (python, time_limit) = match stay {
            Stay::SessionBox => (Python::AsNamed, None),
            Stay::OneCommand => (find_python::choose(self, grant, exec_id).await, time_limit(grant)),
        };
        let receiver = match (&grant.effective().net, &self.data) {
            (Net::None, _) => None,
            (Net::Allowlist { .. }, Some(data)) => Some(ProxySocketReceiver::open(data, &self.instance)?),
            (Net::Allowlist { .. }, None) => return Err(Error::NoProxySocket),
        };
        let program =
            if receiver.is_some() || stay == Stay::SessionBox { Some(program::path_on_disk()?) } else { None };
        let params = ContainerParams {
            name: &name,
            instance: &self.instance,
            runtime,
            environment: &environment.path(),
            python,
            stay,
            program: program.as_deref(),
            receiver: receiver.as_ref().map(ProxySocketReceiver::path),
        };
        let words = argv(grant, &daemon, &params)?;
        let followed = self.events.follow(&name);
        let client = self.client.start(words, Stdio::piped());
        let client = client.map_err(|error| unavailable(runtime, CallFailure::NotStarted(error).why()))?;
        // From here on, dropping the container removes it.
        let command = grant.argv().first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let mut container = Container::new(self.clone(), client, followed, protections, runtime, command, time_limit)?;
        if !container.started().await? {
            return Err(self.why_not_started(container, grant, runtime).await);
        }
        if let Some(receiver) = receiver {
            container.receive_proxy_socket(receiver).await?;
        }
        // The daemon opened the directories by path. If one was replaced by a symbolic link meanwhile,
        // another directory is mounted.
        let identity = |path: &ProjectPath| path.content.as_ref().map(|(opened, _)| opened.identity);
        for (before, after) in directories.iter().zip(&open_mounts(grant, self.data.as_deref())?) {
            if identity(before) != identity(after) {
                let path = after.content.as_ref().map(|(opened, _)| opened.as_path().to_owned());
                return Err(Error::DirectoryReplaced(path.unwrap_or_default()));
            }
        }
        Ok(container)
    }

    /// Why the client ended without a started container.
    async fn why_not_started(&self, mut container: Container, grant: &Grant, runtime: Runtime) -> Error {
        let words = container.last_words().await;
        if let Err(failure) = daemon::ask_version(&self.client).await {
            return unavailable(runtime, if words.is_empty() { failure.why() } else { words });
        }
        match image(grant) {
            Ok(image) if words.contains("No such image") => Error::DockerImageMissing(image.clone()),
            Ok(_) | Err(_) => Error::ContainerRefused { words },
        }
    }

    async fn find_daemon(&self, runtime: Runtime) -> Result<Daemon, Error> {
        let known = self.daemon.lock().clone();
        let daemon = match known {
            Some(daemon) => daemon,
            None => {
                let found = daemon::find(&self.client).await.map_err(|why| unavailable(runtime, why))?;
                self.daemon.lock().insert(found).clone()
            }
        };
        daemon.check(runtime).map_err(|why| unavailable(runtime, why))?;
        Ok(daemon)
    }
}
