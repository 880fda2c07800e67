//! Snapshots of whole plans: a change of what a box contains shows up here as a change of text.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;

use ringwall_jail::plan::{
    CgroupVersion, FileKind, MountAccess, Operation, Owner as BoxOwner, Plan, Privilege, RootKind, WindowSize,
};
use ringwall_policy::{
    Access, AgentMounts, Ceilings, Field, Grant, Layer, LayerName, Layers, NetMode, NetRequest, Owner, PathAccess,
    PathControl, ProjectAccess, ProjectMounts, Request, Requirement, Rights, Root, Secret, SessionMounts, Verdict,
    Workspace,
};

use super::{BaseRoot, BoxParams, MIB, lower, shown};
use crate::cgroup::layout::{CgroupLayout, CgroupSupport, Controller};
use crate::counters::Caps;
use crate::host::python::Python;
use crate::host::{Covered, EtcEntry, Host, SystemEntry, SystemKind};
use crate::plan::base_rootfs::{base_rootfs, warm_root};
use crate::sources::allowed::{Allowed, Presence};
use crate::sources::{Opened, ProjectPath, Sources};

/// The user of the boxes that work on the test's directories.
const BOX_OWNER: BoxOwner = BoxOwner { uid: 2001, gid: 2002 };

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}

pub(crate) fn host(privilege: Privilege, cgroups: CgroupSupport) -> Host {
    let link = |path: &str, target: &str| SystemEntry { path: text(path), kind: SystemKind::Symlink(text(target)) };
    Host {
        privilege,
        uid: 501,
        gid: 502,
        system: vec![
            SystemEntry { path: text("/usr"), kind: SystemKind::Directory },
            link("/bin", "usr/bin"),
            link("/lib64", "usr/lib64"),
        ],
        etc: vec![
            EtcEntry { path: text("/etc/alternatives"), kind: FileKind::Directory },
            EtcEntry { path: text("/etc/ld.so.cache"), kind: FileKind::File },
        ],
        cgroups,
        memory_mb: 8192,
        cpus: 4,
        pids: 32_768,
        open_files: 819_200,
        mappings: 65_530,
        disks: vec!["8:0".to_owned(), "259:0".to_owned()],
        python3_alone: Some(text("/usr/bin/python3")),
        counter_caps: Caps::of(1_600_000, 1 << 20),
    }
}

pub(crate) fn version_1() -> CgroupSupport {
    let controller = |name: &str, swap| Some(Controller { parent: text(&format!("/sys/fs/cgroup/{name}/mine")), swap });
    Ok(CgroupLayout {
        version: CgroupVersion::V1,
        memory: controller("memory", true),
        pids: controller("pids", false),
        cpu: controller("cpu", false),
        io: controller("blkio", false),
        freezer: controller("freezer", false),
    })
}

fn version_2() -> CgroupSupport {
    let controller = || Some(Controller { parent: text("/sys/fs/cgroup/user.slice"), swap: true });
    Ok(CgroupLayout {
        version: CgroupVersion::V2,
        memory: controller(),
        pids: controller(),
        cpu: None,
        io: controller(),
        freezer: None,
    })
}

pub(crate) fn grant(workspace: Workspace, root: Root, read_only: &[&str], require: &[Requirement]) -> Grant {
    grant_with(workspace, root, read_only, require, None)
}

fn grant_with(
    workspace: Workspace,
    root: Root,
    read_only: &[&str],
    require: &[Requirement],
    net: Option<NetRequest>,
) -> Grant {
    let request = Request {
        argv: vec!["make".into(), "test".into()],
        env: BTreeMap::from([("TOKEN".to_owned(), Secret::new("very-secret-value"))]),
        cwd: None,
        root,
        workspace,
        read_only: read_only.iter().map(PathBuf::from).collect(),
    };
    let mut operator = Layer::new(LayerName::CommandLine);
    operator.limits.insert(Field::MemoryMb, 64);
    operator.limits.insert(Field::ScratchMb, 16);
    operator.require = require.iter().copied().collect();
    operator.net = net;
    let layers = Layers {
        system: ringwall_policy::profile::RUN,
        ceilings: Ceilings {
            limits: ringwall_policy::profile::machine_ceilings(8192, 4, 32_768),
            set_by: LayerName::Machine,
        },
        operator,
        narrowing: Vec::new(),
    };
    match ringwall_policy::decide(&request, &layers) {
        Verdict::Allow(grant) => grant,
        other => panic!("the policy did not allow the test's request: {other:?}"),
    }
}

fn params(terminal: Option<WindowSize>, hidden: Option<&str>) -> BoxParams {
    BoxParams {
        kernel_mounts: Vec::new(),
        name: "ringwall-1-2-3".to_owned(),
        owner: BoxOwner { uid: 1_880_000_001, gid: 1_880_000_001 },
        terminal,
        hold_at: None,
        hidden: hidden.map(PathBuf::from),
        base_root: BaseRoot::Host,
        agent: None,
    }
}

fn sources(workspace: Option<Opened>, image: Option<Opened>) -> Sources {
    Sources {
        workspace,
        project: Vec::new(),
        read_only: Vec::new(),
        allowed: Vec::new(),
        links: Vec::new(),
        covered: Vec::new(),
        unix_sockets: ringwall_jail::plan::UnixSockets::Allowed,
        image,
        python: Python::AsNamed,
    }
}

fn project(access: ProjectAccess) -> Workspace {
    Workspace::Project(Box::new(ProjectMounts {
        inputs: "/data/p/inputs".into(),
        work: "/data/p/work".into(),
        artifacts: "/data/p/running/e_1".into(),
        access,
        owner: Owner::new(2001, 2002).unwrap(),
    }))
}

/// The same as `sources::open_project` gives for directories that exist.
fn places(read_only: &[&'static str], writable: &[&'static str]) -> Vec<ProjectPath> {
    let owned = |name: &str| {
        let mut opened = Opened::pretend(&text(&format!("/data/p/{name}")), 2001);
        opened.owner.gid = 2002;
        opened
    };
    let content = |name: &&'static str| {
        let access = if writable.contains(name) { MountAccess::ReadWrite } else { MountAccess::ReadOnly };
        (writable.contains(name) || read_only.contains(name)).then(|| (owned(name), access))
    };
    [("inputs", "/workspace/inputs"), ("work", "/workspace/work"), ("artifacts", "/workspace/artifacts")]
        .map(|(name, at)| ProjectPath { at, content: content(&name) })
        .into()
}

fn check(name: &str, plan: &Plan) {
    let shown = format!("{plan:#?}");
    assert!(!shown.contains("very-secret-value"), "a plan that is printed shows a secret");
    insta::assert_snapshot!(name, shown);
}

#[test]
fn network_adds_proxy_port_and_six_variables() {
    let host = host(Privilege::Rootless, Err("no delegation".to_owned()));
    let plan = |net| {
        let grant = grant_with(Workspace::Private, Root::Host, &[], &[], net);
        lower(&grant, &host, &sources(None, None), &params(None, None)).unwrap()
    };
    let open = plan(Some(NetRequest { mode: NetMode::Allowlist, ..NetRequest::default() }));
    let closed = plan(None);
    assert_eq!((open.proxy_port, closed.proxy_port), (Some(3128), None));
    let added: Vec<_> =
        open.command.environment.iter().filter(|one| !closed.command.environment.contains(one)).collect();
    assert_eq!(added.len(), 6, "{added:?}");
    assert!(added.contains(&&text("https_proxy=http://127.0.0.1:3128")), "{added:?}");
}

/// Without a `python` on the host, a box whose command may run it gets a link of that name, and no other box does.
#[test]
fn python3_gets_link_named_python() {
    let host = host(Privilege::Root, version_1());
    let grant = grant(Workspace::Private, Root::Host, &[], &[]);
    let lowered = |python, base_root| {
        let sources = Sources { python, ..sources(None, None) };
        lower(&grant, &host, &sources, &BoxParams { base_root, ..params(None, None) }).unwrap().operations
    };
    let layer = Operation::Layer { own: text("/var/python"), at: text("/usr/local/bin") };
    let link = Operation::Symlink { at: text("/var/python/python"), target: text("/usr/bin/python3") };
    for base_root in [BaseRoot::Host, BaseRoot::BaseRootfs] {
        let (with, without) = (lowered(Python::Python3, base_root), lowered(Python::AsNamed, base_root));
        assert!(with.contains(&layer) && !without.contains(&layer), "{base_root:?}");
        let added: Vec<_> = with.iter().filter(|one| !without.contains(one)).collect();
        let expected = if base_root == BaseRoot::Host { 3 } else { 1 };
        assert_eq!(added.len(), expected, "{added:?}");
        assert_eq!(with.contains(&link), base_root == BaseRoot::Host, "the base rootfs has it already");
        let at = |wanted: &Operation| with.iter().position(|one| one == wanted);
        assert!(base_root == BaseRoot::BaseRootfs || at(&link) < at(&layer) && at(&layer) < at(&Operation::SealRoot));
    }
    assert!(base_rootfs(&host).contains(&link));
    let image = Some(Opened::pretend(c"/var/lib/ringwall/images/tiny/rootfs", 0));
    let sources = Sources { python: Python::Python3, ..sources(None, image) };
    let on_image = lower(&grant, &host, &sources, &params(None, None)).unwrap().operations;
    assert!(!on_image.contains(&layer), "an image is not changed");
}

/// Most distributions have a link at `/etc/os-release`, and a box has one of its own. A view that shows `/etc` entry by entry
/// binds a regular file there, which could not be mounted over a link.
#[test]
fn regular_os_release_of_the_host_replaces_the_link() {
    let host = host(Privilege::Rootless, Err("no delegation".to_owned()));
    let grant = grant(Workspace::Private, Root::Host, &[], &[]);
    let made_at_os_release = |allowed: Vec<Allowed>| {
        let sources = Sources { allowed, ..sources(None, None) };
        let plan = lower(&grant, &host, &sources, &params(None, None)).unwrap();
        plan.operations.into_iter().filter(|one| one.at() == Some(c"/etc/os-release")).collect::<Vec<_>>()
    };
    let link = Operation::Symlink { at: text("/etc/os-release"), target: text("../usr/lib/os-release") };
    assert_eq!(made_at_os_release(Vec::new()), [link]);
    let regular = Allowed {
        at: "/etc/os-release".into(),
        kind: FileKind::File,
        rights: Rights::BoxUser,
        access: MountAccess::ReadOnly,
        presence: Presence::Optional,
        opened: Opened::pretend(c"/etc/os-release", 0),
    };
    let made = made_at_os_release(vec![regular]);
    assert!(matches!(made.as_slice(), [Operation::Entry { kind: FileKind::File, .. }]), "{made:?}");
}

#[test]
fn rootless_without_cgroups() {
    let host = host(Privilege::Rootless, Err("no delegation".to_owned()));
    let grant = grant(Workspace::Private, Root::Host, &[], &[]);
    let sources = sources(None, None);
    let plan = lower(&grant, &host, &sources, &params(None, None)).unwrap();
    check("rootless_without_cgroups", &plan);
}

#[test]
fn root_with_directories_and_cgroups_version_1() {
    let host = host(Privilege::Root, version_1());
    let workspace = Workspace::Directory("/home/u".into());
    let grant = grant(workspace, Root::Host, &["/opt/tools"], &[Requirement::Landlock, Requirement::Memory]);
    let sources = Sources {
        read_only: vec![Opened::pretend(c"/opt/tools", 0)],
        ..sources(Some(Opened::pretend(c"/home/u", 501)), None)
    };
    let hidden = Some("/home/u/.local/share/ringwall");
    let plan = lower(&grant, &host, &sources, &params(None, hidden)).unwrap();
    check("root_with_directories_and_cgroups_version_1", &plan);
}

#[test]
fn image_with_a_terminal_and_cgroups_version_2() {
    let host = host(Privilege::Root, version_2());
    let grant = grant(Workspace::Private, Root::Image("tiny".parse().unwrap()), &[], &[]);
    let image = Some(Opened::pretend(c"/var/lib/ringwall/images/tiny/rootfs", 0));
    let sources = sources(None, image);
    let size = WindowSize { rows: 40, columns: 120 };
    let plan = lower(&grant, &host, &sources, &params(Some(size), None)).unwrap();
    check("image_with_a_terminal_and_cgroups_version_2", &plan);
}

#[test]
fn project_of_its_owner() {
    let host = host(Privilege::Root, version_1());
    let workspace = project(ProjectAccess::WIDEST);
    let grant = grant(workspace, Root::Host, &[], &[]);
    let sources = Sources { project: places(&["inputs"], &["work", "artifacts"]), ..sources(None, None) };
    let hidden = Some("/data");
    let params = BoxParams { owner: BOX_OWNER, ..params(None, hidden) };
    let plan = lower(&grant, &host, &sources, &params).unwrap();
    let shown = format!("{plan:#?}");
    assert!(!shown.contains("owner: Some"), "the owner's files need no id-mapped mount");
    check("project_of_its_owner", &plan);
}

#[test]
fn narrow_project_on_an_image() {
    let host = host(Privilege::Rootless, Err("no delegation".to_owned()));
    let access = ProjectAccess { inputs: Access::Empty, work: Access::ReadOnly, artifacts: Access::ReadWrite };
    let grant = grant(project(access), Root::Image("tiny".parse().unwrap()), &[], &[]);
    let image = Some(Opened::pretend(c"/var/lib/ringwall/images/tiny/rootfs", 501));
    let sources = Sources { project: places(&["work"], &["artifacts"]), ..sources(None, image) };
    let plan = lower(&grant, &host, &sources, &params(None, None)).unwrap();
    check("narrow_project_on_an_image", &plan);
}

/// Both directories are writable, and their parent is not, neither by its mount nor by Landlock.
#[test]
fn agent_files() {
    let host = host(Privilege::Root, version_1());
    let mounts = AgentMounts {
        files: "/data/w/files".into(),
        skills: "/data/w/skills".into(),
        owner: Owner::new(2001, 2002).unwrap(),
    };
    let grant = grant(Workspace::Agent(Box::new(mounts)), Root::Host, &[], &[]);
    let place = |at: &'static str, path: &str| {
        let mut opened = Opened::pretend(&text(path), 2001);
        opened.owner.gid = 2002;
        ProjectPath { at, content: Some((opened, MountAccess::ReadWrite)) }
    };
    let places = vec![place("/workspace/files", "/data/w/files"), place("/workspace/skills", "/data/w/skills")];
    let sources = Sources { project: places, ..sources(None, None) };
    let params = BoxParams { owner: BOX_OWNER, ..params(None, Some("/data")) };
    check("agent_files", &lower(&grant, &host, &sources, &params).unwrap());
    let spawned = BoxParams { base_root: BaseRoot::BaseRootfs, ..params };
    let plan = lower(&grant, &host, &sources, &spawned).unwrap();
    assert!(!plan.access.iter().any(|access| access.beneath.as_c_str() == c"/workspace"));
    check("agent_files_on_base_rootfs", &plan);
}

/// The spawner makes the part that all boxes share once, and a box adds the rest.
#[test]
fn root_on_base_rootfs() {
    let host = host(Privilege::Root, version_1());
    insta::assert_snapshot!("base_rootfs", format!("{:#?}", base_rootfs(&host)));
    let grant = grant(Workspace::Directory("/home/u".into()), Root::Host, &[], &[]);
    let sources = sources(Some(Opened::pretend(c"/home/u", 501)), None);
    let spawned = BoxParams { base_root: BaseRoot::BaseRootfs, ..params(None, None) };
    let plan = lower(&grant, &host, &sources, &spawned).unwrap();
    check("root_on_base_rootfs", &plan);
}

#[test]
fn completed_warm_box_equals_cold_box() {
    let host = host(Privilege::Root, version_1());
    let sources = sources(Some(Opened::pretend(c"/data/w", 2001)), None);
    let params = BoxParams { base_root: BaseRoot::BaseRootfs, ..params(None, None) };
    let plan = lower(&grant(Workspace::Private, Root::Host, &[], &[]), &host, &sources, &params).unwrap();
    let made = [warm_root(&host, &[], 16 * MIB, RootKind::Base), shown(&sources, &plan.identity, None)].concat();
    assert_eq!(made, plan.operations);
}

/// Also if PID 1 starts with the base rootfs.
#[test]
fn image_or_read_only_directory_gets_own_root() {
    let host = host(Privilege::Root, version_1());
    let spawned = BoxParams { base_root: BaseRoot::BaseRootfs, ..params(None, None) };
    let directories = vec![Opened::pretend(c"/opt/tools", 0)];
    let image = Some(Opened::pretend(c"/var/lib/ringwall/images/tiny/rootfs", 0));
    for sources in [Sources { read_only: directories, ..sources(None, None) }, sources(None, image)] {
        let grant = grant(Workspace::Private, Root::Host, &[], &[]);
        assert_eq!(lower(&grant, &host, &sources, &spawned).unwrap().root, RootKind::Own);
    }
}

/// Allowed paths are mounted at their own paths, outer before inner, and writable; the server's data in them is masked. The
/// box owns a person's path that an operator allows, and never root's.
#[test]
fn session_paths() {
    let allowed = |at: &str, uid: u32, rights: Rights, kind: FileKind| Allowed {
        at: at.into(),
        kind,
        rights,
        access: MountAccess::ReadWrite,
        presence: Presence::Required,
        opened: Opened::pretend(&text(at), uid),
    };
    let places = || {
        vec![
            allowed("/etc/app.conf", 0, Rights::Owner, FileKind::File),
            allowed("/home/u", 1001, Rights::Owner, FileKind::Directory),
            allowed("/srv", 1001, Rights::BoxUser, FileKind::Directory),
            allowed("/tmp", 0, Rights::Owner, FileKind::Directory),
        ]
    };
    let covered = || {
        vec![
            Covered { path: "/srv/workspaces".into(), kind: FileKind::Directory },
            Covered { path: "/home/u/.netrc".into(), kind: FileKind::File },
            Covered { path: "/elsewhere".into(), kind: FileKind::Directory },
            // The same path as an allowed one.
            Covered { path: "/etc/app.conf".into(), kind: FileKind::File },
        ]
    };
    let mut work = Opened::pretend(c"/data/w/sessions/s/work", 2001);
    work.owner.gid = 2002;
    let mounts = SessionMounts {
        work: "/data/w/sessions/s/work".into(),
        owner: Owner::new(2001, 2002).unwrap(),
        control: PathControl::On(PathAccess::default()),
        hidden: vec!["/data".into()],
    };
    let grant = grant(Workspace::Session(Box::new(mounts)), Root::Host, &[], &[]);
    let sources = Sources { allowed: places(), covered: covered(), ..sources(Some(work), None) };
    let spawned = BaseRoot::BaseRootfs;
    let hidden = Some("/home/u/.local/share/ringwall");
    let params = BoxParams { owner: BOX_OWNER, base_root: spawned, ..params(None, hidden) };
    let plan = lower(&grant, &host(Privilege::Root, version_1()), &sources, &params).unwrap();
    assert_eq!(plan.root, RootKind::Own, "the base rootfs has no mount points for them");
    check("session_paths", &plan);
    let plan = lower(&grant, &host(Privilege::Rootless, version_1()), &sources, &params).unwrap();
    assert!(!format!("{plan:#?}").contains("owner: Some"), "an ordinary user cannot map owners");
    let sources = Sources { allowed: Vec::new(), covered: covered(), ..sources };
    let plan = lower(&grant, &host(Privilege::Root, version_1()), &sources, &params).unwrap();
    assert_eq!(plan.root, RootKind::Base, "a session without paths is like any other box");
}
