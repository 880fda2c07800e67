//! Masks for secrets and kernel file systems that lie inside a directory mounted into the box. Pure: `host_view`, `mount_table`
//! and the service find the paths.

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringwall_jail::plan::{Cover, FileKind, Operation};

use crate::box_layout::WORKSPACE;
use crate::host::{SystemEntry, SystemKind};
use crate::sources::Sources;

/// Masks Ringwall's data directory `hidden` and everything in `sources.covered`. `system` are the host's directories that this
/// plan mounts for the system; none where the box starts with them.
pub(crate) fn covers(hidden: Option<&Path>, sources: &Sources, system: &[SystemEntry]) -> Vec<Operation> {
    let own = hidden.map(|path| (path, FileKind::Directory));
    let others = sources.covered.iter().map(|covered| (covered.path.as_path(), covered.kind));
    own.into_iter().chain(others).flat_map(|(path, kind)| cover(path, kind, sources, system)).collect()
}

fn cover(hidden: &Path, kind: FileKind, sources: &Sources, system: &[SystemEntry]) -> Vec<Operation> {
    let system = system.iter().filter(|entry| entry.kind == SystemKind::Directory);
    let system = system.map(|entry| Path::new(OsStr::from_bytes(entry.path.as_bytes()))).map(|path| (path, path));
    let workspace = sources.workspace.iter().map(|directory| (directory.place(), Path::new(WORKSPACE)));
    let read_only = sources.read_only.iter().map(|directory| (directory.place(), directory.place()));
    let allowed = sources.allowed.iter().map(|allowed| (allowed.opened.place(), allowed.at.as_path()));
    let with = match kind {
        FileKind::Directory => Cover::FileSystem,
        FileKind::File => Cover::Null,
    };
    let places = system.chain(workspace).chain(read_only).chain(allowed).filter_map(|(place, at)| {
        let below = hidden.strip_prefix(place).ok()?;
        // `join` with an empty path would add a slash.
        let place: PathBuf = at.components().chain(below.components()).collect();
        CString::new(place.into_os_string().into_encoded_bytes()).ok()
    });
    // Where mounts lie inside each other, the last one is seen, and one mask on it is enough.
    let places: BTreeSet<CString> = places.collect();
    places.into_iter().map(|at| Operation::Mask { at, cover: with.clone() }).collect()
}
