//! What nobody is to see below what a box is shown: covered wherever it would be found. Where that is on the host is `whole_host`'s
//! and the service's to say; nothing is looked at here.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};

use jail::plan::{Cover, FileKind, Operation};

use crate::sources::{Sources, WORKSPACE};

/// Our own directory, and what else nobody is to see, may lie below what the box is shown: there it is empty.
pub(crate) fn covers(hidden: Option<&Path>, sources: &Sources) -> Vec<Operation> {
    let own = hidden.map(|path| (path, FileKind::Directory));
    let others = sources.covered.iter().map(|covered| (covered.path.as_path(), covered.kind));
    own.into_iter().chain(others).flat_map(|(path, kind)| cover(path, kind, sources)).collect()
}

fn cover(hidden: &Path, kind: FileKind, sources: &Sources) -> Vec<Operation> {
    let workspace = sources.workspace.iter().map(|directory| (directory, Path::new(WORKSPACE)));
    let read_only = sources.read_only.iter().map(|directory| (directory, directory.place()));
    let allowed = sources.allowed.iter().map(|allowed| (&allowed.opened, allowed.at.as_path()));
    let with = match kind {
        FileKind::Directory => Cover::FileSystem,
        FileKind::File => Cover::Null,
    };
    let places = workspace.chain(read_only).chain(allowed).filter_map(|(directory, at)| {
        let below = hidden.strip_prefix(directory.place()).ok()?;
        // Nothing joined to a path would still put a slash behind it.
        let place: PathBuf = at.components().chain(below.components()).collect();
        CString::new(place.into_os_string().into_encoded_bytes()).ok()
    });
    // Where mounts lie in each other, one cover on the last of them covers it in all.
    let places: BTreeSet<CString> = places.collect();
    places.into_iter().map(|at| Operation::Mask { at, cover: with.clone() }).collect()
}
