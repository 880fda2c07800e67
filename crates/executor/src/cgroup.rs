//! Where on this machine cgroups can be made for boxes, and the removal of those whose maker died.
//!
//! Boxes live below the cgroup in which we were started (version 1), or below its nearest ancestor that we may
//! write to and that hands its controllers on (version 2, where a group with processes has no limited children).
//! Limits that somebody set on us therefore bind our boxes too, wherever the kernel allows it.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use jail::plan::CgroupVersion;
use rustix::fs::Access;

use crate::kernel_file;

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// Box directories are named after the process that made them: `ringwall-<pid>-<start time>-<number>`.
const BOX_PREFIX: &str = "ringwall-";

/// Either a layout or the reason why there is none.
pub type CgroupSupport = Result<CgroupLayout, String>;

/// The directories in which boxes get theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupLayout {
    pub version: CgroupVersion,
    pub memory: Option<Controller>,
    pub pids: Option<Controller>,
    pub cpu: Option<Controller>,
}

/// One controller's directory for boxes; on version 2 all three are the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    pub parent: CString,
    /// Swap is counted too (version 1: the `memsw` files; version 2: `memory.swap.max`).
    pub swap: bool,
}

impl CgroupLayout {
    /// Looks for usable hierarchies; on version 2 this may ask a group to hand its controllers on.
    pub fn find() -> CgroupSupport {
        let own = kernel_file::read("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let [memory, pids, cpu] = CONTROLLERS.map(|name| version_1(name, &own, &mounts));
        if memory.is_some() || pids.is_some() || cpu.is_some() {
            return Ok(CgroupLayout { version: CgroupVersion::V1, memory, pids, cpu });
        }
        if let Some(layout) = version_2(&own, &mounts) {
            return Ok(layout);
        }
        Err(if rustix::process::geteuid().is_root() {
            "no cgroup hierarchy is mounted writable here".to_owned()
        } else {
            "this user may not make cgroups here (version 2 with delegation is needed)".to_owned()
        })
    }

    /// Removes what earlier processes left when they were killed together with their jails.
    pub fn sweep(&self) {
        let parents: std::collections::BTreeSet<_> =
            [&self.memory, &self.pids, &self.cpu].into_iter().flatten().map(|controller| &controller.parent).collect();
        for parent in parents {
            let Ok(parent) = parent.to_str() else { continue };
            for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
                if entry.file_name().to_str().is_some_and(is_orphan) {
                    // Only an empty group can be removed, so a box that still runs is never harmed.
                    let _ = rustix::fs::rmdir(entry.path());
                }
            }
        }
    }
}

/// The name for a box's directories, unique among live processes and recognisable afterwards.
pub(crate) fn box_name(number: u64) -> String {
    let pid = rustix::process::getpid().as_raw_nonzero();
    format!("{BOX_PREFIX}{pid}-{}-{number}", start_time("self").unwrap_or(0))
}

/// Whether a directory's maker is gone: no such process, or another one with its number.
fn is_orphan(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(BOX_PREFIX) else { return false };
    let mut parts = rest.split('-');
    match (parts.next(), parts.next().and_then(|start| start.parse::<u64>().ok())) {
        (Some(pid), Some(start)) if pid.parse::<u32>().is_ok() => start_time(pid) != Some(start),
        _ => false,
    }
}

/// When a process began, in ticks since boot: the 22nd field of its stat line, counted after the command name,
/// which may itself contain spaces and brackets.
fn start_time(process: &str) -> Option<u64> {
    let stat = kernel_file::read(&format!("/proc/{process}/stat")).ok()?;
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

/// The nearest ancestor of our own group that we may write to and that passes its controllers on.
fn version_2(own: &str, mounts: &str) -> Option<CgroupLayout> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().map(Mount::parse).find_map(|mount| mount.filter(|mount| mount.kind == "cgroup2"))?;
    let directory = mount.locate(path)?;
    let mut best: Option<(usize, &Path)> = None;
    for ancestor in directory.ancestors().take_while(|ancestor| ancestor.starts_with(mount.point)) {
        if !writable(ancestor) || !writable(&ancestor.join("cgroup.procs")) {
            continue;
        }
        hand_on(ancestor);
        let count = CONTROLLERS.iter().filter(|name| handed_on(ancestor).contains(**name)).count();
        if count > best.map_or(0, |(most, _)| most) {
            best = Some((count, ancestor));
        }
        if count == CONTROLLERS.len() {
            break;
        }
    }
    let (_, parent) = best?;
    let enabled = handed_on(parent);
    let parent = into_c_string(parent)?;
    let [memory, pids, cpu] =
        CONTROLLERS.map(|name| enabled.contains(name).then(|| Controller { parent: parent.clone(), swap: true }));
    Some(CgroupLayout { version: CgroupVersion::V2, memory, pids, cpu })
}

/// Asks the kernel to give children these controllers. One at a time: a refused one must not spoil the others,
/// and a group that holds processes refuses all, which the caller sees by what is enabled afterwards.
fn hand_on(directory: &Path) {
    for controller in CONTROLLERS {
        let _ = std::fs::write(directory.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// The controllers that children of this group have.
fn handed_on(directory: &Path) -> std::collections::BTreeSet<String> {
    let text = std::fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
    text.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The part of a mountinfo line that matters here.
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

    /// Where a group's path is in the file system.
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

    #[test]
    fn only_directories_of_dead_makers_are_orphans() {
        assert!(!is_orphan(&box_name(1)), "our own");
        let pid = rustix::process::getpid().as_raw_nonzero();
        assert!(is_orphan(&format!("ringwall-{pid}-1-1")), "our number, another process");
        assert!(is_orphan("ringwall-4194305-1-1"), "no such process");
        for foreign in ["docker", "ringwall-", "ringwall-x-1-1", "ringwall-1", "user.slice"] {
            assert!(!is_orphan(foreign), "{foreign} is not ours");
        }
    }
}
