//! Changes the switch and the list of allowed paths, and adds paths of remembered answers.
//!
//! Operators and owners change everything; a user changes or removes their own entries. Ringwall's
//! own directories cannot be added, also not through a link. A sensitive path can; the response
//! contains a warning. An operator's remembered answer applies to all users, a user's answer to
//! that user: it never changes a global entry. A remembered path enables an existing disabled
//! entry.

use std::path::{Path, PathBuf};

use ringwall_ids::UserId;
use ringwall_policy::{HostPath, NewEntry, PathStyle};
use ringwall_record::{Holder, NewPath, PathChange, PathScope, RememberedPath, Remembering, Switch};
use ringwall_risk::Locale;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::service::Service;
use crate::time::now;

use super::list::{Listed, SandboxPath, WORKING_DIRECTORY, home, read_new_path, read_path};
use super::state::PathControl;

/// Maximum number of entries of a list. Each entry is a mount in every box.
const MAX_ENTRIES: usize = 256;

/// A path to add to the list.
#[derive(Debug, Clone)]
pub struct WantedPath {
    pub path: String,
    pub description: String,
}

/// The answer to `PUT /api/sandbox`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SwitchedPaths {
    pub enabled: bool,
    /// While it is off: the host paths that session boxes show, and how to change that
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
            let remedy = control.remedy(locale).map(|remedy| format!(" {remedy}"));
            format!("{}{}", control.shown(locale), remedy.unwrap_or_default())
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

    /// Adds the entries that are missing, removes none, and then sets the switch. Changes nothing
    /// if one entry is refused.
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

    /// Checks all entries before the first is stored. A duplicate is ignored, also if it is spelled
    /// differently or disabled. Returns the warnings.
    async fn add_missing_paths(
        &self,
        by: &Principal,
        wanted: Vec<WantedPath>,
        locale: Locale,
    ) -> Result<Vec<String>, Error> {
        if wanted.len() > MAX_ENTRIES {
            return Err(Error::invalid(format!("paths: at most {MAX_ENTRIES} entries")));
        }
        let listed = self.listed_paths().await?;
        let global = listed.iter().filter(|listed| listed.entry.scope == PathScope::Global);
        let mut known: Vec<HostPath> = global.map(|listed| listed.path.clone()).collect();
        let (mut warnings, mut missing) = (Vec::new(), Vec::new());
        for WantedPath { path: text, description } in wanted {
            let NewEntry { path, is_relative } = read_new_path(&text)?;
            self.refuse_own_directory(&path).await?;
            if is_relative {
                warnings.push(relative_warning(&text, &path, locale));
            }
            warnings.extend(Self::warnings(&path, &listed, locale).await?);
            if !known.contains(&path) {
                known.push(path.clone());
                missing.push(NewPath { path: path.to_string(), description, scope: PathScope::Global });
            }
        }
        check_count(known.len() - missing.len(), missing.len())?;
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
        let mut first = None;
        // An operator may have written several rows of one path by hand; they are changed together.
        for listed in self.find_path(by, key).await? {
            let changed = self.inner.store.change_path(listed.entry.id, change.clone(), now(), by.author()).await?;
            first = first.or(changed.map(|entry| Listed { path: listed.path, entry }.view(locale)));
        }
        self.review_approvals();
        first.ok_or_else(no_path)
    }

    pub async fn remove_path(&self, by: &Principal, key: &str) -> Result<(), Error> {
        let found = self.find_path(by, key).await?;
        let ids: Vec<i64> = found.iter().map(|listed| listed.entry.id).collect();
        if self.inner.store.remove_paths(&ids, now(), by.author()).await? == 0 {
            return Err(no_path());
        }
        self.review_approvals();
        Ok(())
    }

    /// The entries that `key` (an id or a path) names and the caller may change. A path names all
    /// entries of one scope, the global one if there is one.
    async fn find_path(&self, by: &Principal, key: &str) -> Result<Vec<Listed>, Error> {
        let may = |listed: &Listed| match (by.holder(), &listed.entry.scope) {
            (Holder::Owner | Holder::Operator, _) => true,
            (Holder::User(user), PathScope::User(own)) => own == user,
            (Holder::User(_), PathScope::Global) | (Holder::Agent(..), _) => false,
        };
        let all = self.listed_paths().await?;
        let is_named = |listed: &Listed| match key.parse::<i64>() {
            Ok(id) => listed.entry.id == id,
            Err(_) => read_path(key).is_ok_and(|path| listed.path == path),
        };
        let found = all.iter().filter(|listed| is_named(listed) && may(listed));
        let Some(first) = found.min_by_key(|listed| (listed.entry.scope != PathScope::Global, listed.entry.id)) else {
            by.require_operator("change the allowed paths")?;
            return Err(no_path());
        };
        Ok(all.iter().filter(|listed| listed.is_same(first)).cloned().collect())
    }

    /// Refuses Ringwall's own directories under all their names.
    async fn refuse_own_directory(&self, path: &HostPath) -> Result<(), Error> {
        if path.style() == PathStyle::Windows {
            return Ok(());
        }
        let spelled = Path::new(path.as_str());
        let is_own = blocking::in_place(|| {
            let real = ringwall_executor::resolve(spelled);
            Ok(self.hidden_now().iter().any(|own| real.starts_with(own) || spelled.starts_with(own)))
        });
        if is_own.await? {
            return Err(Error::invalid(format!("{path} belongs to Ringwall's own data, which can never be allowed")));
        }
        Ok(())
    }

    /// Warnings about a new path, given the list before the change.
    async fn warnings(path: &HostPath, listed: &[Listed], locale: Locale) -> Result<Vec<String>, Error> {
        let mut warnings: Vec<String> = path.warning_in(locale).map(str::to_owned).into_iter().collect();
        if path.style() == PathStyle::Windows {
            return Ok(warnings);
        }
        let spelled = Path::new(path.as_str());
        if ringwall_policy::is_never_mounted(spelled) {
            warnings.push(match locale {
                Locale::English => format!("every box has its own {path}; the host's is never shown"),
                Locale::Chinese => format!("{path} 是每个沙箱自己的：永远不会显示主机上的内容"),
            });
            return Ok(warnings);
        }
        let real = blocking::in_place(|| Ok(ringwall_executor::resolve(spelled))).await?;
        if let Some(text) = real.to_str().filter(|_| real != spelled)
            && let Ok(real) = ringwall_policy::normalise(text, "/", None)
            && !listed.iter().any(|listed| listed.path.covers(&real))
        {
            warnings.push(match locale {
                Locale::English => format!("{path} is a link to {real}, which is not allowed; add that path too"),
                Locale::Chinese => format!("{path} 指向 {real}，而后者本身未被允许：请一并添加"),
            });
        }
        Ok(warnings)
    }

    /// The change that remembers the paths of a question. Fails if one is refused or the list is
    /// full.
    pub(crate) async fn remembering_paths(
        &self,
        by: &Principal,
        user: &UserId,
        paths: &[String],
    ) -> Result<Remembering, Error> {
        let scope = by.remembers_for(user)?;
        let mut listed = self.listed_for(user).await?;
        listed.retain(|listed| listed.entry.scope == scope);
        let mut remembered: Vec<RememberedPath> = Vec::new();
        for path in self.check_grantable(by, paths).await? {
            read_new_path(path.as_str())?;
            let known = listed.iter().filter(|listed| listed.path == path).map(|listed| listed.entry.id).collect();
            let new = NewPath { path: path.to_string(), description: String::new(), scope: scope.clone() };
            remembered.push(RememberedPath { new, known });
        }
        let more = remembered.iter().filter(|one| one.known.is_empty()).count();
        check_count(listed.len(), more)?;
        Ok(Remembering::Paths(remembered))
    }

    /// Checks that this person may allow the paths, once or permanently. Ringwall's own directories
    /// can never be allowed; a user may allow neither system roots nor directories with keys.
    pub(crate) async fn check_grantable(&self, by: &Principal, paths: &[String]) -> Result<Vec<HostPath>, Error> {
        let mut checked = Vec::new();
        for text in paths {
            let path = read_path(text)?;
            self.refuse_own_directory(&path).await?;
            if let Holder::User(_) | Holder::Agent(..) = by.holder()
                && let Some(why) = operators_only(&path).await?
            {
                return Err(Error::Forbidden { why: format!("only an owner or an operator may allow {path}: {why}") });
            }
            checked.push(path);
        }
        Ok(checked)
    }
}

impl Principal {
    /// The scope of an entry from an answer to a question of `user`.
    pub(crate) fn remembers_for(&self, user: &UserId) -> Result<PathScope, Error> {
        match self.holder() {
            Holder::Owner | Holder::Operator => Ok(PathScope::Global),
            Holder::User(_) => Ok(PathScope::User(user.clone())),
            Holder::Agent(..) => Err(Error::Forbidden { why: "an agent cannot allow paths".to_owned() }),
        }
    }
}

/// The reason if only an operator may allow a path.
async fn operators_only(path: &HostPath) -> Result<Option<String>, Error> {
    if let Some(warning) = path.warning() {
        return Ok(Some(warning.to_owned()));
    }
    if home().is_some_and(|home| path.covers(home)) {
        return Ok(Some("it is or contains the home directory of the server's account".to_owned()));
    }
    let directory = PathBuf::from(path.as_str());
    let keys = blocking::in_place(move || Ok(ringwall_executor::keys_near(&directory))).await?;
    Ok(keys.map(|keys| format!("{} contains keys and credentials", keys.display())))
}

/// Logs which host paths session boxes show.
pub(crate) fn log_path_control(control: PathControl) {
    let shown = control.shown(Locale::English);
    match control.when_disabled() {
        None => tracing::info!("path control is on. {shown}"),
        Some(view) => tracing::warn!(when_disabled = view.key(), "path control is off. {shown}"),
    }
}

/// Fails if `more` entries do not fit into the list.
fn check_count(present: usize, more: usize) -> Result<(), Error> {
    if more == 0 || present + more <= MAX_ENTRIES {
        return Ok(());
    }
    let message = format!(
        "the list has {present} of at most {MAX_ENTRIES} paths; remove some, or allow a common parent directory"
    );
    Err(Error::invalid(message))
}

fn relative_warning(text: &str, path: &HostPath, locale: Locale) -> String {
    let here = WORKING_DIRECTORY.as_str();
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
