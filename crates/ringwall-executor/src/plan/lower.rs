//! Turns a grant and facts about the host into a plan. Pure: the same input gives the same plan,
//! and snapshot tests show whole plans.
//!
//! Only this module decides what a box contains. The operations are in the order in which the jail
//! applies them: root, system, /etc, /dev, /proc, writable directories, the grant's files, and last
//! the lock on the root.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ringwall_jail::agent::AGENT;
use ringwall_jail::plan::{
    Access, AccessRight, Command, Cover, FileKind, Identity, MountAccess, Operation, Owner, Plan, Privilege, RootKind,
    ScratchDirectory, Source, WindowSize,
};
use ringwall_jail::report::Step;
use ringwall_policy::{Field, Grant, Net, Workspace};

use crate::box_layout::{AGENT_FILES, AGENT_SEARCH, SEARCH, TERMINAL, WORKSPACE};
use crate::c_string::{c_string, literal};
use crate::error::Error;
use crate::host::python::Python;
use crate::host::{Host, SystemEntry, SystemKind, python};
use crate::plan::limits;
use crate::plan::limits::{BoxLimits, Stay};
use crate::protection::protection_of;
use crate::sources::{Opened, ProjectPath, Sources, view};
use crate::{box_layout, egress};

pub(crate) const MIB: u64 = 1024 * 1024;
const OS_RELEASE: &str = "/etc/os-release";
/// Inodes for the root's own directories, links and small files. Their few kilobytes are taken from
/// the box's scratch space.
pub(crate) const ROOT_INODES: u64 = 1024;
/// A memory file system has one inode per this many bytes.
pub(crate) const BYTES_PER_INODE: u64 = 4096;
/// The writable directories of a box and their modes.
pub(crate) const MOUNT_POINTS: [(&str, u32); 5] =
    [("/tmp", 0o1777), ("/var/tmp", 0o1777), ("/dev/shm", 0o1777), (box_layout::HOME, 0o755), (WORKSPACE, 0o755)];
/// The directories of a project.
pub(crate) const PROJECT: [&str; 3] = ["/workspace/inputs", "/workspace/work", "/workspace/artifacts"];
/// A directory that contains only mount points for an agent's files, mounted over `/workspace`.
const AGENT_ROOT: &str = "/var/agent";
pub(crate) const AGENT_MOUNTS: [&str; 2] = ["/var/agent/files", "/var/agent/skills"];
/// An empty directory, mounted over others to hide them.
pub(crate) const EMPTY: &str = "/var/empty";
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
];
/// Files of /proc that show the machine or other tenants and that every user may read. /proc is
/// read-only as a whole. Each mask is a mount, which costs a box 10 µs.
const MASKED_FILES: [&str; 5] = ["kallsyms", "interrupts", "softirqs", "sched_debug", "latency_stats"];
/// Files that only root may read or that show what belongs to the reader's uid. As root a box's uid
/// is neither root nor that of another agent, so they are closed or empty.
const MASKED_FROM_USERS: [&str; 4] = ["kcore", "keys", "key-users", "timer_list"];
const MASKED_DIRECTORIES: [&str; 3] = ["acpi", "asound", "scsi"];

/// Parameters of this one box that are not permissions and therefore not in the grant.
#[derive(Debug)]
pub(crate) struct BoxParams {
    pub(crate) name: String,
    /// Its user on the host.
    pub(crate) owner: Owner,
    pub(crate) terminal: Option<WindowSize>,
    pub(crate) hold_at: Option<Step>,
    /// Ringwall's data directory, masked in every mount that contains it.
    pub(crate) hidden: Option<PathBuf>,
    /// Mount points of kernel file systems in the system directories; none if the base rootfs has these directories.
    pub(crate) kernel_mounts: Vec<CString>,
    /// The root in which PID 1 starts.
    pub(crate) base_root: BaseRoot,
    /// The agent's program, for a session box. PID 1 then starts it instead of the command of the grant.
    pub(crate) agent: Option<Source>,
}

/// The root in which PID 1 starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseRoot {
    /// The host's mounts: the plan makes the whole root.
    Host,
    /// A copy of the base rootfs.
    BaseRootfs,
}

impl BoxParams {
    pub(crate) fn stay(&self) -> Stay {
        if self.agent.is_some() { Stay::SessionBox } else { Stay::OneCommand }
    }
}

/// The identity of a native box with this user on the host.
pub(crate) fn identity(privilege: Privilege, host: Owner) -> Identity {
    Identity {
        privilege,
        inside_uid: box_layout::UID,
        inside_gid: box_layout::GID,
        host_uid: host.uid,
        host_gid: host.gid,
    }
}

/// Makes the plan of a box.
pub(crate) fn lower(grant: &Grant, host: &Host, sources: &Sources, params: &BoxParams) -> Result<Plan, Error> {
    let limits = &grant.effective().limits;
    let scratch = limits.get(Field::ScratchMb) * MIB;
    let identity = identity(host.privilege, params.owner);
    let BoxLimits { cgroups, protections, resource_limits } =
        limits::of_native_box(limits, host, &params.name, params.stay());
    // The base rootfs serves neither images nor mounts at arbitrary paths.
    let fits = sources.image.is_none() && sources.read_only.is_empty() && sources.allowed.is_empty();
    let root = match params.base_root {
        BaseRoot::BaseRootfs if fits => RootKind::Base,
        _ => RootKind::Own,
    };
    let hidden = params.hidden.as_deref();
    let agent = params.agent.as_ref();
    Ok(Plan {
        hostname: literal(box_layout::HOSTNAME),
        root,
        operations: match root {
            RootKind::Own => whole_root(host, sources, scratch, &identity, params, agent),
            RootKind::Base => beside_base_rootfs(sources, scratch, &identity, hidden, agent),
        },
        resource_limits,
        access: access(sources),
        unix_sockets: sources.unix_sockets,
        watchdog: limits::watchdog(limits, scratch_mounts(sources)),
        cgroups,
        protections,
        terminal: params.terminal,
        proxy_port: match grant.effective().net {
            Net::None => None,
            Net::Allowlist { .. } => Some(egress::PORT),
        },
        command: match agent {
            Some(_) => agent_command(),
            None => command(grant, home(sources), sources.python, params.terminal.is_some())?,
        },
        required: grant.effective().require.iter().map(|requirement| protection_of(*requirement)).collect(),
        hold_at: params.hold_at,
        identity,
    })
}

fn whole_root(
    host: &Host,
    sources: &Sources,
    scratch: u64,
    identity: &Identity,
    params: &BoxParams,
    agent: Option<&Source>,
) -> Vec<Operation> {
    let mut operations = Vec::new();
    match &sources.image {
        None => {
            operations.push(Operation::TmpfsRoot { size: scratch, inodes: ROOT_INODES + scratch / BYTES_PER_INODE });
            operations.extend(system(host, &params.kernel_mounts));
        }
        Some(image) => operations.push(Operation::OverlayRoot {
            image: source(image, identity),
            size: scratch,
            inodes: scratch / BYTES_PER_INODE,
        }),
    }
    operations.extend(etc_files());
    if sources.image.is_none() {
        // A file of the host could not be bound over this link.
        if !sources.allowed.iter().any(|allowed| allowed.at == Path::new(OS_RELEASE)) {
            operations.push(os_release());
        }
        operations.push(Operation::Directory { at: literal(EMPTY), mode: 0o555 });
        // First, because a directory of the host may be mounted over the link's directory later.
        if let Some(layer) = sources.python.layer() {
            operations.extend(python::link_directory(host.python3_alone.as_ref()));
            operations.push(layer);
        }
    }
    operations.extend(devices(sources.image.is_some()));
    let empty = match sources.image {
        // An image may contain something at this path.
        Some(_) => Cover::FileSystem,
        None => Cover::Directory(literal(EMPTY)),
    };
    operations.extend(processes(identity.privilege, &empty));
    let writable = writable_directories(sources).into_iter();
    operations.extend(writable.map(|(at, mode)| match sources.image {
        // An image may contain files there.
        Some(_) => tmpfs(at, scratch, mode),
        None => Operation::Writable { at: literal(at), mode },
    }));
    operations.extend(workspace(sources, identity));
    for directory in &sources.read_only {
        operations.push(bind(directory, directory.path.as_bytes(), MountAccess::ReadOnly, identity));
    }
    operations.extend(sources.allowed.iter().map(|allowed| allowed.bind(identity)));
    operations.extend(view::links(&sources.links, &operations));
    operations.extend(masks_in_mounts(params.hidden.as_deref(), sources, &host.system));
    operations.extend(agent.map(agent_mount));
    if sources.image.is_none() {
        operations.push(Operation::SealRoot);
    }
    operations
}

/// The operations of a box that starts with the base rootfs.
fn beside_base_rootfs(
    sources: &Sources,
    scratch: u64,
    identity: &Identity,
    hidden: Option<&Path>,
    agent: Option<&Source>,
) -> Vec<Operation> {
    let mut operations = own_mounts(writable_directories(sources), scratch, identity.privilege);
    operations.extend(shown(sources, identity, hidden));
    operations.extend(agent.map(agent_mount));
    operations
}

/// The mounts that no two boxes share: scratch space for `directories`, /dev/pts and /proc.
pub(super) fn own_mounts(directories: Vec<(&'static str, u32)>, scratch: u64, privilege: Privilege) -> Vec<Operation> {
    let directories = directories.into_iter();
    let mut operations = vec![
        Operation::Scratch {
            size: scratch,
            inodes: ROOT_INODES + scratch / BYTES_PER_INODE,
            directories: directories.map(|(at, mode)| ScratchDirectory { at: literal(at), mode }).collect(),
        },
        Operation::Pts { at: literal("/dev/pts") },
    ];
    operations.extend(processes(privilege, &Cover::Directory(literal(EMPTY))));
    operations
}

/// The files of a command, in a root that has mount points for them.
pub(crate) fn shown(sources: &Sources, identity: &Identity, hidden: Option<&Path>) -> Vec<Operation> {
    let mut operations = Vec::new();
    if sources.project.iter().any(|place| place.at == AGENT_FILES) {
        // The base rootfs has mount points of a project there.
        let cover = Cover::Directory(literal(AGENT_ROOT));
        operations.push(Operation::Mask { at: literal(WORKSPACE), cover });
    }
    operations.extend(workspace(sources, identity));
    operations.extend(masks_in_mounts(hidden, sources, &[]));
    operations.extend(sources.python.layer());
    operations
}

/// Mounts the agent's program, readable and executable but not writable.
pub(crate) fn agent_mount(program: &Source) -> Operation {
    Operation::Bind { source: program.clone(), at: literal(AGENT), kind: FileKind::File, access: MountAccess::ReadOnly }
}

/// The agent receives everything else over its socket.
pub(crate) fn agent_command() -> Command {
    Command { argv: vec![literal(AGENT)], environment: Vec::new(), search: Vec::new(), directory: literal("/") }
}

/// The mounts of the workspace: one directory, or those of a project or of an agent's files.
fn workspace(sources: &Sources, identity: &Identity) -> Vec<Operation> {
    let whole = sources.workspace.iter();
    let whole = whole.map(|directory| bind(directory, WORKSPACE.as_bytes(), MountAccess::ReadWrite, identity));
    whole.chain(sources.project.iter().flat_map(|place| project(place, identity))).collect()
}

/// Masks Ringwall's data directory `hidden` and everything in `sources.covered` that lies inside a mounted directory.
/// `system` are the host's directories that this plan mounts for the system; none if the base rootfs has them.
fn masks_in_mounts(hidden: Option<&Path>, sources: &Sources, system: &[SystemEntry]) -> Vec<Operation> {
    let own = hidden.map(|path| (path, FileKind::Directory));
    let others = sources.covered.iter().map(|covered| (covered.path.as_path(), covered.kind));
    own.into_iter().chain(others).flat_map(|(path, kind)| mask_wherever_shown(path, kind, sources, system)).collect()
}

fn mask_wherever_shown(hidden: &Path, kind: FileKind, sources: &Sources, system: &[SystemEntry]) -> Vec<Operation> {
    let system = system.iter().filter(|entry| entry.kind == SystemKind::Directory);
    let system = system.map(|entry| Path::new(OsStr::from_bytes(entry.path.as_bytes()))).map(|path| (path, path));
    let workspace = sources.workspace.iter().map(|directory| (directory.as_path(), Path::new(WORKSPACE)));
    let read_only = sources.read_only.iter().map(|directory| (directory.as_path(), directory.as_path()));
    let allowed = sources.allowed.iter().map(|allowed| (allowed.opened.as_path(), allowed.at.as_path()));
    let cover = match kind {
        FileKind::Directory => Cover::FileSystem,
        FileKind::File => Cover::Null,
    };
    let paths = system.chain(workspace).chain(read_only).chain(allowed).filter_map(|(mounted, at)| {
        let below = hidden.strip_prefix(mounted).ok()?;
        // `join` with an empty path would add a slash.
        let path: PathBuf = at.components().chain(below.components()).collect();
        CString::new(path.into_os_string().into_encoded_bytes()).ok()
    });
    // Of nested mounts only the last one is visible, so one mask for equal paths is enough.
    let paths: BTreeSet<CString> = paths.collect();
    paths.into_iter().map(|at| Operation::Mask { at, cover: cover.clone() }).collect()
}

/// The files in /etc that we write.
pub(crate) fn etc_files() -> impl Iterator<Item = Operation> {
    box_layout::etc_files(box_layout::UID, box_layout::GID).into_iter().map(|(at, content)| Operation::File {
        at: literal(at),
        content: content.into_bytes(),
        mode: 0o644,
    })
}

pub(crate) fn os_release() -> Operation {
    Operation::Symlink { at: literal(OS_RELEASE), target: literal("../usr/lib/os-release") }
}

/// The host's programs and libraries, read-only, and the parts of its /etc that they need. `kernel_mounts` in them are
/// masked.
pub(crate) fn system(host: &Host, kernel_mounts: &[CString]) -> Vec<Operation> {
    let plain = |path: &CString| Source { path: path.clone(), identity: None, owner: None };
    let directories = host.system.iter().map(|entry| match &entry.kind {
        SystemKind::Directory => Operation::Bind {
            source: plain(&entry.path),
            at: entry.path.clone(),
            kind: FileKind::Directory,
            access: MountAccess::ReadOnly,
        },
        SystemKind::Symlink(target) => Operation::Symlink { at: entry.path.clone(), target: target.clone() },
    });
    let etc = host.etc.iter().map(|entry| Operation::Bind {
        source: plain(&entry.path),
        at: entry.path.clone(),
        kind: entry.kind,
        access: MountAccess::ReadOnly,
    });
    directories.chain(etc).chain(masks(kernel_mounts)).collect()
}

/// Hides directories of the box under empty file systems.
pub(crate) fn masks(directories: &[CString]) -> impl Iterator<Item = Operation> {
    directories.iter().map(|at| Operation::Mask { at: at.clone(), cover: Cover::FileSystem })
}

fn devices(on_image: bool) -> Vec<Operation> {
    let mut operations = Vec::new();
    if on_image {
        // Covers the image's /dev.
        operations.push(tmpfs("/dev", MIB, 0o755));
    }
    operations.extend(device_nodes());
    operations.push(Operation::Pts { at: literal("/dev/pts") });
    operations
}

pub(crate) fn device_nodes() -> impl Iterator<Item = Operation> {
    let nodes = DEVICES.map(|name| {
        let path = literal(&format!("/dev/{name}"));
        Operation::Device { source: path.clone(), at: path }
    });
    let links = DEVICE_LINKS.map(|(at, target)| Operation::Symlink { at: literal(at), target: literal(target) });
    nodes.into_iter().chain(links)
}

pub(crate) fn processes(privilege: Privilege, directories: &Cover) -> Vec<Operation> {
    let mask = |name: &str, cover| Operation::Mask { at: literal(&format!("/proc/{name}")), cover };
    let mut operations = vec![Operation::Proc { at: literal("/proc") }];
    operations.extend(MASKED_FILES.map(|name| mask(name, Cover::Null)));
    if privilege == Privilege::Rootless {
        operations.extend(MASKED_FROM_USERS.map(|name| mask(name, Cover::Null)));
    }
    operations.extend(MASKED_DIRECTORIES.map(|name| mask(name, directories.clone())));
    operations
}

/// The writable directories of the box, without those at or below a directory of the host. Without
/// the home directory, HOME is /tmp.
fn writable_directories(sources: &Sources) -> Vec<(&'static str, u32)> {
    let taken = |place: &str| {
        (place == WORKSPACE && (sources.workspace.is_some() || !sources.project.is_empty()))
            || sources.read_only.iter().any(|directory| Path::new(place).starts_with(directory.as_path()))
            || sources.allowed.iter().any(|allowed| Path::new(place).starts_with(&allowed.at))
    };
    MOUNT_POINTS.into_iter().filter(|(place, _)| !taken(place)).collect()
}

fn tmpfs(at: &str, size: u64, mode: u32) -> Operation {
    Operation::Tmpfs { at: literal(at), size, inodes: (size / BYTES_PER_INODE).max(64), mode }
}

fn bind(directory: &Opened, at: &[u8], access: MountAccess, identity: &Identity) -> Operation {
    Operation::Bind {
        source: source(directory, identity),
        at: CString::new(at).unwrap_or_default(),
        kind: FileKind::Directory,
        access,
    }
}

/// Mounts a directory of a project, or an empty one over the image's if the box may not see it.
fn project(place: &ProjectPath, identity: &Identity) -> Vec<Operation> {
    match &place.content {
        Some((directory, MountAccess::ReadWrite)) => {
            vec![bind(directory, place.at.as_bytes(), MountAccess::ReadWrite, identity)]
        }
        // A read-only mount needs no owner. An id-mapped mount costs more than the other mounts
        // together.
        Some((directory, MountAccess::ReadOnly)) => vec![Operation::Bind {
            source: Source { path: directory.path.clone(), identity: Some(directory.identity), owner: None },
            at: literal(place.at),
            kind: FileKind::Directory,
            access: MountAccess::ReadOnly,
        }],
        None => vec![
            Operation::Directory { at: literal(place.at), mode: 0o555 },
            Operation::Mask { at: literal(place.at), cover: Cover::FileSystem },
        ],
    }
}

/// As root, an id-mapped mount shows another user's directory as the box's own.
fn source(directory: &Opened, identity: &Identity) -> Source {
    let foreign = directory.owner.uid != identity.host_uid || directory.owner.gid != identity.host_gid;
    let owner = (identity.privilege == Privilege::Root && foreign).then_some(directory.owner);
    Source { path: directory.path.clone(), identity: Some(directory.identity), owner }
}

/// The Landlock rules: everything is readable, and writable where the mounts are. A read-only mount
/// does not stop writes to a named pipe on it; the missing Landlock right does.
pub(crate) fn access(sources: &Sources) -> Vec<Access> {
    let rule = |beneath: &str, right| Access { beneath: literal(beneath), right };
    let root = if sources.image.is_some() { AccessRight::Write } else { AccessRight::Read };
    let mut rules = vec![rule("/", root), rule("/dev", AccessRight::WriteExisting)];
    rules.extend(writable_directories(sources).into_iter().map(|(place, _)| rule(place, AccessRight::Write)));
    if sources.workspace.is_some() {
        rules.push(rule(WORKSPACE, AccessRight::Write));
    }
    let writable = sources.allowed.iter().filter(|allowed| allowed.access == MountAccess::ReadWrite);
    rules.extend(writable.map(|allowed| Access {
        beneath: CString::new(allowed.at.as_os_str().as_bytes()).unwrap_or_default(),
        right: match allowed.kind {
            FileKind::Directory => AccessRight::Write,
            FileKind::File => AccessRight::WriteFile,
        },
    }));
    let is_writable = |place: &&ProjectPath| matches!(place.content, Some((_, MountAccess::ReadWrite)));
    rules.extend(sources.project.iter().filter(is_writable).map(|place| rule(place.at, AccessRight::Write)));
    rules
}

/// The memory file systems of the box: the root, or on an image one per writable directory.
fn scratch_mounts(sources: &Sources) -> Vec<CString> {
    let mut places = vec!["/"];
    if sources.image.is_some() {
        places.extend(writable_directories(sources).into_iter().map(|(place, _)| place));
    }
    places.into_iter().map(literal).collect()
}

/// The home directory, which must be writable.
pub(crate) fn home(sources: &Sources) -> &'static str {
    if writable_directories(sources).iter().any(|(place, _)| *place == box_layout::HOME) {
        box_layout::HOME
    } else {
        "/tmp"
    }
}

/// The environment contains only what is set here; the grant's variables override it.
pub(crate) fn command(grant: &Grant, home: &str, python: Python, on_terminal: bool) -> Result<Command, Error> {
    let mut environment = BTreeMap::from([
        ("HOME", OsStr::new(home)),
        ("LANG", OsStr::new("C.UTF-8")),
        ("PATH", OsStr::new(SEARCH)),
        ("USER", OsStr::new(box_layout::USER)),
    ]);
    match grant.workspace() {
        // An agent's command has exactly five variables.
        Workspace::Agent(_) => {
            environment.insert("PATH", OsStr::new(AGENT_SEARCH));
            environment.insert("PWD", grant.cwd().as_os_str());
        }
        Workspace::Private | Workspace::Directory(_) | Workspace::Project(_) | Workspace::Session(_) => {
            environment.insert("LOGNAME", OsStr::new(box_layout::USER));
            environment.insert("SHELL", OsStr::new("/bin/sh"));
        }
    }
    if on_terminal {
        environment.insert(TERMINAL.0, OsStr::new(TERMINAL.1));
    }
    if let Net::Allowlist { .. } = grant.effective().net {
        environment.extend(egress::ENVIRONMENT.map(|(key, value)| (key, OsStr::new(value))));
    }
    environment.extend(grant.env().iter().map(|(key, value)| (key.as_str(), value.expose())));
    let search = environment.get("PATH").copied().unwrap_or_default().as_bytes().split(|byte| *byte == b':');
    Ok(Command {
        argv: python
            .argv(grant.argv())
            .map(|word| c_string("an argument", word.as_bytes()))
            .collect::<Result<_, _>>()?,
        search: search
            .filter(|directory| !directory.is_empty())
            .map(|directory| c_string("PATH", directory))
            .collect::<Result<_, _>>()?,
        environment: environment
            .iter()
            .map(|(key, value)| c_string("the environment", &[key.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<_, _>>()?,
        directory: c_string("the directory", grant.cwd().as_os_str().as_bytes())?,
    })
}

#[cfg(test)]
#[path = "lower_tests.rs"]
pub(crate) mod tests;
