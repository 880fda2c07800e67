//! Changes of the switch and of the list of allowed paths. Operators and owners change all of it; a user changes or removes
//! their own entries.
//!
//! Ringwall's own directories cannot be added, also not through a link. A sensitive path can; the answer warns.

use ringwall_policy::{HostPath, NewEntry, PathStyle};
use ringwall_record::{Holder, NewPath, PathChange, PathScope, Switch};
use ringwall_risk::Locale;
use serde::Serialize;
use std::path::Path;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::service::Service;
use crate::time::now;

use super::list::{Listed, SandboxPath, read_new_path, read_path, working_directory};
use super::state::PathControl;

/// How many entries a list may have: each is a mount of every box.
const MAX_COUNT: usize = 256;

/// A path to allow.
#[derive(Debug, Clone)]
pub struct WantedPath {
    pub path: String,
    pub description: String,
}

/// The answer to `PUT /api/sandbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SwitchedPaths {
    pub enabled: bool,
    /// While it is off: what boxes of sessions show of the host, and how to change that
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// All current entries, if the request had paths
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<SandboxPath>>,
    /// Warnings about the new entries
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SwitchedPaths {
    pub fn new(control: PathControl, locale: Locale) -> Self {
        let message = control.when_disabled().map(|_| {
            let sentences = [Some(control.shown(locale)), control.remedy(locale)];
            sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
        });
        Self { enabled: control == PathControl::On, message, paths: None, warnings: Vec::new() }
    }
}

/// The answer to an addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NewSandboxPath {
    /// All current entries
    pub paths: Vec<SandboxPath>,
    /// Warnings about the new entry
    pub warnings: Vec<String>,
}

impl Service {
    pub async fn switch_path_control(&self, by: &Principal, switch: Switch) -> Result<PathControl, Error> {
        by.require_operator("switch path control")?;
        self.inner.store.switch_path_control(switch, now(), by.author()).await?;
        let control = match switch {
            Switch::On => PathControl::On,
            Switch::Off => self.path_control_off(),
        };
        log_path_control(control);
        self.review_approvals();
        Ok(control)
    }

    pub async fn add_path(&self, by: &Principal, wanted: WantedPath, locale: Locale) -> Result<NewSandboxPath, Error> {
        by.require_operator("allow paths")?;
        let warnings = self.add_missing_paths(by, vec![wanted], locale).await?;
        Ok(NewSandboxPath { paths: self.allowed_paths(by, locale).await?.paths, warnings })
    }

    /// Adds the entries that are missing, removes none, and then sets the switch. Nothing is changed if one is refused.
    pub async fn apply_path_template(
        &self,
        by: &Principal,
        switch: Switch,
        wanted: Vec<WantedPath>,
        locale: Locale,
    ) -> Result<SwitchedPaths, Error> {
        by.require_operator("allow paths")?;
        let warnings = self.add_missing_paths(by, wanted, locale).await?;
        let control = self.switch_path_control(by, switch).await?;
        let paths = self.allowed_paths(by, locale).await?.paths;
        Ok(SwitchedPaths { paths: Some(paths), warnings, ..SwitchedPaths::new(control, locale) })
    }

    /// Checks all before the first is stored. A duplicate changes nothing and is no error, also if
    /// spelled differently or disabled. Returns the warnings.
    async fn add_missing_paths(
        &self,
        by: &Principal,
        wanted: Vec<WantedPath>,
        locale: Locale,
    ) -> Result<Vec<String>, Error> {
        if wanted.len() > MAX_COUNT {
            return Err(Error::invalid(format!("paths: at most {MAX_COUNT} entries")));
        }
        let listed = self.listed_paths().await?;
        let global = listed.iter().filter(|one| one.entry.scope == PathScope::Global);
        let mut there: Vec<HostPath> = global.map(|one| one.path.clone()).collect();
        let (mut warnings, mut missing) = (Vec::new(), Vec::new());
        for WantedPath { path: text, description } in wanted {
            let NewEntry { path, is_relative } = read_new_path(&text)?;
            self.require_foreign(&path).await?;
            if is_relative {
                warnings.push(relative_warning(&text, &path, locale));
            }
            warnings.extend(Self::warnings(&path, &listed, locale).await?);
            if !there.contains(&path) {
                there.push(path.clone());
                missing.push(NewPath { path: path.to_string(), description, scope: PathScope::Global });
            }
        }
        require_room(there.len() - missing.len(), missing.len())?;
        if missing.is_empty() {
            return Ok(warnings);
        }
        for new in missing {
            self.inner.store.add_path(new, now(), by.author()).await?;
        }
        self.review_approvals();
        Ok(warnings)
    }

    pub async fn change_path(
        &self,
        by: &Principal,
        key: &str,
        change: PathChange,
        locale: Locale,
    ) -> Result<SandboxPath, Error> {
        let found = self.find_path(by, key).await?;
        let mut answer = None;
        // Rows of one path, as written by hand, are changed together.
        for listed in found {
            let changed = self.inner.store.change_path(listed.entry.id, change.clone(), now(), by.author()).await?;
            answer = answer.or(changed.map(|entry| Listed { path: listed.path, entry }.view(locale)));
        }
        self.review_approvals();
        answer.ok_or_else(no_path)
    }

    pub async fn remove_path(&self, by: &Principal, key: &str) -> Result<(), Error> {
        let found = self.find_path(by, key).await?;
        let ids: Vec<i64> = found.iter().map(|listed| listed.entry.id).collect();
        match self.inner.store.remove_paths(&ids, now(), by.author()).await? {
            0 => Err(no_path()),
            _ => {
                self.review_approvals();
                Ok(())
            }
        }
    }

    /// The entries that a key names and the caller may change: one by its id, or all of one scope
    /// by path, global first.
    async fn find_path(&self, by: &Principal, key: &str) -> Result<Vec<Listed>, Error> {
        let may = |listed: &Listed| match (by.holder(), &listed.entry.scope) {
            (Holder::Owner | Holder::Operator, _) => true,
            (Holder::User(user), PathScope::User(own)) => own == user,
            (Holder::User(_), PathScope::Global) | (Holder::Agent(..), _) => false,
        };
        let control = self.listed_paths().await?;
        let is_meant = |listed: &Listed| match key.parse::<i64>() {
            Ok(id) => listed.entry.id == id,
            Err(_) => read_path(key).is_ok_and(|path| listed.path == path),
        };
        let mut found: Vec<Listed> = control.iter().filter(|listed| is_meant(listed) && may(listed)).cloned().collect();
        found.sort_by_key(|listed| (listed.entry.scope != PathScope::Global, listed.entry.id));
        let Some(first) = found.first().cloned() else {
            by.require_operator("change the allowed paths")?;
            return Err(no_path());
        };
        Ok(control.into_iter().filter(|listed| listed.is_same(&first)).collect())
    }

    /// Refuses Ringwall's own directories under all their names.
    pub(crate) async fn require_foreign(&self, path: &HostPath) -> Result<(), Error> {
        let spelt = Path::new(path.as_str());
        let is_own = blocking::in_place(|| {
            let real = ringwall_executor::resolve(spelt);
            Ok(self.hidden_now().iter().any(|own| real.starts_with(own) || spelt.starts_with(own)))
        });
        match path.style() {
            PathStyle::Linux if is_own.await? => {
                Err(Error::invalid("that is where Ringwall keeps its own data, which can never be allowed"))
            }
            PathStyle::Linux | PathStyle::Windows => Ok(()),
        }
    }

    /// Warnings about a new path, given the list before the change.
    async fn warnings(path: &HostPath, listed: &[Listed], locale: Locale) -> Result<Vec<String>, Error> {
        let mut warnings: Vec<String> = path.warning_in(locale).map(str::to_owned).into_iter().collect();
        if path.style() == PathStyle::Windows {
            return Ok(warnings);
        }
        let spelt = Path::new(path.as_str());
        if ringwall_policy::is_never_mounted(spelt) {
            warnings.push(match locale {
                Locale::English => format!("{path} is every box's own: the host's is never shown there"),
                Locale::Chinese => format!("{path} 是每个沙箱自己的：永远不会显示主机上的内容"),
            });
            return Ok(warnings);
        }
        let real = blocking::in_place(|| Ok(ringwall_executor::resolve(spelt))).await?;
        if let Some(text) = real.to_str().filter(|_| real != spelt)
            && let Ok(real) = ringwall_policy::normalise(text, "/", None)
            && !listed.iter().any(|listed| listed.path.covers(&real))
        {
            warnings.push(match locale {
                Locale::English => format!("{path} leads to {real}, which is not allowed itself: add that too"),
                Locale::Chinese => format!("{path} 指向 {real}，而后者本身未被允许：请一并添加"),
            });
        }
        Ok(warnings)
    }
}

/// Logs what boxes of sessions show of the host.
pub(crate) fn log_path_control(control: PathControl) {
    let shown = control.shown(Locale::English);
    match control.when_disabled() {
        None => tracing::info!("path control is on. {shown}"),
        Some(view) => tracing::warn!(when_disabled = view.key(), "path control is off. {shown}"),
    }
}

/// Fails if `more` entries do not fit into the list.
pub(super) fn require_room(there: usize, more: usize) -> Result<(), Error> {
    if more == 0 || there + more <= MAX_COUNT {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "there are {there} paths already, and at most {MAX_COUNT}; remove some, or allow a directory above"
    )))
}

fn relative_warning(text: &str, path: &HostPath, locale: Locale) -> String {
    let here = working_directory();
    match locale {
        Locale::English => {
            format!("{text} is a relative path; it was stored as {path}, from the server's working directory {here}")
        }
        Locale::Chinese => format!("{text} 是相对路径；已按服务器的工作目录 {here} 存为 {path}"),
    }
}

fn no_path() -> Error {
    Error::NotFound { what: "such path in the list".to_owned() }
}
