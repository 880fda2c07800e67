//! What a session's command can reach, found out on the host and handed to the policy: the list as it is now, where names
//! really lead, and what of the allowed is there.
//!
//! An entry means the path that it spells. Where that leads elsewhere, through links that anybody may have made since, the
//! real path has to be allowed itself. A command that goes by such a link finds what it leads to under that name too: the box
//! has the real place there, and whoever changes the link later changes nothing of that. All of it can be stale a moment
//! later: what is mounted is opened and compared again where the box is made.

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
    ) -> Result<PathControl, Error> {
        if !self.is_path_control_on().await? {
            return Ok(PathControl::Off(self.host_view()));
        }
        let mut listed = self.listed_for(user).await?;
        listed.retain(|listed| listed.entry.enabled.is_on());
        Self::blocking(|| Ok(PathControl::On(look(&listed, named, approved, &self.hidden_now())))).await
    }

    /// What the server keeps for itself, by every name that it has just now: anybody with the right to may have mounted it
    /// a second time.
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
    // What an operator allowed acts for everything below it, whoever else allowed that too.
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
        // What is shown under its own name has the links in it.
        if found.path != at && found.kind != PlaceKind::Other && !is_own(&found.path) {
            places.push(AllowedPath { at, real: found.path, rights: rights(&real) });
        }
    }
    PathAccess { named, approved: once, mounts: places, entries: entries.clone() }
}

/// The first name, on the way that a command goes through links, from which on everything is allowed; and what is there.
fn way(named: &NamedPath, is_allowed: impl Fn(&HostPath) -> bool) -> Option<(PathBuf, RealPlace, HostPath)> {
    let names = Path::new(named.path.as_str()).ancestors();
    let real = names.map(|name| (name, host_path(&resolve(name)).filter(|real| is_allowed(real))));
    let allowed = real.take_while(|(_, real)| real.is_some());
    let there = allowed.filter_map(|(name, real)| Some((name.to_owned(), find_place(name)?, real?)));
    there.last()
}

/// What of the host a box has, for the record: which places, as whom, and by whose word.
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

/// The same as mounts, for whoever looks at one exec.
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

/// What the command names and is allowed, and is not in its box.
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

/// Where something would have to be allowed for a path that is not there to be made, if it is not there.
pub(crate) fn missing_from(path: &HostPath) -> Option<HostPath> {
    let place = Path::new(path.as_str());
    if path.style() == PathStyle::Windows || place.symlink_metadata().is_ok() {
        return None;
    }
    place.ancestors().skip(1).find(|parent| parent.is_dir()).and_then(host_path)
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
