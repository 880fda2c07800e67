//! Finds where cgroups for boxes can be made, and removes those whose maker died.
//!
//! Boxes get groups below the cgroup of this process (version 1), or below its nearest ancestor
//! that is writable and delegates its controllers (version 2, where a group with processes cannot
//! have limited children). Groups that hold processes are never changed. Limits on this process
//! therefore also bind its boxes, where the kernel allows it.

use std::ffi::CString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use ringwall_jail::cgroups::{FREEZER, THAWED};
use ringwall_jail::plan::CgroupVersion;
use rustix::fs::Access;

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
const IO: &str = "io";
/// Box directories are named after the process that made them: `ringwall-<pid>-<start time>-<executor>-<number>`.
const BOX_PREFIX: &str = "ringwall-";

/// The layout, or the reason why there is none.
pub type CgroupSupport = Result<CgroupLayout, String>;

/// The parent directories of the boxes' groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLayout {
    pub version: CgroupVersion,
    pub memory: Option<Controller>,
    pub pids: Option<Controller>,
    pub cpu: Option<Controller>,
    /// `blkio` on version 1, `io` on version 2. The choice of the parent does not depend on this
    /// controller.
    pub io: Option<Controller>,
    /// The freezer hierarchy (version 1). On version 2 every group can be frozen.
    pub freezer: Option<Controller>,
}

/// The parent directory of one controller. On version 2 all controllers share it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub parent: CString,
    /// Swap is counted too (version 1: the `memsw` files; version 2: `memory.swap.max`).
    pub swap: bool,
}

impl CgroupLayout {
    /// Finds usable hierarchies. On version 2 this may enable controllers in a parent's
    /// `cgroup.subtree_control`.
    pub fn find() -> CgroupSupport {
        let own =
            std::fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let [memory, pids, cpu] = CONTROLLERS.map(|name| version_1(name, &own, &mounts));
        if memory.is_some() || pids.is_some() || cpu.is_some() {
            let freezer = version_1("freezer", &own, &mounts);
            let io = version_1("blkio", &own, &mounts);
            return Ok(CgroupLayout { version: CgroupVersion::V1, memory, pids, cpu, io, freezer });
        }
        version_2(&own, &mounts).map_err(|none| match none {
            NoParentGroup::Occupied(group) => {
                let group = group.display();
                format!("{group} could be divided, but holds processes (start Ringwall in a group below it)")
            }
            NoParentGroup::NotWritable if rustix::process::geteuid().is_root() => {
                "no cgroup hierarchy is mounted writable here".to_owned()
            }
            NoParentGroup::NotWritable => {
                "this user may not make cgroups here (version 2 with delegation is needed)".to_owned()
            }
        })
    }

    /// The directories in which boxes get theirs, each once.
    pub(crate) fn parents(&self) -> std::collections::BTreeSet<&CString> {
        let controllers = [&self.memory, &self.pids, &self.cpu, &self.io, &self.freezer];
        controllers.into_iter().flatten().map(|controller| &controller.parent).collect()
    }

    /// Removes groups of earlier processes that were killed together with their spawners.
    pub fn sweep(&self) {
        for parent in self.parents() {
            let Ok(parent) = parent.to_str() else { continue };
            for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(is_orphan) {
                    // A frozen box could not die with its maker: thaw it.
                    let _ = std::fs::OpenOptions::new()
                        .write(true)
                        .open(entry.path().join(FREEZER.to_string_lossy().as_ref()))
                        .and_then(|mut state| state.write_all(THAWED));
                    // The kernel removes only empty groups, so a running box is not harmed.
                    let _ = rustix::fs::rmdir(entry.path());
                }
            }
        }
    }
}

/// True if `/sys/fs/cgroup` is version 2.
pub(crate) fn is_version_2() -> bool {
    rustix::fs::access("/sys/fs/cgroup/cgroup.controllers", Access::EXISTS).is_ok()
}

/// The prefix of an executor's group names. It is unique among live executors; the number of the
/// box completes the name.
pub(crate) fn name_prefix() -> String {
    static EXECUTORS: AtomicU64 = AtomicU64::new(0);
    let executor = EXECUTORS.fetch_add(1, Ordering::Relaxed);
    format!("{BOX_PREFIX}{}-{}-{executor}-", std::process::id(), own_start_time())
}

/// The start time of this process. Together with the PID it identifies the process for good.
pub(crate) fn own_start_time() -> u64 {
    start_time("self").unwrap_or(0)
}

/// True if the process that made a directory is gone.
fn is_orphan(name: &str) -> bool {
    name.strip_prefix(BOX_PREFIX).and_then(owner_lives) == Some(false)
}

/// True if a process with the PID and start time of `<pid>-<start time>-…` exists; `None` if the text
/// has another form.
pub(crate) fn owner_lives(owner: &str) -> Option<bool> {
    let mut parts = owner.split('-');
    let (pid, start) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u64>().ok()?);
    Some(start_time(&pid.to_string()) == Some(start))
}

/// Start time of a process in ticks since boot: field 22 of its stat line, counted after the
/// command name, which may contain spaces and brackets.
pub(crate) fn start_time(process: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// A version 1 hierarchy with this controller, if we may make groups in it.
fn version_1(controller: &str, own: &str, mounts: &str) -> Option<Controller> {
    let path = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    let mount = mounts.lines().map(Mount::parse).find_map(|mount| {
        mount.filter(|mount| mount.kind == "cgroup" && mount.options.split(',').any(|name| name == controller))
    })?;
    let directory = mount.locate(path)?;
    if !writable(&directory) {
        return None;
    }
    let swap = controller == "memory" && directory.join("memory.memsw.limit_in_bytes").exists();
    Some(Controller { parent: into_c_string(&directory)?, swap })
}

/// Why boxes get no groups on version 2.
#[derive(Debug, PartialEq, Eq)]
enum NoParentGroup {
    NotWritable,
    /// The nearest writable group contains processes.
    Occupied(PathBuf),
}

/// The nearest ancestor of our own group that is writable and delegates its controllers.
fn version_2(own: &str, mounts: &str) -> Result<CgroupLayout, NoParentGroup> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or(NoParentGroup::NotWritable)?;
    let mount = mounts.lines().map(Mount::parse).find_map(|mount| mount.filter(|mount| mount.kind == "cgroup2"));
    let mount = mount.ok_or(NoParentGroup::NotWritable)?;
    let directory = mount.locate(path).ok_or(NoParentGroup::NotWritable)?;
    let mut best: Option<(usize, &Path)> = None;
    let mut nearest_occupied = None;
    for ancestor in directory.ancestors().take_while(|ancestor| ancestor.starts_with(mount.point)) {
        if !writable(ancestor) || !writable(&ancestor.join("cgroup.procs")) {
            continue;
        }
        if is_occupied(ancestor) {
            nearest_occupied.get_or_insert(ancestor);
            continue;
        }
        delegate(ancestor);
        let count = CONTROLLERS.iter().filter(|name| delegated(ancestor).contains(**name)).count();
        if count > best.map_or(0, |(most, _)| most) {
            best = Some((count, ancestor));
        }
        if count == CONTROLLERS.len() {
            break;
        }
    }
    let none =
        || nearest_occupied.map_or(NoParentGroup::NotWritable, |group| NoParentGroup::Occupied(group.to_owned()));
    let (_, parent) = best.ok_or_else(none)?;
    let enabled = delegated(parent);
    let parent = into_c_string(parent).ok_or(NoParentGroup::NotWritable)?;
    let controller = |name: &str| enabled.contains(name).then(|| Controller { parent: parent.clone(), swap: true });
    let ([memory, pids, cpu], io) = (CONTROLLERS.map(controller), controller(IO));
    Ok(CgroupLayout { version: CgroupVersion::V2, memory, pids, cpu, io, freezer: None })
}

/// True if a group other than the root of the hierarchy (which has no `cgroup.type`) holds
/// processes. Such a group cannot delegate memory. Enabling pids and cpu would make it the root of
/// a threaded subtree, in whose children no process can be created.
fn is_occupied(directory: &Path) -> bool {
    let processes = std::fs::read_to_string(directory.join("cgroup.procs"));
    directory.join("cgroup.type").exists() && processes.map_or(true, |processes| !processes.is_empty())
}

/// Enables the missing controllers for children, one at a time, because one refused controller
/// would reject the whole write. The caller reads back what is enabled.
fn delegate(directory: &Path) {
    let enabled = delegated(directory);
    for controller in CONTROLLERS.iter().chain([&IO]).filter(|name| !enabled.contains(**name)) {
        let _ = std::fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// The controllers that children of this group have.
fn delegated(directory: &Path) -> std::collections::BTreeSet<String> {
    let text = std::fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The used fields of a mountinfo line.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let mut back = back.split(' ');
        Some(Mount { root: front.next()?, point: front.next()?, kind: back.next()?, options: back.nth(1)? })
    }

    /// The path of a group in the file system.
    fn locate(&self, group: &str) -> Option<PathBuf> {
        let below = Path::new(group).strip_prefix(self.root).ok()?;
        Some(Path::new(self.point).join(below))
    }
}

fn writable(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}

fn into_c_string(path: &Path) -> Option<CString> {
    CString::new(path.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mountinfo_line_locates_a_group() {
        let line = "35 24 0:30 /docker/abc /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory";
        let mount = Mount::parse(line).unwrap();
        assert_eq!((mount.kind, mount.options), ("cgroup", "rw,memory"));
        assert_eq!(mount.locate("/docker/abc/x"), Some(PathBuf::from("/sys/fs/cgroup/memory/x")));
        assert_eq!(mount.locate("/elsewhere"), None);
    }

    /// Makes a directory that looks like a version 2 group.
    fn test_group(path: &Path, processes: &str, delegated: &str) {
        std::fs::create_dir_all(path).unwrap();
        for (file, content) in
            [("cgroup.type", "domain\n"), ("cgroup.procs", processes), ("cgroup.subtree_control", delegated)]
        {
            std::fs::write(path.join(file), content).unwrap();
        }
    }

    #[test]
    fn boxes_go_beside_a_group_with_processes_and_leave_it_alone() {
        let tree = tempfile::tempdir().unwrap();
        let (slice, session) = (tree.path().join("slice"), tree.path().join("slice/session"));
        test_group(tree.path(), "", "");
        test_group(&slice, "", "cpu io memory pids\n");
        test_group(&session, "7\n", "");
        let mounts = format!("30 24 0:26 / {} rw - cgroup2 cgroup2 rw", tree.path().display());
        let layout = version_2("0::/slice/session\n", &mounts).unwrap();
        let parent = into_c_string(&slice);
        for controller in [layout.memory, layout.pids, layout.cpu, layout.io] {
            assert_eq!(controller.map(|controller| controller.parent), parent);
        }
        assert_eq!(delegated(&session).len(), 0, "a shell's group is not divided");
    }

    #[test]
    fn without_a_free_group_the_occupied_one_is_named() {
        let group = tempfile::tempdir().unwrap();
        test_group(group.path(), "7\n", "");
        let mounts = format!("30 24 0:26 /own {} rw - cgroup2 cgroup2 rw", group.path().display());
        assert_eq!(version_2("0::/own\n", &mounts), Err(NoParentGroup::Occupied(group.path().to_owned())));
        assert_eq!(version_2("0::/elsewhere\n", &mounts), Err(NoParentGroup::NotWritable));
        assert_eq!(delegated(group.path()).len(), 0, "nothing was asked of it");
    }

    #[test]
    fn only_directories_of_dead_makers_are_orphans() {
        assert!(!is_orphan(&format!("{}1", name_prefix())), "our own");
        let pid = rustix::process::getpid().as_raw_nonzero();
        assert!(is_orphan(&format!("ringwall-{pid}-1-1")), "our number, another process");
        assert!(is_orphan("ringwall-4194305-1-1"), "no such process");
        for foreign in ["docker", "ringwall-", "ringwall-x-1-1", "ringwall-1", "user.slice"] {
            assert!(!is_orphan(foreign), "{foreign} is not ours");
        }
    }
}
