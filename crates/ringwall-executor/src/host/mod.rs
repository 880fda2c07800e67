//! Facts about this machine, read once at start-up: system directories, our privileges, where
//! cgroups can be made. `plan` decides what follows from them.

pub(crate) mod mount_table;
pub(crate) mod python;
pub(crate) mod real_path;
pub(crate) mod secrets;

use std::ffi::CString;
use std::path::{Path, PathBuf};

use ringwall_jail::plan::{FileKind, Owner, Privilege};
use rustix::fs::{AtFlags, FileType};
use rustix::thread::CapabilitySet;

use crate::cgroup::layout::{CgroupLayout, CgroupSupport};
use crate::counters::Caps;
use crate::error::Error;

/// Directories of programs and libraries. `/usr` is a directory; the others are links into it on
/// most distributions.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Entries of the host's /etc that programs in /usr need and that hold no secrets: alternatives,
/// library cache, certificates, time zone, fonts, plotting defaults. Each is a mount, which costs a
/// box 10 µs.
const ETC: [&str; 8] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/fonts",
    "/etc/matplotlibrc",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
];

/// Java's configuration is in a directory of /etc whose name is a prefix of its own:
/// `java-17-openjdk-amd64` and `/etc/java-17-openjdk`.
const JAVA: &str = "/usr/lib/jvm";

#[derive(Debug)]
pub struct Host {
    pub privilege: Privilege,
    pub uid: u32,
    pub gid: u32,
    pub system: Vec<SystemEntry>,
    pub etc: Vec<EtcEntry>,
    pub cgroups: CgroupSupport,
    pub memory_mb: u64,
    pub cpus: u64,
    pub pids: u64,
    /// `fs.file-max`: open files of all processes together.
    pub open_files: u64,
    /// `vm.max_map_count`: mappings per process. Each can hold a file open without a descriptor.
    pub mappings: u64,
    /// Disks of this machine by device number (`8:0`), without partitions and memory disks.
    pub disks: Vec<String>,
    /// The path of python3 if there is no `python`.
    pub python3_alone: Option<CString>,
    pub(crate) counter_caps: Caps,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemEntry {
    pub path: CString,
    pub kind: SystemKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemKind {
    Directory,
    Symlink(CString),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcEntry {
    pub path: CString,
    pub kind: FileKind,
}

/// A path of the host that is masked in every box that would show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) path: PathBuf,
    pub(crate) kind: FileKind,
}

impl Host {
    pub fn probe() -> Self {
        Self::probe_as(privilege())
    }

    /// The same for known privileges.
    pub(crate) fn probe_as(privilege: Privilege) -> Self {
        let system = rustix::system::sysinfo();
        Host {
            privilege,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            system: SYSTEM.iter().filter_map(|path| system_entry(path)).collect(),
            etc: etc_entries(),
            cgroups: CgroupLayout::find(),
            memory_mb: (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) / (1024 * 1024),
            cpus: rustix::thread::sched_getaffinity(None).map_or(1, |cpus| u64::from(cpus.count())),
            pids: read_number("/proc/sys/kernel/pid_max").unwrap_or(32_768),
            open_files: read_number("/proc/sys/fs/file-max").unwrap_or(u64::MAX),
            mappings: read_number("/proc/sys/vm/max_map_count").unwrap_or(u64::MAX),
            disks: disks(),
            python3_alone: python::find_alone(),
            counter_caps: Caps::of_machine(),
        }
    }
}

/// uid 0 counts as root only in the initial user namespace; in another one we act as an
/// unprivileged user.
pub(crate) fn privilege() -> Privilege {
    let all_ids = std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]));
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID;
    let capable = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    if rustix::process::geteuid().is_root() && all_ids && capable { Privilege::Root } else { Privilege::Rootless }
}

/// Host user and group of a box: `own_uid` as root, otherwise our own.
pub(crate) fn ids(privilege: Privilege, own_uid: u32) -> Owner {
    match privilege {
        Privilege::Root => Owner { uid: own_uid, gid: own_uid },
        Privilege::Rootless => {
            Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
        }
    }
}

fn system_entry(path: &str) -> Option<SystemEntry> {
    let kind = match file_type(path)? {
        FileType::Symlink => SystemKind::Symlink(rustix::fs::readlink(path, Vec::new()).ok()?),
        FileType::Directory => SystemKind::Directory,
        _ => return None,
    };
    Some(SystemEntry { path: CString::new(path).ok()?, kind })
}

/// Mount points of kernel file systems in the system directories. Read them again whenever these
/// directories are cloned, because a mount may be newer than the server.
pub(crate) fn kernel_mounts() -> Result<Vec<CString>, Error> {
    let in_system = |path: &Path| SYSTEM.iter().any(|system| path.starts_with(system));
    let mounts = mask_candidates(in_system)?.into_iter().filter(|mount| mount.kind == FileKind::Directory);
    Ok(mounts.filter_map(|mount| CString::new(mount.path.into_os_string().into_encoded_bytes()).ok()).collect())
}

/// Mount points of all kernel file systems.
pub(crate) fn all_kernel_mounts() -> Result<Vec<Covered>, Error> {
    mask_candidates(|_| true)
}

fn mask_candidates(is_shown: impl Fn(&Path) -> bool) -> Result<Vec<Covered>, Error> {
    let path = || "/proc/self/mountinfo".into();
    mount_table::kernel_mounts(is_shown).map_err(|source| Error::OpenDirectory { path: path(), source })
}

fn etc_entries() -> Vec<EtcEntry> {
    let installed = std::fs::read_dir(JAVA).into_iter().flatten().flatten();
    let names = installed.filter_map(|entry| entry.file_name().into_string().ok());
    let java = names.filter(|name| name.starts_with("java")).flat_map(|name| {
        let ends: Vec<usize> = name.match_indices('-').map(|(end, _)| end).chain([name.len()]).collect();
        ends.into_iter().map(move |end| format!("/etc/{}", &name[..end]))
    });
    let mut paths: Vec<String> = ETC.iter().map(|path| (*path).to_owned()).chain(java).collect();
    paths.sort();
    paths.dedup();
    paths.into_iter().filter_map(|path| etc_entry(&path)).collect()
}

fn etc_entry(path: &str) -> Option<EtcEntry> {
    let kind = match FileType::from_raw_mode(rustix::fs::stat(path).ok()?.st_mode) {
        FileType::Directory => FileKind::Directory,
        FileType::RegularFile => FileKind::File,
        _ => return None,
    };
    Some(EtcEntry { path: CString::new(path).ok()?, kind })
}

/// Disks with a size above 0. Loop devices and compressed memory pass their requests on to others.
fn disks() -> Vec<String> {
    const NOT_DISKS: [&str; 5] = ["loop", "ram", "zram", "fd", "sr"];
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let read = |file: &str| std::fs::read_to_string(format!("/sys/block/{name}/{file}")).unwrap_or_default();
        if !NOT_DISKS.iter().any(|other| name.starts_with(other)) && read("size").trim() != "0" {
            found.push(read("dev").trim().to_owned());
        }
    }
    found.retain(|number| !number.is_empty());
    found.sort();
    found
}

fn file_type(path: &str) -> Option<FileType> {
    let status = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(status.st_mode))
}

fn read_number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}
