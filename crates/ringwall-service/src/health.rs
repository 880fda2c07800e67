//! The health report: database, files and each backend.

use std::time::Instant;

use ringwall_executor::docker::paths::Platform;
use serde::Serialize;
use utoipa::ToSchema;

use crate::settings::here;

/// Replaces messages that contain a path.
const HIDDEN: &str = "only operators see the reason";

/// The last check, with its start time.
#[derive(Debug)]
pub(crate) struct LastCheck {
    pub(crate) begun: Instant,
    pub(crate) probe: bool,
    pub(crate) health: Health,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Health {
    pub runtime_mode: String,
    /// Paths of the host are shown to operators only, and null for others
    pub workspace_root_native: Option<String>,
    pub workspace_root_docker_mount: Option<String>,
    pub docker_cli_path: Option<String>,
    pub docker_version: Option<String>,
    pub docker_context: Option<String>,
    pub platform: Host,
    pub writable_check: WritableCheck,
    pub backends: Backends,
    /// The external AIO service; null if none is configured
    pub aio_service: Option<Availability>,
}

impl Health {
    /// True if execs can be recorded and run natively.
    pub fn is_ready(&self) -> bool {
        self.writable_check.ok && self.backends.native.available
    }

    /// Removes host paths from the report.
    pub(crate) fn without_paths(self) -> Self {
        let hide = |why: Option<String>| why.map(|why| if why.contains('/') { HIDDEN.to_owned() } else { why });
        let availability = |of: Availability| Availability { available: of.available, why: hide(of.why) };
        let Backends { native, docker, gvisor } = self.backends;
        Self {
            workspace_root_native: None,
            workspace_root_docker_mount: None,
            docker_cli_path: None,
            docker_context: self.docker_context.filter(|context| !context.contains('/')),
            writable_check: WritableCheck { ok: self.writable_check.ok, error: hide(self.writable_check.error) },
            backends: Backends {
                native: availability(native),
                docker: availability(docker),
                gvisor: availability(gvisor),
            },
            aio_service: self.aio_service.map(availability),
            ..self
        }
    }
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Host {
    pub os: String,
    pub release: String,
    pub is_wsl: bool,
}

/// Whether the record answers and workspaces are writable
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WritableCheck {
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Backends {
    pub native: Availability,
    pub docker: Availability,
    pub gvisor: Availability,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Availability {
    pub available: bool,
    pub why: Option<String>,
}

impl Availability {
    pub(crate) fn of(result: Result<(), String>) -> Self {
        Self { available: result.is_ok(), why: result.err() }
    }
}

pub(crate) fn platform() -> Host {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    Host { os: "linux".to_owned(), is_wsl: here() == Platform::Wsl, release }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_for_users_contains_no_paths() {
        let why = |text: &str| Availability::of(Err(text.to_owned()));
        let health = Health {
            runtime_mode: "linux".to_owned(),
            workspace_root_native: Some("/var/lib/x".to_owned()),
            workspace_root_docker_mount: Some("/var/lib/x".to_owned()),
            docker_cli_path: Some("/usr/bin/docker".to_owned()),
            docker_version: Some("1".to_owned()),
            docker_context: Some("default".to_owned()),
            platform: platform(),
            writable_check: WritableCheck { ok: false, error: Some("could not open /var/lib/x/db.sqlite".to_owned()) },
            backends: Backends {
                native: why("x: /usr/lib"),
                docker: why("no client"),
                gvisor: why("is /run/s there?"),
            },
            aio_service: Some(why("look at /v1")),
        };
        let told = health.without_paths();
        let json = serde_json::to_string(&told).unwrap();
        assert!(!json.contains('/'), "{json}");
        assert_eq!(told.backends.docker.why.as_deref(), Some("no client"));
        assert_eq!(told.docker_version.as_deref(), Some("1"));
    }
}
