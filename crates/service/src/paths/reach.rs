//! What a session's command can reach, found out on the host and handed to the policy: the list as it is now, where names
//! really lead, and what of the allowed is there.
//!
//! An entry means the path that it spells. Where that leads elsewhere, through links that anybody may have made since, the
//! real path has to be allowed itself. All of it can be stale a moment later: what is mounted is opened and compared again
//! where the box is made.

use std::path::{Path, PathBuf};

use executor::{PlaceKind, find_place, resolve};
use policy::{AllowedPath, Control, HostPath, Named, PathStyle, Reach, Rights, normalise};
use record::{PathScope, Switch, UserId};

use crate::error::Error;
use crate::service::Service;

use super::list::Listed;

/// What a person allowed for one exec alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Approved {
    pub(crate) path: HostPath,
    pub(crate) rights: Rights,
}

impl Service {
    /// `approved` is what a person allowed for this one exec.
    pub(crate) async fn reach(
        &self,
        user: &UserId,
        named: &[HostPath],
        approved: &[Approved],
    ) -> Result<Control, Error> {
        let (switch, mut listed) = self.listed_paths().await?;
        match switch {
            Switch::Off => return Ok(Control::Off),
            Switch::On => {}
        }
        listed.retain(|listed| listed.entry.enabled.is_on() && listed.is_for(user));
        Self::blocking(|| Ok(Control::On(look(&listed, named, approved, &self.hidden_now())))).await
    }

    /// What the server keeps for itself, by every name that it has just now: anybody with the right to may have mounted it
    /// a second time.
    pub(crate) fn hidden_now(&self) -> Vec<PathBuf> {
        let mut hidden = self.inner.hidden.clone();
        hidden.extend(executor::aliases(&self.inner.hidden));
        hidden
    }
}

fn look(listed: &[Listed], named: &[HostPath], approved: &[Approved], hidden: &[PathBuf]) -> Reach {
    let is_own = |path: &Path| hidden.iter().any(|own| path.starts_with(own));
    let listed: Vec<&Listed> = listed.iter().filter(|listed| !is_own(Path::new(listed.path.as_str()))).collect();
    let entries: Vec<HostPath> = listed.iter().map(|listed| listed.path.clone()).collect();
    let once: Vec<HostPath> = approved.iter().map(|approved| approved.path.clone()).collect();
    let is_allowed = |path: &HostPath| entries.iter().chain(&once).any(|allowed| allowed.covers(path));
    // What an operator allowed acts for everything below it, whoever else allowed that too.
    let operators = || {
        let global = listed.iter().filter(|listed| listed.entry.scope == PathScope::Global).map(|listed| &listed.path);
        global.chain(approved.iter().filter(|one| one.rights == Rights::Owners).map(|one| &one.path))
    };
    let mut places = Vec::new();
    for path in entries.iter().chain(&once).filter(|path| path.style() == PathStyle::Linux) {
        let at = Path::new(path.as_str());
        let Some(found) = find_place(at).filter(|found| found.kind != PlaceKind::Other && !is_own(&found.path)) else {
            continue;
        };
        if found.path != at && !host_path(&found.path).is_some_and(|real| is_allowed(&real)) {
            tracing::debug!(%path, "an allowed path leads to one that is not allowed, and is not shown");
            continue;
        }
        let is_operators = operators().any(|allowed| allowed.covers(path));
        let rights = if is_operators { Rights::Owners } else { Rights::Boxes };
        places.push(AllowedPath { at: at.to_owned(), real: found.path, rights });
    }
    let named = named.iter().map(|path| Named { path: path.clone(), real: real_path(path) });
    Reach { named: named.collect(), approved: once, places, entries: entries.clone() }
}

/// Where a path that a command names really leads.
fn real_path(path: &HostPath) -> HostPath {
    match path.style() {
        PathStyle::Windows => path.clone(),
        PathStyle::Linux => host_path(&resolve(Path::new(path.as_str()))).unwrap_or_else(|| path.clone()),
    }
}

fn host_path(path: &Path) -> Option<HostPath> {
    path.to_str().and_then(|text| normalise(text, "/", None).ok())
}

/// What remembering would store for a path that is asked for: itself if it is a directory or not there yet, else the
/// directory in which it lies. Never the root of everything.
pub(crate) fn requested(path: &HostPath) -> HostPath {
    let place = Path::new(path.as_str());
    let is_file =
        path.style() == PathStyle::Linux && find_place(place).is_some_and(|found| found.kind != PlaceKind::Directory);
    let parent = place.parent().filter(|parent| is_file && *parent != Path::new("/"));
    parent.and_then(host_path).unwrap_or_else(|| path.clone())
}
