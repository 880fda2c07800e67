//! Finds out on the host what a session's command can reach: the current list, the real paths
//! behind names, and which allowed paths exist.
//!
//! An entry means the path as spelled. If links lead elsewhere, the real path must be allowed
//! itself. A command that uses such a link finds its target under that name: the box mounts the
//! real path there, so a later change of the link has no effect. Everything found here may be stale
//! a moment later; mounted paths are opened and compared again when the box is made.

use std::path::{Path, PathBuf};

use ringwall_executor::{PlaceKind, RealPlace, find_place, resolve};
use ringwall_policy::{
    AllowedPath, Grant, HostPath, NamedPath, PathAccess, PathControl, PathStyle, Rights, is_in_every_box, normalise,
};
use ringwall_record::{PathScope, UserId};
use serde_json::{Value, json};

use crate::error::Error;
use crate::exec::order::control;
use crate::service::Service;

use super::list::Listed;

/// A path that a person allowed for one exec only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Approved {
    pub(crate) path: HostPath,
    pub(crate) rights: Rights,
}

impl Service {
    /// `approved`: paths that a person allowed for this exec.
    pub(crate) async fn reach(
        &self,
        user: &UserId,
        named: &[HostPath],
        approved: &[Approved],
    ) -> Result<PathControl, Error> {
        if !self.is_path_control_on().await? {
            return Ok(PathControl::Off(self.host_view()));
        }
        let mut listed = self.listed_for(user).await?;
        listed.retain(|listed| listed.entry.enabled.is_on());
        Self::blocking(|| Ok(PathControl::On(look(&listed, named, approved, &self.hidden_now())))).await
    }

    /// The server's own directories by all their current names; someone may have mounted them a
    /// second time.
    pub(crate) fn hidden_now(&self) -> Vec<PathBuf> {
        let mut hidden = self.inner.hidden.clone();
        hidden.extend(ringwall_executor::aliases(&self.inner.hidden));
        hidden
    }
}

fn look(listed: &[Listed], named: &[HostPath], approved: &[Approved], hidden: &[PathBuf]) -> PathAccess {
    let is_own = |path: &Path| hidden.iter().any(|own| path.starts_with(own));
    let listed: Vec<&Listed> = listed.iter().filter(|listed| !is_own(Path::new(listed.path.as_str()))).collect();
    let entries: Vec<HostPath> = listed.iter().map(|listed| listed.path.clone()).collect();
    let once: Vec<HostPath> = approved.iter().map(|approved| approved.path.clone()).collect();
    let is_allowed = |path: &HostPath| entries.iter().chain(&once).any(|allowed| allowed.covers(path));
    // An operator's entry applies to everything below it, even if a user allowed that too.
    let operators = || {
        let global = listed.iter().filter(|listed| listed.entry.scope == PathScope::Global).map(|listed| &listed.path);
        global.chain(approved.iter().filter(|one| one.rights == Rights::Owner).map(|one| &one.path))
    };
    let rights = |path: &HostPath| {
        if operators().any(|allowed| allowed.covers(path)) { Rights::Owner } else { Rights::BoxUser }
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
        places.push(AllowedPath { at: at.to_owned(), real: found.path, rights: rights(path) });
    }
    let named: Vec<NamedPath> =
        named.iter().map(|path| NamedPath { path: path.clone(), real: real_path(path) }).collect();
    for named in named.iter().filter(|named| named.path != named.real && !is_in_every_box(&named.path)) {
        let Some((at, found, real)) = way(named, is_allowed) else { continue };
        // A path shown under its own name contains the links already.
        if found.path != at && found.kind != PlaceKind::Other && !is_own(&found.path) {
            places.push(AllowedPath { at, real: found.path, rights: rights(&real) });
        }
    }
    PathAccess { named, approved: once, mounts: places, entries: entries.clone() }
}

/// The first name on the command's way through links below which everything is allowed, and what is
/// there.
fn way(named: &NamedPath, is_allowed: impl Fn(&HostPath) -> bool) -> Option<(PathBuf, RealPlace, HostPath)> {
    let names = Path::new(named.path.as_str()).ancestors();
    let real = names.map(|name| (name, host_path(&resolve(name)).filter(|real| is_allowed(real))));
    let allowed = real.take_while(|(_, real)| real.is_some());
    let there = allowed.filter_map(|(name, real)| Some((name.to_owned(), find_place(name)?, real?)));
    there.last()
}

/// The host paths in a box for the record: path, user, and who allowed it.
pub(crate) fn note(control: &PathControl, snapshot: &mut Value) {
    match control {
        PathControl::Off(view) => {
            snapshot["path_control"] = json!("off");
            snapshot["when_disabled"] = json!(view.key());
        }
        PathControl::On(access) => {
            snapshot["path_control"] = json!("on");
            snapshot["paths"] = access.mounts.iter().map(|place| note_place(place, access)).collect();
        }
    }
}

/// The same as a list of mounts.
pub(crate) fn host_mounts(grant: &Grant) -> Vec<Value> {
    let mount = |source: &Path, target: &Path, mode: &str| json!({ "source": source.to_string_lossy(), "target": target.to_string_lossy(), "mode": mode });
    match control(grant) {
        Some(PathControl::On(access)) => {
            access.mounts.iter().map(|place| mount(&place.real, &place.at, "rw")).collect()
        }
        Some(PathControl::Off(view)) => {
            let mode = if ringwall_executor::is_writable(*view) { "rw" } else { "ro" };
            ringwall_executor::shown_tops(*view).iter().map(|top| mount(Path::new(top), Path::new(top), mode)).collect()
        }
        None => Vec::new(),
    }
}

/// A path that the command names, that is allowed, and that is missing in its box.
pub(crate) fn unseen(grant: &Grant) -> Option<HostPath> {
    match control(grant) {
        Some(PathControl::On(access)) => access.first_unmounted().cloned(),
        Some(PathControl::Off(_)) | None => None,
    }
}

fn note_place(place: &AllowedPath, access: &PathAccess) -> Value {
    let is_listed = host_path(&place.real).is_some_and(|real| access.entries.iter().any(|entry| entry.covers(&real)));
    let mut note = json!({
        "path": place.at.to_string_lossy(),
        "acts_as": match place.rights {
            Rights::Owner => "owner",
            Rights::BoxUser => "box",
        },
        "by": if is_listed { "list" } else { "approval" },
    });
    if place.at != place.real {
        note["real"] = json!(place.real.to_string_lossy());
    }
    note
}

/// The real path behind a name in a command.
fn real_path(path: &HostPath) -> HostPath {
    match path.style() {
        PathStyle::Windows => path.clone(),
        PathStyle::Linux => host_path(&resolve(Path::new(path.as_str()))).unwrap_or_else(|| path.clone()),
    }
}

fn host_path(path: &Path) -> Option<HostPath> {
    path.to_str().and_then(|text| normalise(text, "/", None).ok())
}

/// For a missing path: the directory that would have to be allowed to create it.
pub(crate) fn missing_from(path: &HostPath) -> Option<HostPath> {
    let place = Path::new(path.as_str());
    if path.style() == PathStyle::Windows || place.symlink_metadata().is_ok() {
        return None;
    }
    place.ancestors().skip(1).find(|parent| parent.is_dir()).and_then(host_path)
}

/// The path that "remember" would store: the path itself if it is a directory or missing, else its
/// directory. Never `/`.
pub(crate) fn requested(path: &HostPath) -> HostPath {
    let place = Path::new(path.as_str());
    let is_file =
        path.style() == PathStyle::Linux && find_place(place).is_some_and(|found| found.kind != PlaceKind::Directory);
    let parent = place.parent().filter(|parent| is_file && *parent != Path::new("/"));
    parent.and_then(host_path).unwrap_or_else(|| path.clone())
}
