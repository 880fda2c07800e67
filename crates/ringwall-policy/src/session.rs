//! What a session's command is given of the host, and the rule for it: the paths that it names are allowed by the list or
//! by a person, or somebody is asked first.
//!
//! Whoever opens files found out where names really lead and which of the allowed paths are there; here it is only
//! compared. What is mounted is held against the list once more, so that no mistake further out can widen a box.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::paths::{FORBIDDEN_TREES, WORKSPACE, check_workspace, plain, show};
use crate::reach::{HostPath, PathStyle, is_always_there, normalise};
use crate::request::Owner;
use crate::verdict::{Denial, DenialCode};

/// Why a path is never allowed.
const OWN: &str = "is where the server keeps its own data, which is never shown to a box";

/// The files of a session, at `/workspace`, and what else of the host its command may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionMounts {
    pub work: PathBuf,
    /// To whom the files belong, and so who the box is to the host.
    pub owner: Owner,
    pub control: Control,
    /// What stays covered, whatever is shown around it: what the server itself keeps.
    pub hidden: Vec<PathBuf>,
}

/// Whether paths are controlled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// The box has the allowed paths, and nothing else of the host but its system.
    On(Reach),
    /// Nobody is asked, and the box shows this part of the host.
    Off(HostView),
}

/// What a session's box shows of the host while path control is off: the setting `sandbox.when_disabled`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostView {
    /// `/etc`, `/opt` and `/srv` beside the system directories, read-only, without home directories.
    #[default]
    ReadOnly,
    /// All top-level directories except those that every box has for itself, with known secrets hidden.
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
pub struct Reach {
    /// The entries of the list that count.
    pub entries: Vec<HostPath>,
    /// What a person has allowed for this one exec.
    pub approved: Vec<HostPath>,
    /// What the command names.
    pub named: Vec<Named>,
    /// What of the entries and the approved is there, also under the names by which the command reaches it.
    pub places: Vec<AllowedPath>,
}

/// A path of the host that a command names, and where it really leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub path: HostPath,
    pub real: HostPath,
}

/// A file or directory of the host that a box has, to read and write as its permissions say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedPath {
    /// Where the box sees it: at its own place, or under the name of a link that leads to it.
    pub at: PathBuf,
    /// Where it really is.
    pub real: PathBuf,
    pub rights: Rights,
}

/// As whom a box acts on an allowed path, where it could be anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// As the user to whom it belongs, if that is an ordinary one.
    Owners,
    /// As the box's own user.
    Boxes,
}

impl Reach {
    /// Whether the command names this very path.
    pub(crate) fn names(&self, path: &Path) -> bool {
        self.named.iter().any(|named| Path::new(named.path.as_str()) == path)
    }

    /// Whether the command, on its way to something else, names this path: a link, or what lies behind one.
    fn leads_through(&self, path: &Path) -> bool {
        let leads = |named: &&Named| named.path != named.real && !is_always_there(&named.path);
        self.named.iter().filter(leads).any(|named| Path::new(named.path.as_str()).starts_with(path))
    }

    /// What is named and allowed, and yet not in the box: it is not there, or nothing that can be shown.
    pub fn unseen(&self) -> Option<&HostPath> {
        let is_free = |named: &Named| is_always_there(&named.path) || is_always_there(&named.real);
        let is_shown = |real: &Path| self.places.iter().any(|place| real.starts_with(&place.real));
        let mut named = self.named.iter().filter(|named| named.real.style() == PathStyle::Linux && !is_free(named));
        named.find(|named| !is_shown(Path::new(named.real.as_str()))).map(|named| &named.path)
    }

    fn allows(&self, path: &HostPath) -> bool {
        self.entries.iter().chain(&self.approved).any(|allowed| allowed.covers(path))
    }

    /// What is named and neither allowed nor there anyway.
    fn blocked(&self) -> Vec<Named> {
        let is_free = |named: &&Named| is_always_there(&named.path) || is_always_there(&named.real);
        let mut blocked: Vec<Named> = Vec::new();
        for named in self.named.iter().filter(|named| !is_free(named) && !self.allows(&named.real)) {
            if !blocked.contains(named) {
                blocked.push(named.clone());
            }
        }
        blocked
    }
}

impl Control {
    /// What a person has to be asked about, if anything.
    pub fn blocked(&self) -> Vec<Named> {
        match self {
            Control::On(reach) => reach.blocked(),
            Control::Off(_) => Vec::new(),
        }
    }
}

/// Checks what is mounted. Each place comes once, and before those inside it.
pub(crate) fn check_session(mounts: &SessionMounts) -> Result<SessionMounts, Denial> {
    let work = check_workspace(&mounts.work)?;
    let hidden = mounts.hidden.iter().map(|path| plain("what is hidden", path)).collect::<Result<Vec<_>, _>>()?;
    let control = match &mounts.control {
        Control::Off(view) => Control::Off(*view),
        Control::On(reach) => {
            check_named(reach, &hidden)?;
            Control::On(Reach { places: check_places(reach, &hidden)?, ..reach.clone() })
        }
    };
    Ok(SessionMounts { work, owner: mounts.owner, control, hidden })
}

/// Ringwall's own data cannot be allowed, so a command that names it is denied without a question.
fn check_named(reach: &Reach, hidden: &[PathBuf]) -> Result<(), Denial> {
    let named = reach.named.iter().find(|named| {
        let real = Path::new(named.real.as_str());
        hidden.iter().any(|hidden| real.starts_with(hidden))
    });
    named.map_or(Ok(()), |named| Err(refused(Path::new(named.path.as_str()), OWN)))
}

fn check_places(reach: &Reach, hidden: &[PathBuf]) -> Result<Vec<AllowedPath>, Denial> {
    let mut places = BTreeMap::new();
    for place in &reach.places {
        let (at, real) = (plain("the allowed path", &place.at)?, plain("the allowed path", &place.real)?);
        if is_never_shown(&at) || is_never_shown(&real) {
            continue;
        }
        if hidden.iter().any(|hidden| real.starts_with(hidden)) {
            return Err(refused(&real, OWN));
        }
        let is_allowed = |path: &Path| {
            let text = path.to_str().and_then(|text| normalise(text, "/", None).ok());
            text.is_some_and(|path| reach.allows(&path))
        };
        // What is shown has to be allowed by its real name. Where it is shown says no more than the command does.
        if !is_allowed(&real) {
            return Err(refused(&real, "is on no list"));
        }
        if !is_allowed(&at) && !reach.leads_through(&at) {
            return Err(refused(&at, "is on no list"));
        }
        // Where two speak of one place, what the operator's entry gives stays given.
        let rights = match places.get(&at) {
            Some(AllowedPath { rights: Rights::Owners, .. }) => Rights::Owners,
            Some(AllowedPath { rights: Rights::Boxes, .. }) | None => place.rights,
        };
        places.insert(at.clone(), AllowedPath { at, real, rights });
    }
    Ok(places.into_values().collect())
}

/// Windows into the running machine, and the workspace, are every box's own, whatever a list says.
pub fn is_never_shown(path: &Path) -> bool {
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

    fn place(path: &str) -> AllowedPath {
        AllowedPath { at: path.into(), real: path.into(), rights: Rights::Boxes }
    }

    fn named(path: &str, real: &str) -> Named {
        Named { path: host_path(path), real: host_path(real) }
    }

    fn judge(control: Control, cwd: Option<&str>) -> Verdict {
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

    fn blocked(entries: &[&str], approved: &[&str], named: &[Named]) -> Option<Vec<String>> {
        let (entries, approved) = (paths(entries), paths(approved));
        match judge(Control::On(Reach { entries, approved, named: named.to_vec(), places: vec![] }), None) {
            Verdict::Allow(_) => None,
            Verdict::Ask(ask) => Some(ask.blocked.iter().map(|named| named.path.to_string()).collect()),
            Verdict::Deny(denial) => Some(vec![denial.code.key().to_owned()]),
        }
    }

    #[test]
    fn what_is_named_is_allowed_or_asked_for() {
        let plain = |path: &str| named(path, path);
        let asked = |paths: &[&str]| Some(paths.iter().map(|path| (*path).to_owned()).collect());
        assert_eq!(blocked(&[], &[], &[plain("/workspace/x"), plain("/tmp"), plain("/usr/bin/env")]), None);
        assert_eq!(blocked(&["/home/u"], &[], &[plain("/home/u"), plain("/home/u/a")]), None);
        assert_eq!(blocked(&["/home/u"], &[], &[plain("/home/userbackup")]), asked(&["/home/userbackup"]));
        assert_eq!(blocked(&[], &["/home/u/a"], &[plain("/home/u/a"), plain("/home/u/b")]), asked(&["/home/u/b"]));
        let both = [plain("/b"), plain("/a"), plain("/b")];
        assert_eq!(blocked(&[], &[], &both), asked(&["/b", "/a"]), "each once, in the order of the line");
        assert_eq!(blocked(&["C:\\Users"], &[], &[plain("c:/users/x")]), None);
    }

    #[test]
    fn a_link_counts_as_what_it_leads_to() {
        let out = named("/home/u/link", "/srv/secret");
        assert_eq!(blocked(&["/home/u"], &[], std::slice::from_ref(&out)), Some(vec!["/home/u/link".to_owned()]));
        assert_eq!(blocked(&["/home/u", "/srv"], &[], &[out]), None);
        assert_eq!(blocked(&["/srv"], &[], &[named("/elsewhere", "/srv/x")]), None);
    }

    #[test]
    fn the_servers_own_is_denied_and_not_asked_for() {
        let own = Some(vec!["path_forbidden".to_owned()]);
        for path in ["/data", "/data/owner.token"] {
            assert_eq!(blocked(&["/data"], &[path], &[named(path, path)]), own);
            assert_eq!(blocked(&[], &[], &[named("/link", path)]), own);
        }
        assert_eq!(blocked(&["/database"], &[], &[named("/database", "/database")]), None);
    }

    fn granted(entries: &[&str], places: &[AllowedPath]) -> Result<Vec<String>, DenialCode> {
        let reach = Reach { entries: paths(entries), places: places.to_vec(), ..Reach::default() };
        match judge(Control::On(reach), None) {
            Verdict::Allow(grant) => {
                let Workspace::Session(mounts) = grant.workspace() else { unreachable!() };
                let Control::On(reach) = &mounts.control else { unreachable!() };
                Ok(reach.places.iter().map(|place| place.at.to_string_lossy().into_owned()).collect())
            }
            Verdict::Deny(denial) => Err(denial.code),
            Verdict::Ask(ask) => panic!("{ask:?}"),
        }
    }

    #[test]
    fn nothing_is_mounted_that_is_on_no_list() {
        let texts = |texts: &[&str]| Ok(texts.iter().map(|text| (*text).to_owned()).collect());
        let both = [place("/srv/a/b"), place("/srv/a"), place("/srv/a/b/")];
        assert_eq!(granted(&["/srv"], &both), texts(&["/srv/a", "/srv/a/b"]), "the outer one first, each once");
        assert_eq!(granted(&["/srv/a"], &[place("/srv/b")]), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/"], &[place("/data/x")]), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/"], &[place("/"), place("/home")]), texts(&["/", "/home"]), "a parent is covered later");
        let link = AllowedPath { at: "/home/link".into(), real: "/srv/a".into(), rights: Rights::Boxes };
        assert_eq!(granted(&["/home/link"], std::slice::from_ref(&link)), Err(DenialCode::PathForbidden));
        assert_eq!(granted(&["/home/link", "/srv"], std::slice::from_ref(&link)), texts(&["/home/link"]));
        assert_eq!(granted(&["/srv"], std::slice::from_ref(&link)), Err(DenialCode::PathForbidden));
        for never in ["/proc", "/sys/fs", "/dev/shm", "/run/docker.sock", "/workspace/x"] {
            assert_eq!(granted(&["/"], &[place(never)]), texts(&[]), "{never}");
        }
    }

    #[test]
    fn a_name_that_the_command_goes_by_shows_what_is_allowed_and_nothing_else() {
        let check = |named: Named, entries: &[&str]| {
            let link = AllowedPath { at: "/home/link".into(), real: "/srv/a".into(), rights: Rights::Boxes };
            let reach = Reach { entries: paths(entries), named: vec![named], places: vec![link], ..Reach::default() };
            check_places(&reach, &[]).map(|places| places.len()).map_err(|denial| denial.code)
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
        let own = AllowedPath { at: "/tmp".into(), real: "/srv/a".into(), rights: Rights::Boxes };
        let named = vec![named("/tmp/x", "/srv/a/x")];
        let reach = Reach { entries: paths(&["/srv"]), named, places: vec![own], ..Reach::default() };
        assert!(check_places(&reach, &[]).is_err(), "what a box has of its own stays that");
    }

    #[test]
    fn what_is_allowed_and_not_shown_is_told() {
        let unseen = |path: &str, places: &[AllowedPath]| {
            let reach = Reach { named: vec![named(path, path)], places: places.to_vec(), ..Reach::default() };
            reach.unseen().map(ToString::to_string)
        };
        assert_eq!(unseen("/srv/new", &[]), Some("/srv/new".to_owned()));
        assert_eq!(unseen("/srv/new", &[place("/srv/newer")]), Some("/srv/new".to_owned()));
        assert_eq!(unseen("/srv/new", &[place("/srv")]), None);
        for own in ["/workspace/new", "/tmp/new", "/usr/bin/none", r"C:\new"] {
            assert_eq!(unseen(own, &[]), None, "{own}");
        }
    }

    #[test]
    fn an_operators_word_is_not_narrowed_by_a_users() {
        let (owners, boxes) = (AllowedPath { rights: Rights::Owners, ..place("/srv") }, place("/srv"));
        for places in [[owners.clone(), boxes.clone()], [boxes, owners]] {
            let reach = Reach { entries: paths(&["/srv"]), places: places.to_vec(), ..Reach::default() };
            assert_eq!(check_places(&reach, &[]).expect("allowed")[0].rights, Rights::Owners);
        }
    }

    #[test]
    fn a_command_starts_where_it_may_go() {
        let reach = |cwd: &str, entries: &[&str]| {
            let reach = Reach { entries: paths(entries), named: vec![named(cwd, cwd)], ..Reach::default() };
            match judge(Control::On(reach), Some(cwd)) {
                Verdict::Allow(_) => "allow",
                Verdict::Ask(_) => "ask",
                Verdict::Deny(_) => "deny",
            }
        };
        assert_eq!(reach("/workspace/a", &[]), "allow");
        assert_eq!(reach("/srv/a", &["/srv"]), "allow");
        assert_eq!(reach("/srv/a", &[]), "ask");
        let unnamed = judge(Control::On(Reach { entries: paths(&["/srv"]), ..Reach::default() }), Some("/srv"));
        assert!(matches!(unnamed, Verdict::Deny(_)), "what was not judged is no place to start in");
        assert!(matches!(judge(Control::Off(HostView::Full), Some("/srv")), Verdict::Allow(_)));
    }
}
