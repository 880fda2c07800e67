//! Resolves on the host which paths a session's command can reach: the current list, the real paths
//! behind names, and which allowed paths exist.
//!
//! An entry allows the path as spelled. If it contains a link, the link's target must be allowed
//! itself. A command that uses such a link finds the target under that name: the box mounts the
//! real path there, so a later change of the link has no effect. The results may be stale a moment
//! later; mounted paths are opened and compared again when the box is created.

use std::path::{Path, PathBuf};

use ringwall_executor::{PathKind, RealPath, find_path, resolve};
use ringwall_ids::UserId;
use ringwall_policy::{AllowedPath, HostPath, NamedPath, PathAccess, PathControl, PathStyle, Rights, is_in_every_box};
use ringwall_record::PathScope;

use crate::blocking;
use crate::error::Error;
use crate::exec::host_paths::host_path;
use crate::exec::spec::Approved;
use crate::service::Service;

use super::list::Listed;

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
        blocking::in_place(|| Ok(PathControl::On(resolve_access(&listed, named, approved, &self.hidden_now())))).await
    }

    /// The server's own directories under all their current names, including bind mounts.
    pub(crate) fn hidden_now(&self) -> Vec<PathBuf> {
        let mut hidden = self.inner.hidden.clone();
        hidden.extend(ringwall_executor::aliases(&self.inner.hidden));
        hidden
    }
}

fn resolve_access(listed: &[Listed], named: &[HostPath], approved: &[Approved], hidden: &[PathBuf]) -> PathAccess {
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
    let mut mounts = Vec::new();
    for path in entries.iter().chain(&once).filter(|path| path.style() == PathStyle::Linux) {
        let at = Path::new(path.as_str());
        let Some(found) = find_path(at).filter(|found| found.kind != PathKind::Other && !is_own(&found.path)) else {
            continue;
        };
        if found.path != at && !host_path(&found.path).is_some_and(|real| is_allowed(&real)) {
            tracing::debug!(%path, "an allowed path is not mounted because it is a link to a path that is not allowed");
            continue;
        }
        mounts.push(AllowedPath { at: at.to_owned(), real: found.path, rights: rights(path) });
    }
    let named: Vec<NamedPath> =
        named.iter().map(|path| NamedPath { path: path.clone(), real: real_path(path) }).collect();
    for named in named.iter().filter(|named| named.path != named.real && !is_in_every_box(&named.path)) {
        let Some((at, found, real)) = first_allowed_name(named, is_allowed) else { continue };
        // A path shown under its own name contains the links already.
        if found.path != at && found.kind != PathKind::Other && !is_own(&found.path) {
            mounts.push(AllowedPath { at, real: found.path, rights: rights(&real) });
        }
    }
    PathAccess { named, approved: once, mounts, entries }
}

/// The shortest ancestor of the named path for which it and every name between resolve to allowed
/// paths, with the file there and its real path.
fn first_allowed_name(
    named: &NamedPath,
    is_allowed: impl Fn(&HostPath) -> bool,
) -> Option<(PathBuf, RealPath, HostPath)> {
    let names = Path::new(named.path.as_str()).ancestors();
    let allowed = names.map_while(|name| Some((name, host_path(&resolve(name)).filter(|real| is_allowed(real))?)));
    allowed.filter_map(|(name, real)| Some((name.to_owned(), find_path(name)?, real))).last()
}

/// The real path behind a name in a command.
fn real_path(path: &HostPath) -> HostPath {
    match path.style() {
        PathStyle::Windows => path.clone(),
        PathStyle::Linux => host_path(&resolve(Path::new(path.as_str()))).unwrap_or_else(|| path.clone()),
    }
}

/// For a missing path: the directory that would have to be allowed to create it.
pub(crate) fn missing_from(path: &HostPath) -> Option<HostPath> {
    let on_host = Path::new(path.as_str());
    if path.style() == PathStyle::Windows || on_host.symlink_metadata().is_ok() {
        return None;
    }
    on_host.ancestors().skip(1).find(|parent| parent.is_dir()).and_then(host_path)
}

/// The path that "remember" would store: the path itself if it is a directory or missing, else its
/// directory. Never `/`.
pub(crate) fn requested(path: &HostPath) -> HostPath {
    let on_host = Path::new(path.as_str());
    let is_file =
        path.style() == PathStyle::Linux && find_path(on_host).is_some_and(|found| found.kind != PathKind::Directory);
    let parent = on_host.parent().filter(|parent| is_file && *parent != Path::new("/"));
    parent.and_then(host_path).unwrap_or_else(|| path.clone())
}
