//! The list of allowed paths as shown to users: each path once, in its normal form.
//!
//! Rows are read for every use, because operators may write them by hand. A row without a valid
//! path is hidden and allows nothing.

use std::sync::LazyLock;

use ringwall_ids::UserId;
use ringwall_policy::{HostPath, NewEntry, normalise, normalise_entry};
use ringwall_record::{Holder, PathEntry};
use ringwall_risk::Locale;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

/// The switch, and the entries that the caller may see
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct AllowedPaths {
    pub enabled: bool,
    pub paths: Vec<SandboxPath>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SandboxPath {
    pub id: i64,
    pub path: String,
    pub description: String,
    pub enabled: bool,
    /// `global`, or `user:` and the user id
    pub scope: String,
    /// Why the entry is risky
    pub warning: Option<&'static str>,
}

/// An entry in its normal form.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) path: HostPath,
    pub(crate) entry: PathEntry,
}

impl Listed {
    pub(crate) fn view(&self, locale: Locale) -> SandboxPath {
        SandboxPath {
            id: self.entry.id,
            path: self.path.to_string(),
            description: self.entry.description.clone(),
            enabled: self.entry.enabled.is_on(),
            scope: self.entry.scope.text(),
            warning: self.path.warning_in(locale),
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.entry.scope == other.entry.scope
    }
}

impl Service {
    /// The entries that the caller may see.
    pub async fn allowed_paths(&self, by: &Principal, locale: Locale) -> Result<AllowedPaths, Error> {
        let enabled = self.is_path_control_on().await?;
        let listed = match by.holder() {
            Holder::Owner | Holder::Operator => self.listed_paths().await?,
            Holder::User(user) | Holder::Agent(user, _) => self.listed_for(user).await?,
        };
        let mut shown: Vec<&Listed> = Vec::new();
        for listed in &listed {
            if !shown.iter().any(|other| other.is_same(listed)) {
                shown.push(listed);
            }
        }
        Ok(AllowedPaths { enabled, paths: shown.into_iter().map(|listed| listed.view(locale)).collect() })
    }

    /// True if path control is on.
    pub async fn is_path_control_on(&self) -> Result<bool, Error> {
        Ok(self.inner.store.path_switch().await?.is_on())
    }

    /// All entries, duplicates included.
    pub(crate) async fn listed_paths(&self) -> Result<Vec<Listed>, Error> {
        Ok(self.inner.store.paths().await?.into_iter().filter_map(normal).collect())
    }

    /// Global entries and those of one user, duplicates included.
    pub(crate) async fn listed_for(&self, user: &UserId) -> Result<Vec<Listed>, Error> {
        Ok(self.inner.store.paths_for(user).await?.into_iter().filter_map(normal).collect())
    }
}

fn normal(entry: PathEntry) -> Option<Listed> {
    match read_path(&entry.path) {
        Ok(path) => Some(Listed { path, entry }),
        Err(error) => {
            tracing::warn!(id = entry.id, %error, "a row of sandbox_paths is ignored because its path is invalid");
            None
        }
    }
}

/// The path of a stored row or of a key in a request. `~` is the home of the account that runs the
/// server, and a relative path starts at the server's working directory.
pub(crate) fn read_path(text: &str) -> Result<HostPath, ringwall_policy::Error> {
    normalise(text, &WORKING_DIRECTORY, home().map(HostPath::as_str))
}

/// The path of a new entry. Refuses patterns and empty segments, which [`read_path`] accepts in
/// rows written by hand.
pub(super) fn read_new_path(text: &str) -> Result<NewEntry, ringwall_policy::Error> {
    normalise_entry(text, &WORKING_DIRECTORY, home().map(HostPath::as_str))
}

/// The directory in which the server was started. Cached: it does not change while the server runs,
/// and the list is read for every command.
pub(super) static WORKING_DIRECTORY: LazyLock<String> = LazyLock::new(|| {
    let here = std::env::current_dir().ok().and_then(|here| here.into_os_string().into_string().ok());
    here.unwrap_or_else(|| "/".to_owned())
});
static HOME: LazyLock<Option<HostPath>> = LazyLock::new(|| {
    let home = std::env::var("HOME").ok().filter(|home| home.starts_with('/')).or_else(home_of_account);
    home.and_then(|home| normalise(&home, "/", None).ok())
});

/// The home directory of the account that runs the server.
pub(super) fn home() -> Option<&'static HostPath> {
    HOME.as_ref()
}

/// From /etc/passwd, if HOME is not set.
fn home_of_account() -> Option<String> {
    let own = rustix::process::geteuid().as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let account = accounts.lines().find(|line| line.split(':').nth(2) == Some(own.as_str()))?;
    account.split(':').nth(5).filter(|home| home.starts_with('/')).map(str::to_owned)
}
