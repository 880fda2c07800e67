//! The paths of the host that a session's box may access.
//!
//! With path control on, each path that a command names must be in the list of allowed paths or be
//! approved, otherwise the verdict is Ask. The caller resolves symlinks and finds out which allowed
//! paths exist; this module compares text. It checks the mounts against the list a second time, so
//! that a mistake of the caller cannot widen a box.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::paths::{FORBIDDEN_TREES, WORKSPACE, check_workspace, plain, show};
use crate::reach::{HostPath, PathStyle, is_in_every_box, normalise};
use crate::request::Owner;
use crate::verdict::{Denial, DenialCode};

/// Why a path is never allowed.
const OWN: &str = "belongs to the server's own data, which no box may access";

/// The files of a session, mounted at `/workspace`, and the paths of the host that its command may
/// access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMounts {
    pub work: PathBuf,
    /// Owner of the files on the host. If the server runs as root, the box runs as this user.
    pub owner: Owner,
    pub control: PathControl,
    /// The server's own data: masked in the box, also below a directory that the box shows.
    pub hidden: Vec<PathBuf>,
}

/// Path control of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathControl {
    /// The box shows the allowed paths and the host's system directories.
    On(PathAccess),
    /// The box shows this part of the host, and no path needs an approval.
    Off(HostView),
}

/// The part of the host that a session's box shows while path control is off: the setting
/// `sandbox.when_disabled`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostView {
    /// `/etc`, `/opt` and `/srv` beside the system directories, read-only, without home
    /// directories.
    #[default]
    ReadOnly,
    /// All top-level directories except those that every box has for itself, with known secrets
    /// hidden.
    Full,
}

impl HostView {
    /// The value of the setting.
    pub const fn key(self) -> &'static str {
        match self {
            HostView::ReadOnly => "readonly",
            HostView::Full => "full",
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathAccess {
    /// The enabled entries of the list that apply to this user.
    pub entries: Vec<HostPath>,
    /// Paths that an approver allowed for this exec.
    pub approved: Vec<HostPath>,
    /// Paths that the command names.
    pub named: Vec<NamedPath>,
    /// Existing files and directories of `entries` and `approved`, also under the symlinks by which
    /// the command reaches them.
    pub mounts: Vec<AllowedPath>,
}

/// A path of the host that a command names, and its real path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPath {
    pub path: HostPath,
    pub real: HostPath,
}

/// A file or directory of the host that a box may read and write, within its permissions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPath {
    /// Path in the box: the real path, or that of a symlink to it.
    pub at: PathBuf,
    /// Path on the host, without symlinks.
    pub real: PathBuf,
    pub rights: Rights,
}

/// The user as whom a box acts on an allowed path. Rootless, it is always the server's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// The owner of the path, if that is an ordinary user. For paths that the operator allowed.
    Owner,
    /// The box's own user.
    BoxUser,
}

impl PathAccess {
    /// True if the command names exactly this path.
    pub(crate) fn names(&self, path: &Path) -> bool {
        self.named.iter().any(|named| Path::new(named.path.as_str()) == path)
    }

    /// True if `path` is an ancestor of a named path that resolves to a different one: a symlink,
    /// or a path behind one.
    fn leads_through(&self, path: &Path) -> bool {
        let leads = |named: &&NamedPath| named.path != named.real && !is_in_every_box(&named.path);
        self.named.iter().filter(leads).any(|named| Path::new(named.path.as_str()).starts_with(path))
    }

    /// The first named and allowed path that is not mounted: it does not exist, or is neither a
    /// file nor a directory.
    pub fn first_unmounted(&self) -> Option<&HostPath> {
        let is_in_box = |named: &NamedPath| is_in_every_box(&named.path) || is_in_every_box(&named.real);
        let is_mounted = |real: &Path| self.mounts.iter().any(|mount| real.starts_with(&mount.real));
        let mut named = self.named.iter().filter(|named| named.real.style() == PathStyle::Linux && !is_in_box(named));
        named.find(|named| !is_mounted(Path::new(named.real.as_str()))).map(|named| &named.path)
    }

    fn allows(&self, path: &HostPath) -> bool {
        self.entries.iter().chain(&self.approved).any(|allowed| allowed.covers(path))
    }

    /// The named paths that no list allows and that a box does not have by itself, each once.
    fn blocked(&self) -> Vec<NamedPath> {
        let is_in_box = |named: &&NamedPath| is_in_every_box(&named.path) || is_in_every_box(&named.real);
        let mut blocked: Vec<NamedPath> = Vec::new();
        for named in self.named.iter().filter(|named| !is_in_box(named) && !self.allows(&named.real)) {
            if !blocked.contains(named) {
                blocked.push(named.clone());
            }
        }
        blocked
    }
}

impl PathControl {
    /// The paths that need an approval.
    pub fn blocked(&self) -> Vec<NamedPath> {
        match self {
            PathControl::On(access) => access.blocked(),
            PathControl::Off(_) => Vec::new(),
        }
    }
}

/// Checks the mounts. Returns each path once, a directory before its content.
pub(crate) fn check_session(mounts: &SessionMounts) -> Result<SessionMounts, Denial> {
    let work = check_workspace(&mounts.work)?;
    let hidden = mounts.hidden.iter().map(|path| plain("what is hidden", path)).collect::<Result<Vec<_>, _>>()?;
    let control = match &mounts.control {
        PathControl::Off(view) => PathControl::Off(*view),
        PathControl::On(access) => {
            check_named(access, &hidden)?;
            PathControl::On(PathAccess { mounts: check_mounts(access, &hidden)?, ..access.clone() })
        }
    };
    Ok(SessionMounts { work, owner: mounts.owner, control, hidden })
}

/// The server's own data cannot be allowed, so naming it is denied without a question.
fn check_named(access: &PathAccess, hidden: &[PathBuf]) -> Result<(), Denial> {
    let named = access.named.iter().find(|named| {
        let real = Path::new(named.real.as_str());
        hidden.iter().any(|hidden| real.starts_with(hidden))
    });
    named.map_or(Ok(()), |named| Err(refused(Path::new(named.path.as_str()), OWN)))
}

fn check_mounts(access: &PathAccess, hidden: &[PathBuf]) -> Result<Vec<AllowedPath>, Denial> {
    let mut mounts = BTreeMap::new();
    for mount in &access.mounts {
        let (at, real) = (plain("the allowed path", &mount.at)?, plain("the allowed path", &mount.real)?);
        if is_never_mounted(&at) || is_never_mounted(&real) {
            continue;
        }
        if hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Err(refused(&real, OWN));
        }
        let is_allowed = |path: &Path| {
            let text = path.to_str().and_then(|text| normalise(text, "/", None).ok());
            text.is_some_and(|path| access.allows(&path))
        };
        // The real path must be allowed. The path in the box may instead be a symlink that the
        // command uses.
        if !is_allowed(&real) {
            return Err(refused(&real, "is not in the list of allowed paths"));
        }
        if !is_allowed(&at) && !access.leads_through(&at) {
            return Err(refused(&at, "is not in the list of allowed paths"));
        }
        // If two entries have the same path, the operator's rights win.
        let rights = match mounts.get(&at) {
            Some(AllowedPath { rights: Rights::Owner, .. }) => Rights::Owner,
            Some(AllowedPath { rights: Rights::BoxUser, .. }) | None => mount.rights,
        };
        mounts.insert(at.clone(), AllowedPath { at, real, rights });
    }
    Ok(mounts.into_values().collect())
}

/// Kernel and runtime directories (`/proc`, `/dev`, …) and the workspace belong to each box; no
/// list can replace them.
pub fn is_never_mounted(path: &Path) -> bool {
    path.starts_with(WORKSPACE) || FORBIDDEN_TREES.iter().any(|tree| path.starts_with(tree))
}

fn refused(path: &Path, why: &str) -> Denial {
    Denial::new(DenialCode::PathForbidden, format!("the path {} {why}", show(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ceilings, Layer, LayerName, Layers, Request, Root, Verdict, Workspace, decide, profile};

    fn host_path(text: &str) -> HostPath {
        normalise(text, "/workspace", None).expect("a path")
    }

    fn paths(texts: &[&str]) -> Vec<HostPath> {
        texts.iter().map(|text| host_path(text)).collect()
    }

    fn mount(path: &str) -> AllowedPath {
        AllowedPath { at: path.into(), real: path.into(), rights: Rights::BoxUser }
    }

    fn named(path: &str, real: &str) -> NamedPath {
        NamedPath { path: host_path(path), real: host_path(real) }
    }

    fn judge(control: PathControl, cwd: Option<&str>) -> Verdict {
        let owner = Owner::new(2001, 2002).expect("an ordinary user");
        let (work, hidden) = ("/data/w/sessions/s/work".into(), vec!["/data".into()]);
        let request = Request {
            argv: vec!["bash".into()],
            env: Default::default(),
            cwd: cwd.map(PathBuf::from),
            root: Root::Host,
            workspace: Workspace::Session(Box::new(SessionMounts { work, owner, control, hidden })),
            read_only: vec![],
        };
        let layers = Layers {
            system: profile::FILES,
            ceilings: Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System },
            operator: Layer::new(LayerName::Settings),
            narrowing: vec![],
        };
        decide(&request, &layers)
    }

    fn blocked(entries: &[&str], approved: &[&str], named: &[NamedPath]) -> Option<Vec<String>> {
        let (entries, approved) = (paths(entries), paths(approved));
        match judge(PathControl::On(PathAccess { entries, approved, named: named.to_vec(), mounts: vec![] }), None) {
            Verdict::Allow(_) => None,
            Verdict::Ask(ask) => Some(ask.blocked.iter().map(|named| named.path.to_string()).collect()),
            Verdict::Deny(denial) => Some(vec![denial.code.key().to_owned()]),
        }
    }

    #[test]
    fn unlisted_named_path_needs_approval() {
        let plain = |path: &str| named(path, path);
        let asks_for = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(blocked(&[], &[], &[plain("/workspace/x"), plain("/tmp"), plain("/usr/bin/env")]), None);
        assert_eq!(blocked(&["/home/u"], &[], &[plain("/home/u"), plain("/home/u/a")]), None);
        assert_eq!(blocked(&["/home/u"], &[], &[plain("/home/userbackup")]), asks_for(&["/home/userbackup"]));
        assert_eq!(blocked(&[], &["/home/u/a"], &[plain("/home/u/a"), plain("/home/u/b")]), asks_for(&["/home/u/b"]));
        let both = [plain("/b"), plain("/a"), plain("/b")];
        assert_eq!(blocked(&[], &[], &both), asks_for(&["/b", "/a"]), "each once, in the order of the command line");
        assert_eq!(blocked(&["C:\\Users"], &[], &[plain("c:/users/x")]), None);
    }

    #[test]
    fn symlink_is_judged_by_real_path() {
        let out = named("/home/u/link", "/srv/secret");
        assert_eq!(blocked(&["/home/u"], &[], std::slice::from_ref(&out)), Some(vec!["/home/u/link".to_owned()]));
        assert_eq!(blocked(&["/home/u", "/srv"], &[], &[out]), None);
        assert_eq!(blocked(&["/srv"], &[], &[named("/elsewhere", "/srv/x")]), None);
    }

    #[test]
    fn server_data_is_denied_without_question() {
        let own = Some(vec!["path_forbidden".to_owned()]);
        for path in ["/data", "/data/owner.token"] {
            assert_eq!(blocked(&["/data"], &[path], &[named(path, path)]), own);
            assert_eq!(blocked(&[], &[], &[named("/link", path)]), own);
        }
        assert_eq!(blocked(&["/database"], &[], &[named("/database", "/database")]), None);
    }

    fn granted(entries: &[&str], mounts: &[AllowedPath]) -> Result<Vec<String>, DenialCode> {
        let access = PathAccess { entries: paths(entries), mounts: mounts.to_vec(), ..PathAccess::default() };
        match judge(PathControl::On(access), None) {
            Verdict::Allow(grant) => {
                let Workspace::Session(mounts) = grant.workspace() else { unreachable!() };
                let PathControl::On(access) = &mounts.control else { unreachable!() };
                Ok(access.mounts.iter().map(|mount| mount.at.to_string_lossy().into_owned()).collect())
            }
            Verdict::Deny(denial) => Err(denial.code),
            Verdict::Ask(ask) => panic!("{ask:?}"),
        }
    }

    #[test]
    fn unlisted_mount_is_denied() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        let both = [mount("/srv/a/b"), mount("/srv/a"), mount("/srv/a/b/")];
        assert_eq!(
            granted(&["/srv"], &both),
            texts(&["/srv/a", "/srv/a/b"]),
            "a directory before its content, each once"
        );
        assert_eq!(granted(&["/srv/a"], &[mount("/srv/b")]), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/"], &[mount("/data/x")]), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/"], &[mount("/"), mount("/home")]), texts(&["/", "/home"]), "the real root is allowed");
        let link = AllowedPath { at: "/home/link".into(), real: "/srv/a".into(), rights: Rights::BoxUser };
        assert_eq!(granted(&["/home/link"], std::slice::from_ref(&link)), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/home/link", "/srv"], std::slice::from_ref(&link)), texts(&["/home/link"]));
        assert_eq!(granted(&["/srv"], std::slice::from_ref(&link)), Err(DenialCode::PathForbidden));
        for never in ["/proc", "/sys/fs", "/dev/shm", "/run/docker.sock", "/workspace/x"] {
            assert_eq!(granted(&["/"], &[mount(never)]), texts(&[]), "{never}");
        }
    }

    #[test]
    fn symlink_on_command_line_shows_allowed_target_only() {
        let check = |named: NamedPath, entries: &[&str]| {
            let link = AllowedPath { at: "/home/link".into(), real: "/srv/a".into(), rights: Rights::BoxUser };
            let access =
                PathAccess { entries: paths(entries), named: vec![named], mounts: vec![link], ..PathAccess::default() };
            check_mounts(&access, &[]).map(|mounts| mounts.len()).map_err(|denial| denial.code)
        };
        assert_eq!(check(named("/home/link/x", "/srv/a/x"), &["/srv"]), Ok(1));
        assert_eq!(check(named("/home/link", "/srv/a"), &["/srv"]), Ok(1));
        for (named, entries) in [
            (named("/home/link/x", "/srv/a/x"), &["/srv/b"]),
            (named("/home/other", "/srv/a"), &["/srv"]),
            (named("/home/link", "/home/link"), &["/srv"]),
            (named("/home/linked/x", "/srv/a/x"), &["/srv"]),
        ] {
            assert_eq!(check(named.clone(), entries), Err(DenialCode::PathForbidden), "{named:?}");
        }
        let own = AllowedPath { at: "/tmp".into(), real: "/srv/a".into(), rights: Rights::BoxUser };
        let named = vec![named("/tmp/x", "/srv/a/x")];
        let access = PathAccess { entries: paths(&["/srv"]), named, mounts: vec![own], ..PathAccess::default() };
        assert!(check_mounts(&access, &[]).is_err(), "the box's own /tmp is not replaced");
    }

    #[test]
    fn allowed_path_without_mount_is_unmounted() {
        let unmounted = |path: &str, mounts: &[AllowedPath]| {
            let access =
                PathAccess { named: vec![named(path, path)], mounts: mounts.to_vec(), ..PathAccess::default() };
            access.first_unmounted().map(ToString::to_string)
        };
        assert_eq!(unmounted("/srv/new", &[]), Some("/srv/new".to_owned()));
        assert_eq!(unmounted("/srv/new", &[mount("/srv/newer")]), Some("/srv/new".to_owned()));
        assert_eq!(unmounted("/srv/new", &[mount("/srv")]), None);
        for own in ["/workspace/new", "/tmp/new", "/usr/bin/none", r"C:\new"] {
            assert_eq!(unmounted(own, &[]), None, "{own}");
        }
    }

    #[test]
    fn operator_rights_win_over_user_rights() {
        let (owners, boxes) = (AllowedPath { rights: Rights::Owner, ..mount("/srv") }, mount("/srv"));
        for mounts in [[owners.clone(), boxes.clone()], [boxes, owners]] {
            let access = PathAccess { entries: paths(&["/srv"]), mounts: mounts.to_vec(), ..PathAccess::default() };
            assert_eq!(check_mounts(&access, &[]).expect("allowed")[0].rights, Rights::Owner);
        }
    }

    #[test]
    fn command_starts_in_allowed_directory() {
        let verdict = |cwd: &str, entries: &[&str]| {
            let access = PathAccess { entries: paths(entries), named: vec![named(cwd, cwd)], ..PathAccess::default() };
            match judge(PathControl::On(access), Some(cwd)) {
                Verdict::Allow(_) => "allow",
                Verdict::Ask(_) => "ask",
                Verdict::Deny(_) => "deny",
            }
        };
        assert_eq!(verdict("/workspace/a", &[]), "allow");
        assert_eq!(verdict("/srv/a", &["/srv"]), "allow");
        assert_eq!(verdict("/srv/a", &[]), "ask");
        let unnamed =
            judge(PathControl::On(PathAccess { entries: paths(&["/srv"]), ..PathAccess::default() }), Some("/srv"));
        assert!(matches!(unnamed, Verdict::Deny(_)), "an unnamed start directory is denied");
        assert!(matches!(judge(PathControl::Off(HostView::Full), Some("/srv")), Verdict::Allow(_)));
    }
}
