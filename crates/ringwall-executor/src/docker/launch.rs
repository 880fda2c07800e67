//! Starts a container for a grant: checks, starts the client, and waits until the daemon reports
//! the start.
//!
//! All checks that need no container come before the client is started. From then on [`Container`]
//! holds the container, and dropping it, also when a time limit drops the future, removes what
//! exists of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_jail::report::Protection;
use ringwall_policy::{DockerImage, Grant, Net};

use super::argv::{ContainerParams, argv, image};
use super::client::Client;
use super::container::{Container, Errand};
use super::daemon::{self, Daemon, DockerState, Runtime};
use super::doorway::{self, Doorway};
use super::environment::EnvironmentFile;
use super::events::Events;
use super::instance::Instance;
use super::name::ContainerName;
use super::pulse::{self, Pulse};
use super::watcher::Watcher;
use super::{look, protection, sweep};
use crate::error::Error;
use crate::host::python::Python;
use crate::plan::limits::Stay;
use crate::process::program;
use crate::protection::check;
use crate::running::{RunningBox, time_limit};
use crate::session_box::{SessionBox, Wardrobe};
use crate::sources;
use crate::sources::{ProjectPath, check_working_directory, open_slots};

/// A start, or its failure, takes at most 10 s in all.
const STARTED_WITHIN: Duration = Duration::from_secs(9);
/// The maximum delay of the daemon's events after the client's end.
const EVENTS_BEHIND: Duration = Duration::from_secs(1);

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
    pulse: Pulse,
    watcher: Watcher,
    daemon: Mutex<Option<Daemon>>,
    pub(crate) pythons: look::Pythons,
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
            self.watcher.dismiss();
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
            pulse: Pulse::new(client.clone()),
            watcher: Watcher::default(),
            daemon: Mutex::new(None),
            pythons: look::Pythons::default(),
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
            doorway::sweep(data, &shared.instance);
        }
        let swept = sweep::sweep(&shared.client, &shared.instance, &shared.events).await;
        swept.map_err(|failure| unavailable(Runtime::Default, failure.why()))
    }

    /// Starts the granted command in a container that is named after its exec. When this returns,
    /// the container runs or has already ended; `wait` reports the outcome in both cases.
    pub async fn start(&self, grant: Grant, exec_id: &str, runtime: Runtime) -> Result<RunningBox, Error> {
        self.launch(&grant, exec_id, runtime, Stay::OneCommand).await
    }

    /// Starts a session box as a container of this name.
    pub async fn start_session_box(&self, grant: Grant, name: &str, runtime: Runtime) -> Result<SessionBox, Error> {
        let running = self.launch(&grant, name, runtime, Stay::SessionBox).await?;
        SessionBox::begin(running, grant, Wardrobe::Image).await
    }

    /// Starts the granted command, or for a session box our agent in its place.
    async fn launch(&self, grant: &Grant, exec_id: &str, runtime: Runtime, stay: Stay) -> Result<RunningBox, Error> {
        let shared = self.shared(runtime)?;
        let container = shared.in_time(runtime, launch(shared, grant, exec_id, runtime, stay)).await?;
        Ok(container.into_running())
    }

    pub(crate) fn client(&self) -> Result<&Client, Error> {
        self.shared(Runtime::Default).map(|shared| &shared.client)
    }

    pub(super) fn shared(&self, runtime: Runtime) -> Result<&Arc<Shared>, Error> {
        self.shared.as_ref().ok_or_else(|| unavailable(runtime, "there is no docker client in PATH".to_owned()))
    }
}

pub(crate) fn unavailable(runtime: Runtime, why: String) -> Error {
    Error::BackendUnavailable { backend: runtime.backend(), why }
}

async fn launch(
    shared: &Arc<Shared>,
    grant: &Grant,
    exec_id: &str,
    runtime: Runtime,
    stay: Stay,
) -> Result<Container, Error> {
    let name = ContainerName::of_exec(exec_id)?;
    let daemon = shared.find_daemon(runtime).await?;
    let protections = protection::protections(&daemon, runtime);
    check(grant, &protections, runtime.backend())?;
    let environment = EnvironmentFile::new(grant)?;
    let project = shared.open(grant)?;
    check_working_directory(grant, &project)?;
    shared.keep_watch()?;
    let python = match stay {
        Stay::SessionBox => Python::AsNamed,
        Stay::OneCommand => look::choose(shared, grant, exec_id).await,
    };
    let doorway = match grant.effective().net {
        Net::None => None,
        Net::Allowlist { .. } => Some(shared.open_doorway()?),
    };
    let program = if doorway.is_some() || stay == Stay::SessionBox { Some(program::place()?) } else { None };
    let params = ContainerParams {
        name: &name,
        instance: &shared.instance,
        runtime,
        environment: &environment.path(),
        python,
        stay,
        program: program.as_deref(),
        doorway: doorway.as_ref().map(Doorway::path),
    };
    let words = argv(grant, &daemon, &params)?;
    let errand = Errand {
        command: grant.argv().first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default(),
        time_limit: match stay {
            Stay::SessionBox => None,
            Stay::OneCommand => time_limit(grant),
        },
    };
    let mut container = shared.run(words, &name, runtime, protections, errand)?;
    shared.wait_for_start(&mut container, image(grant)?, runtime).await?;
    if let Some(doorway) = doorway {
        container.take_proxy_socket(doorway, EVENTS_BEHIND).await?;
    }
    // The daemon opened the directories by path. If one was replaced by a symbolic link meanwhile,
    // another directory is mounted.
    shared.compare(grant, &project)?;
    Ok(container)
}

impl Shared {
    /// Limits a start to [`STARTED_WITHIN`].
    pub(super) async fn in_time<T>(
        &self,
        runtime: Runtime,
        start: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let started = match tokio::time::timeout(STARTED_WITHIN, start).await {
            Ok(started) => started,
            Err(_) => {
                let why = format!("the container did not start within {} s", STARTED_WITHIN.as_secs());
                Err(unavailable(runtime, why))
            }
        };
        if matches!(started, Err(Error::BackendUnavailable { .. })) {
            // The daemon may have other abilities when it is back.
            *self.daemon.lock() = None;
        }
        started
    }

    /// Starts the client. From here on, dropping the container removes it.
    pub(super) fn run(
        self: &Arc<Self>,
        words: Vec<OsString>,
        name: &ContainerName,
        runtime: Runtime,
        protections: Vec<Protection>,
        errand: Errand,
    ) -> Result<Container, Error> {
        let followed = self.events.follow(name);
        let beat = self.pulse.listen();
        let process = self.client.start(words, Stdio::piped());
        let process = process
            .map_err(|error| unavailable(runtime, format!("the docker client could not be started: {error}")))?;
        Container::new(self.clone(), process, followed, beat, protections, runtime, errand)
    }

    /// Waits until the daemon has started the container, or returns why it has not.
    pub(super) async fn wait_for_start(
        &self,
        container: &mut Container,
        image: &DockerImage,
        runtime: Runtime,
    ) -> Result<(), Error> {
        if container.started(EVENTS_BEHIND).await? {
            return Ok(());
        }
        let words = container.last_words(EVENTS_BEHIND).await;
        if let Err(failure) = pulse::ask(&self.client).await {
            return Err(unavailable(runtime, if words.is_empty() { failure.why() } else { words }));
        }
        match words.contains("No such image") {
            true => Err(Error::DockerImageMissing(image.clone())),
            false => Err(Error::ContainerRefused { words }),
        }
    }

    pub(super) fn keep_watch(&self) -> Result<(), Error> {
        self.watcher.watch(&self.client, &self.instance.owner_label()).map_err(Error::StartWatcher)
    }

    pub(super) async fn find_daemon(&self, runtime: Runtime) -> Result<Daemon, Error> {
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

    fn open_doorway(&self) -> Result<Doorway, Error> {
        Doorway::open(self.data.as_deref().ok_or(Error::NoProxySocket)?, &self.instance)
    }

    pub(super) fn open(&self, grant: &Grant) -> Result<Vec<ProjectPath>, Error> {
        open_slots(grant, self.data.as_deref())
    }

    fn compare(&self, grant: &Grant, before: &[ProjectPath]) -> Result<(), Error> {
        let after = self.open(grant)?;
        let identity = |place: &ProjectPath| place.content.as_ref().map(|(opened, _)| opened.identity);
        for (before, after) in before.iter().zip(&after) {
            if identity(before) != identity(after) {
                let path = after.content.as_ref().map(|(opened, _)| opened.place().to_owned());
                return Err(Error::DirectoryReplaced(path.unwrap_or_default()));
            }
        }
        Ok(())
    }
}
