//! The daemon: its version and abilities from one `docker info`, and a periodic check that it still
//! answers while containers run.
//!
//! A client whose daemon hangs waits forever, so the check asks separately. All containers share one
//! check. Its interval and timeout add up to 8 s; a failure must be known within 10 s.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{CallFailure, Client};
use crate::backend;

/// A probe takes at most 10 s: first the client's version, which needs no daemon, then the daemon.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
const DAEMON_TIMEOUT: Duration = Duration::from_secs(7);
const CHECK_INTERVAL: Duration = Duration::from_secs(3);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
const GVISOR: &str = "runsc";

/// The OCI runtime that runs a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// The daemon's default runtime.
    Default,
    /// gVisor's `runsc`, which answers system calls in a kernel of its own.
    Gvisor,
}

impl Runtime {
    /// The backend's name.
    pub const fn backend(self) -> &'static str {
        match self {
            Runtime::Default => backend::DOCKER,
            Runtime::Gvisor => backend::GVISOR,
        }
    }

    /// The value of `--runtime`; `None` for the daemon's default.
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Runtime::Default => None,
            Runtime::Gvisor => Some(GVISOR),
        }
    }
}

/// The result of a probe.
#[derive(Debug, Clone)]
pub struct DockerState {
    /// The client's path; `None` if there is no client.
    pub client: Option<PathBuf>,
    pub client_version: Option<String>,
    pub context: Option<String>,
    /// The daemon, or why it does not answer.
    pub daemon: Result<Daemon, String>,
}

impl DockerState {
    /// The daemon, or why this runtime cannot make boxes.
    pub fn available(&self, runtime: Runtime) -> Result<&Daemon, String> {
        let daemon = self.daemon.as_ref().map_err(Clone::clone)?;
        daemon.check(runtime)?;
        Ok(daemon)
    }
}

/// A daemon that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    pub version: String,
    pub(crate) cpus: u64,
    pub(crate) memory_limit: bool,
    pub(crate) swap_limit: bool,
    pub(crate) pids_limit: bool,
    pub(crate) cpu_quota: bool,
    pub(crate) runtimes: Vec<String>,
    pub(crate) security: Vec<String>,
    /// True if containers can have a core size limit of 1.
    pub(crate) core_limit: bool,
}

impl Daemon {
    /// True for an option such as `name=rootless`.
    pub(crate) fn has_security(&self, option: &str) -> bool {
        self.security.iter().any(|options| options.split(',').any(|part| part == option))
    }

    pub(crate) fn check(&self, runtime: Runtime) -> Result<(), String> {
        match runtime.name() {
            Some(name) if !self.runtimes.iter().any(|known| known == name) => {
                Err(format!("the docker daemon has no runtime called {name}"))
            }
            _ => Ok(()),
        }
    }
}

/// The used part of `docker info`. Without a daemon the client prints the same object with
/// `ServerErrors`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Info {
    server_version: String,
    #[serde(deserialize_with = "null_is_nothing")]
    server_errors: Vec<String>,
    #[serde(rename = "NCPU")]
    cpus: u64,
    memory_limit: bool,
    swap_limit: bool,
    pids_limit: bool,
    cpu_cfs_quota: bool,
    #[serde(deserialize_with = "null_is_nothing")]
    runtimes: BTreeMap<String, IgnoredAny>,
    #[serde(deserialize_with = "null_is_nothing")]
    security_options: Vec<String>,
    client_info: ClientInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ClientInfo {
    context: String,
}

/// The client prints an empty list as `null`.
fn null_is_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Asks the client for its version and for the daemon.
pub(crate) async fn probe(client: Option<&Client>) -> DockerState {
    let Some(client) = client else {
        let daemon = Err("there is no docker client in PATH".to_owned());
        return DockerState { client: None, client_version: None, context: None, daemon };
    };
    let found = |client_version, context, daemon| DockerState {
        client: Some(client.program.clone()),
        client_version,
        context,
        daemon,
    };
    let version = match client.call(["--version"], CLIENT_TIMEOUT).await {
        Ok(text) => version_in(&text),
        Err(failure) => return found(None, client.context.clone(), Err(failure.why())),
    };
    let (context, daemon) = match ask(client).await {
        Ok(info) => (Some(info.client_info.context.clone()).filter(|name| !name.is_empty()), daemon(info)),
        Err(failure) => (None, Err(failure.why())),
    };
    found(version, context.or_else(|| client.context.clone()), daemon)
}

/// Asks for the daemon only; used before a container starts.
pub(crate) async fn find(client: &Client) -> Result<Daemon, String> {
    ask(client).await.map_err(|failure| failure.why()).and_then(daemon)
}

async fn ask(client: &Client) -> Result<Info, CallFailure> {
    let text = client.call(["info", "--format", "{{json .}}"], DAEMON_TIMEOUT).await?;
    serde_json::from_str(&text).map_err(|error| CallFailure::Refused(format!("docker info cannot be read: {error}")))
}

fn daemon(info: Info) -> Result<Daemon, String> {
    if let Some(error) = info.server_errors.into_iter().next() {
        return Err(error);
    }
    if info.server_version.is_empty() {
        return Err("docker info has no server version".to_owned());
    }
    let mut daemon = Daemon {
        version: info.server_version,
        cpus: info.cpus,
        memory_limit: info.memory_limit,
        swap_limit: info.swap_limit,
        pids_limit: info.pids_limit,
        cpu_quota: info.cpu_cfs_quota,
        runtimes: info.runtimes.into_keys().collect(),
        security: info.security_options,
        core_limit: true,
    };
    // A daemon with root's capabilities raises hard limits. A rootless one refuses a container
    // whose limit is above its own; its limit is not known here, and is most likely that of our
    // process, which belongs to the same user.
    daemon.core_limit = !daemon.has_security("name=rootless") || ringwall_jail::restrict::has_core_limit();
    Ok(daemon)
}

/// The number in `Docker version 28.2.2, build …`.
fn version_in(text: &str) -> Option<String> {
    let word = text.split_ascii_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    Some(word.trim_end_matches(',').to_owned())
}

/// The periodic check, which runs while a [`Health`] exists.
#[derive(Debug)]
pub(crate) struct HealthCheck {
    client: Client,
    running: Mutex<Weak<Health>>,
}

/// The result of the periodic check.
#[derive(Debug)]
pub(crate) struct Health {
    /// Why the daemon does not answer.
    failure: watch::Receiver<Option<String>>,
    /// Dropping it ends the check.
    _task: JoinSet<()>,
}

impl HealthCheck {
    pub(crate) fn new(client: Client) -> Self {
        HealthCheck { client, running: Mutex::default() }
    }

    /// Starts the check, or joins the running one.
    pub(crate) fn watch(&self) -> Arc<Health> {
        let mut running = self.running.lock();
        if let Some(health) = running.upgrade().filter(|health| health.failure.borrow().is_none()) {
            return health;
        }
        let (sender, failure) = watch::channel(None);
        let client = self.client.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            loop {
                tokio::time::sleep(CHECK_INTERVAL).await;
                if let Err(failure) = ask_version(&client).await {
                    let _ = sender.send(Some(failure.why()));
                    return;
                }
            }
        });
        let health = Arc::new(Health { failure, _task: task });
        *running = Arc::downgrade(&health);
        health
    }
}

impl Health {
    /// Resolves only when the check fails, with the reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        let why = failure.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}

/// Asks for the version. The daemon asks containerd for its version too, so a hanging containerd is
/// noticed.
pub(crate) async fn ask_version(client: &Client) -> Result<(), CallFailure> {
    client.call(["version", "--format={{.Server.Version}}"], CHECK_TIMEOUT).await.map(drop)
}

#[cfg(test)]
pub(crate) fn test_daemon() -> Daemon {
    Daemon {
        version: "28.0".to_owned(),
        cpus: 2,
        memory_limit: true,
        swap_limit: true,
        pids_limit: true,
        cpu_quota: true,
        runtimes: vec!["runc".to_owned()],
        security: vec!["name=seccomp,profile=default".to_owned()],
        core_limit: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_info_gives_version_and_abilities() {
        let text = r#"{"ServerVersion":"20.10","NCPU":2,"MemoryLimit":true,"SwapLimit":false,"PidsLimit":true,
            "CpuCfsQuota":true,"Runtimes":{"runc":{"path":"runc"},"runsc":{}},"SecurityOptions":["name=seccomp"],
            "ClientInfo":{"Version":"28.2.2","Context":"default"},"Unknown":[1]}"#;
        let found = daemon(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((found.version.as_str(), found.cpus, found.swap_limit), ("20.10", 2, false));
        assert_eq!(found.check(Runtime::Gvisor), Ok(()));
        assert!(test_daemon().check(Runtime::Gvisor).is_err());
    }

    #[test]
    fn docker_info_without_server_is_error() {
        let text = r#"{"ServerErrors":["Cannot connect"],"Runtimes":null,"SecurityOptions":null,"ClientInfo":{"Context":"default"}}"#;
        assert_eq!(daemon(serde_json::from_str(text).unwrap()), Err("Cannot connect".to_owned()));
        assert!(daemon(Info::default()).is_err());
    }

    #[tokio::test]
    async fn missing_docker_client_is_reported() {
        let state = probe(None).await;
        assert!(state.client.is_none() && state.available(Runtime::Default).is_err());
        let client = Client { program: "/nonexistent/docker".into(), context: None };
        let state = probe(Some(&client)).await;
        assert!(state.daemon.unwrap_err().contains("could not be started"));
    }

    #[test]
    fn client_version_is_number_in_its_answer() {
        assert_eq!(version_in("Docker version 28.2.2, build e6534b4\n").as_deref(), Some("28.2.2"));
        assert_eq!(version_in("strange"), None);
    }
}
