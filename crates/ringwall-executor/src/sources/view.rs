//! Opens the part of the host that a session's box shows while path control is off (`sandbox.when_disabled`), or if the allowed
//! paths contain `/`.
//!
//! `readonly` shows a fixed list of system directories, so that an unknown directory stays hidden. `full` shows every
//! top-level directory except those that a box has for itself, and hides known secrets.
//!
//! As root a box has a uid that owns nothing, so file permissions already hide private files, and known secrets are masked by
//! mounts over them. A rootless box has the server's uid. There a directory with something hidden in it is not bound as a whole:
//! the box gets a directory of its own with a bind for each other entry. A mask would not do, because the kernel removes a
//! mount when a program of the host renames another file over its mount point, as shells do with their histories.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ringwall_jail::plan::{MountAccess, Operation, Privilege};
use ringwall_policy::{HostView, Rights};

use crate::error::Error;
use crate::host;
use crate::host::real_path::find_path_without_magic_links;
use crate::host::{Covered, secrets};
use crate::sources::allowed;
use crate::sources::allowed::{Allowed, Presence};
use crate::sources::private_files::Survey;

/// Shown by `readonly` beside the system directories that every box has. Not `/var`, `/mnt`, `/media`, `/boot` or names that
/// a distribution does not define: they hold data, and data has owners.
const SYSTEM_DATA: [&str; 3] = ["/etc", "/opt", "/srv"];

/// Never bound from the host's root: kernel file systems, a box's own directories, and the system, which every box has.
const OWN: &str = "
    proc sys dev run tmp workspace lost+found usr bin sbin lib lib32 lib64 libx32
";

/// A directory of the host that all users share. Each box has one of its own.
const SHARED: &str = "/var/tmp";

/// Bounds the binds of one box: a directory that would have to be shown entry by entry beyond it is left out.
const MAX_BINDS: usize = 1024;

/// A part of the host, opened.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) allowed: Vec<Allowed>,
    /// Symbolic links of directories that are not bound as a whole.
    pub(crate) links: Vec<Link>,
    pub(crate) covered: Vec<Covered>,
    /// Directories may be bound entry by entry, with so many binds that the server cannot hold each open.
    pub(crate) is_by_entry: bool,
}

/// A symbolic link to make in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) at: CString,
    pub(crate) target: CString,
}

/// The directories of the host that are shown, for the record.
pub fn shown_tops(view: HostView) -> &'static [&'static str] {
    match view {
        HostView::ReadOnly => &SYSTEM_DATA,
        HostView::Full => &["/"],
    }
}

/// True if a box may write as far as Unix permissions let it. Never rootless, because the box has the server's uid then.
pub fn is_writable(view: HostView) -> bool {
    view == HostView::Full && host::privilege() == Privilege::Root
}

/// Opens what a session's box shows while path control is off.
pub(crate) fn open(view: HostView) -> Result<Shown, Error> {
    let privilege = host::privilege();
    let access = if is_writable(view) { MountAccess::ReadWrite } else { MountAccess::ReadOnly };
    let mut tops = match view {
        HostView::ReadOnly => SYSTEM_DATA.map(PathBuf::from).into(),
        HostView::Full => top_level()?,
    };
    tops.retain(|top| top.symlink_metadata().is_ok_and(|status| is_shown(view, privilege, &status)));
    let kernel: Vec<PathBuf> = host::all_kernel_mounts()?.into_iter().map(|mount| mount.path).collect();
    let secrets = secrets(view, &tops, &kernel);
    let mut hidden = BTreeSet::from([PathBuf::from(SHARED)]);
    let is_by_entry = privilege == Privilege::Rootless;
    let mut shown = Shown { covered: homes_in_system(), is_by_entry, ..Shown::default() };
    match privilege {
        Privilege::Root => shown.covered.extend(secrets),
        Privilege::Rootless => hidden.extend(secrets.into_iter().map(|secret| secret.path)),
    }
    // A kernel file system is masked as a whole, and holds thousands of entries.
    let skip = hidden.iter().chain(&kernel).cloned().collect();
    let mut survey = Survey::new(&skip);
    for top in tops.into_iter().filter(|top| !hidden.contains(top)).collect::<Vec<_>>() {
        match (privilege, view) {
            (Privilege::Rootless, HostView::ReadOnly) => {
                hidden.extend(survey.hidden_in(&top));
                shown.add_entries(&top, &hidden, access)?;
            }
            (Privilege::Rootless, HostView::Full) | (Privilege::Root, _) => shown.add(&top, &hidden, access)?,
        }
    }
    shown.allowed.sort_by(|one, other| one.at.cmp(&other.at));
    Ok(shown)
}

/// Everything in the host's root that a box does not have for itself, to read and write: an entry `/` of the allowed paths.
pub(crate) fn open_all() -> Result<Shown, Error> {
    open_parts(&top_level()?, &BTreeSet::from([PathBuf::from(SHARED)]))
}

/// Opens directories without `hidden`. A part that cannot be opened, or is gone when the box is made, does not refuse the
/// box: the operator named none of them.
fn open_parts(tops: &[PathBuf], hidden: &BTreeSet<PathBuf>) -> Result<Shown, Error> {
    let mut shown = Shown { is_by_entry: true, ..Shown::default() };
    for top in tops.iter().filter(|top| !top.is_symlink()) {
        shown.add(top, hidden, MountAccess::ReadWrite)?;
    }
    Ok(shown)
}

fn top_level() -> Result<Vec<PathBuf>, Error> {
    let fail = |source| Error::OpenDirectory { path: "/".into(), source };
    let mut tops = Vec::new();
    for entry in std::fs::read_dir("/").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if !OWN.split_ascii_whitespace().any(|own| name == own) {
            tops.push(Path::new("/").join(name));
        }
    }
    tops.sort();
    Ok(tops)
}

/// A rootless `readonly` box is shown a directory only if every user may list and enter it.
fn is_shown(view: HostView, privilege: Privilege, status: &std::fs::Metadata) -> bool {
    match (view, privilege) {
        (HostView::ReadOnly, Privilege::Rootless) => status.is_dir() && status.mode() & 0o005 == 0o005,
        (HostView::ReadOnly, Privilege::Root) => status.is_dir(),
        (HostView::Full, _) => !status.is_symlink(),
    }
}

/// The paths that a view hides, resolved, because a mask does not follow links.
fn secrets(view: HostView, tops: &[PathBuf], kernel: &[PathBuf]) -> Vec<Covered> {
    // Accounts of services have system directories as homes, which must stay visible.
    let is_shown = |path: &Path| tops.iter().any(|top| path.starts_with(top));
    let homes = secrets::homes().into_iter().filter(|home| home != Path::new("/etc"));
    let mut paths = secrets::known();
    match view {
        HostView::ReadOnly => paths.extend(homes),
        HostView::Full => {
            let skip = paths.iter().chain(kernel).cloned().collect();
            let homes = homes.filter(|home| is_shown(home));
            paths.extend(secrets::find_marked(homes.chain(tops.iter().cloned()), &skip));
        }
    }
    paths.extend(secrets::sockets());
    find(paths).into_iter().filter(|secret| is_shown(&secret.path)).collect()
}

/// People's home directories in `/usr`, which every box shows.
fn homes_in_system() -> Vec<Covered> {
    find(secrets::homes_of_people()).into_iter().filter(|home| home.path.starts_with("/usr/")).collect()
}

/// The paths that exist. A socket that was bound through an open directory (`/proc/self/fd/7/x`) has no path that could be
/// masked: only the seccomp filter keeps boxes from connecting to it.
fn find(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Covered> {
    let found = paths.into_iter().filter_map(|path| find_path_without_magic_links(&path));
    found.map(|place| Covered { path: place.path, kind: place.kind.mounted_as() }).collect()
}

impl Shown {
    /// Adds a file or directory: as one bind, or entry by entry if something in it is hidden.
    fn add(&mut self, path: &Path, hidden: &BTreeSet<PathBuf>, access: MountAccess) -> Result<(), Error> {
        // Paths are ordered by their components, so the next path is the first one below this path.
        match hidden.range(path.to_owned()..).next() {
            Some(first) if first == path => Ok(()),
            Some(first) if first.starts_with(path) => self.add_entries(path, hidden, access),
            Some(_) | None => self.bind(path, access),
        }
    }

    fn add_entries(&mut self, path: &Path, hidden: &BTreeSet<PathBuf>, access: MountAccess) -> Result<(), Error> {
        let entries: Vec<_> = std::fs::read_dir(path).into_iter().flatten().flatten().collect();
        // A directory with too many entries is left out, so that it does not use up the bound.
        if self.allowed.len() + entries.len() > MAX_BINDS {
            return Ok(());
        }
        for entry in entries {
            if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
                self.links.extend(Link::read(&entry.path()));
            } else {
                self.add(&entry.path(), hidden, access)?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, path: &Path, access: MountAccess) -> Result<(), Error> {
        let opened = match allowed::open(path, path, Rights::BoxUser) {
            // Gone meanwhile, or a mount that does not answer, such as a dead network file system in a home directory.
            Err(Error::DirectoryReplaced(_) | Error::OpenDirectory { .. }) if self.is_by_entry => None,
            opened => opened?,
        };
        if let Some(mut one) = opened {
            one.access = access;
            if self.is_by_entry {
                one.presence = Presence::Optional;
                one.opened.release();
            }
            self.allowed.push(one);
        }
        Ok(())
    }
}

impl Link {
    fn read(path: &Path) -> Option<Self> {
        let target = std::fs::read_link(path).ok()?;
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
        Some(Self { at: text(path)?, target: text(&target)? })
    }
}

/// Makes links, except at and above the paths at which other operations make something.
pub(crate) fn links(links: &[Link], operations: &[Operation]) -> Vec<Operation> {
    let path = |at: &CStr| Path::new(OsStr::from_bytes(at.to_bytes())).to_owned();
    let taken: BTreeSet<PathBuf> = operations.iter().filter_map(Operation::at).map(path).collect();
    let is_free = |link: &&Link| {
        let at = path(&link.at);
        !taken.range(at.clone()..).next().is_some_and(|other| other.starts_with(at))
    };
    let free = links.iter().filter(is_free);
    free.map(|link| Operation::Symlink { at: link.at.clone(), target: link.target.clone() }).collect()
}

#[cfg(test)]
mod tests {
    use ringwall_jail::plan::Identity;

    use super::*;

    fn paths(allowed: &[Allowed]) -> Vec<&Path> {
        allowed.iter().map(|one| one.at.as_path()).collect()
    }

    #[test]
    fn readonly_shows_only_entries_of_its_list() {
        let shown = open(HostView::ReadOnly).unwrap();
        assert!(!shown.allowed.is_empty());
        for one in &shown.allowed {
            assert!(SYSTEM_DATA.iter().any(|top| one.at.starts_with(top)), "{}", one.at.display());
            assert_eq!(one.access, MountAccess::ReadOnly);
        }
    }

    #[test]
    fn full_shows_no_directory_that_a_box_has_for_itself() {
        let shown = open(HostView::Full).unwrap();
        let own = OWN.split_ascii_whitespace().map(|own| Path::new("/").join(own));
        for own in own.chain([SHARED.into(), "/var".into()]) {
            assert!(!paths(&shown.allowed).contains(&own.as_path()), "{}", own.display());
        }
        assert!(shown.allowed.iter().any(|one| one.at.starts_with("/etc")));
    }

    /// `/var` is split, because a box has a `/var/tmp` of its own; `/var/run` and `/var/lock` are links on most systems.
    #[test]
    fn whole_host_keeps_links_of_a_split_directory() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for directory in ["tmp", "lib"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::os::unix::fs::symlink("/run", at("run")).unwrap();
        let shown = open_parts(&[top.path().to_owned()], &BTreeSet::from([at("tmp")])).unwrap();
        assert_eq!(paths(&shown.allowed), [at("lib")]);
        let link = Link { at: CString::new(at("run").as_os_str().as_bytes()).unwrap(), target: c"/run".into() };
        assert_eq!(shown.links, [link]);
    }

    #[test]
    fn part_of_the_whole_host_may_be_gone_when_the_box_is_made() {
        let top = tempfile::tempdir().unwrap();
        let shown = open_parts(&[top.path().to_owned()], &BTreeSet::new()).unwrap();
        let identity =
            Identity { privilege: Privilege::Root, inside_uid: 1000, inside_gid: 1000, host_uid: 7, host_gid: 7 };
        let operation = shown.allowed[0].bind(&identity);
        assert!(matches!(operation, Operation::Entry { access: MountAccess::ReadWrite, .. }), "{operation:?}");
    }

    #[test]
    fn hidden_file_splits_its_directory() {
        let top = tempfile::tempdir_in("/var").or_else(|_| tempfile::tempdir()).unwrap();
        let at = |name: &str| top.path().join(name);
        for directory in ["app", "app/kept", "other"] {
            std::fs::create_dir(at(directory)).unwrap();
        }
        std::fs::write(at("app/.env"), "").unwrap();
        std::fs::write(at("app/file"), "").unwrap();
        std::os::unix::fs::symlink("kept", at("app/link")).unwrap();
        let mut shown = Shown::default();
        shown.add(top.path(), &BTreeSet::from([at("app/.env")]), MountAccess::ReadOnly).unwrap();
        let mut bound = paths(&shown.allowed);
        bound.sort();
        assert_eq!(bound, [at("app/file"), at("app/kept"), at("other")]);
        let link = Link { at: CString::new(at("app/link").as_os_str().as_bytes()).unwrap(), target: c"kept".into() };
        assert_eq!(shown.links, [link]);
    }
}
