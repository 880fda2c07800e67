//! The host paths in the box of a session command, for the record and for the exec's `meta.json`.

use std::path::Path;

use ringwall_policy::{AllowedPath, Grant, HostPath, PathAccess, PathControl, Rights, normalise};
use serde_json::{Value, json};

use super::spec::control;

/// Adds the host paths in a box to the policy snapshot: path, user, and whether the list or an
/// approval allowed it.
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

/// The host paths in a box as mounts for `meta.json`.
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

/// The first path that the command names and may use but that is not mounted.
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

pub(crate) fn host_path(path: &Path) -> Option<HostPath> {
    path.to_str().and_then(|text| normalise(text, "/", None).ok())
}
