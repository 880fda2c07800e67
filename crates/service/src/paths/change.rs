//! Changes the switch and the list. Operators and owners may change both; a user may change or remove their own entries.
//!
//! Ringwall's own data can never be added, by any link. A sensitive path can, and the answer warns.

use policy::{HostPath, Locale, PathStyle};
use record::{Holder, NewPath, PathChange, PathScope, Switch};
use serde::Serialize;
use std::path::Path;
use utoipa::ToSchema;

use crate::error::Error;
use crate::principal::Principal;
use crate::service::{Service, now};

use super::list::{Listed, SandboxPath, read_path};
use super::state::PathControl;

/// How many entries a list may have: each is a mount of every box.
const MOST: usize = 256;

/// The answer to an addition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct NewSandboxPath {
    /// All that there are now
    pub paths: Vec<SandboxPath>,
    /// What is unwise about the new one
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

    pub async fn add_path(
        &self,
        by: &Principal,
        text: &str,
        description: &str,
        locale: Locale,
    ) -> Result<NewSandboxPath, Error> {
        by.require_operator("allow paths")?;
        let path = read_path(text)?;
        self.require_foreign(&path).await?;
        let mut listed = self.listed_paths().await?;
        let warnings = Self::warnings(&path, &listed, locale).await?;
        listed.retain(|listed| listed.entry.scope == PathScope::Global);
        // A duplicate is no error and changes nothing, also where it is spelt otherwise or switched off.
        if !listed.iter().any(|listed| listed.path == path) {
            require_room(listed.len(), 1)?;
            let description = description.to_owned();
            let new = NewPath { path: path.to_string(), description, scope: PathScope::Global };
            self.inner.store.add_path(new, now(), by.author()).await?;
            self.review_approvals();
        }
        Ok(NewSandboxPath { paths: self.allowed_paths(by, locale).await?.paths, warnings })
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
        // What stands there twice is one.
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

    /// The entries that a key means and that its giver may change: one by its number, or all of one scope by their path,
    /// the global ones first.
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

    /// Refuses what is Ringwall's own, by whatever name.
    pub(crate) async fn require_foreign(&self, path: &HostPath) -> Result<(), Error> {
        let spelt = Path::new(path.as_str());
        let is_own = Self::blocking(|| {
            let real = executor::resolve(spelt);
            Ok(self.hidden_now().iter().any(|own| real.starts_with(own) || spelt.starts_with(own)))
        });
        match path.style() {
            PathStyle::Linux if is_own.await? => {
                Err(Error::invalid("that is where Ringwall keeps its own data, which can never be allowed"))
            }
            PathStyle::Linux | PathStyle::Windows => Ok(()),
        }
    }

    /// With the list as it was before.
    async fn warnings(path: &HostPath, listed: &[Listed], locale: Locale) -> Result<Vec<String>, Error> {
        let mut warnings: Vec<String> = path.warning_in(locale).map(str::to_owned).into_iter().collect();
        if path.style() == PathStyle::Windows {
            return Ok(warnings);
        }
        let spelt = Path::new(path.as_str());
        if policy::is_never_shown(spelt) {
            warnings.push(match locale {
                Locale::English => format!("{path} is every box's own: the host's is never shown there"),
                Locale::Chinese => format!("{path} 是每个沙箱自己的：永远不会显示主机上的内容"),
            });
            return Ok(warnings);
        }
        let real = Self::blocking(|| Ok(executor::resolve(spelt))).await?;
        if let Some(text) = real.to_str().filter(|_| real != spelt)
            && let Ok(real) = policy::normalise(text, "/", None)
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

/// Whether so many more fit into a list that has so many entries.
pub(super) fn require_room(there: usize, more: usize) -> Result<(), Error> {
    if more == 0 || there + more <= MOST {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "there are {there} paths already, and at most {MOST}; remove some, or allow a directory above"
    )))
}

fn no_path() -> Error {
    Error::NotFound { what: "such path in the list".to_owned() }
}
