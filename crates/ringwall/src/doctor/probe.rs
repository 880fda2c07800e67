//! Reads facts from `/proc`, `/sys` and the directories in `PATH`. A missing file is a fact, not an
//! error.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ringwall_executor::{CgroupSupport, Host};
use rustix::fs::{Access, FileType};
use rustix::io::Errno;

use super::facts::{
    Aio, CgroupParents, Cgroups, Daemon, Docker, Facts, Hierarchy, Kernel, Landlock, Namespaces, Overlay, ProbeBox,
    ProbeBoxFailure,
};

const NAMESPACE_LIMITS: [&str; 6] = [
    "user.max_user_namespaces",
    "user.max_mnt_namespaces",
    "user.max_pid_namespaces",
    "user.max_net_namespaces",
    "user.max_ipc_namespaces",
    "user.max_uts_namespaces",
];
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Reads all facts from files. The caller replaces `docker`, `aio` and the field `probe_box`.
pub(crate) fn probe(host: &Host) -> Facts {
    let kernel = Kernel::parse(&rustix::system::uname().release().to_string_lossy());
    let not_started = ProbeBoxFailure { step: None, errno: 0, text: "not tried".to_owned(), hint: None };
    Facts {
        privilege: host.privilege,
        program: std::env::current_exe().unwrap_or_else(|_| "ringwall".into()),
        probe_box: ProbeBox::Failed(not_started),
        namespaces: namespaces(),
        landlock: landlock(),
        cgroups: Cgroups {
            hierarchy: hierarchy(&read("/proc/self/mountinfo").unwrap_or_default()),
            parents: cgroup_parents(&host.cgroups),
        },
        overlay: overlay(&kernel.release),
        docker: Docker { client: None, daemon: Daemon::Absent },
        aio: Aio::NotConfigured,
        runsc: on_path(&["runsc"]),
        chromium: on_path(&BROWSERS),
        kernel,
    }
}

/// The path of the first of these programs that is in `PATH`.
pub(crate) fn on_path(names: &[&str]) -> Option<PathBuf> {
    names.iter().find_map(|name| find(std::env::var_os("PATH").as_deref()?, name))
}

fn find(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path).filter(|directory| directory.is_absolute()).map(|directory| directory.join(name)).find(
        |candidate| {
            let kind = rustix::fs::stat(candidate).map(|status| FileType::from_raw_mode(status.st_mode));
            kind == Ok(FileType::RegularFile) && rustix::fs::access(candidate, Access::EXEC_OK).is_ok()
        },
    )
}

fn namespaces() -> Namespaces {
    let switch = |name: &str| setting(name).map(|value| value != "0");
    Namespaces {
        unprivileged_clone: switch("kernel.unprivileged_userns_clone"),
        apparmor_restricts: switch("kernel.apparmor_restrict_unprivileged_userns"),
        closed: NAMESPACE_LIMITS.into_iter().filter(|name| setting(name).as_deref() == Some("0")).collect(),
        selinux_enforcing: read("/sys/fs/selinux/enforce").is_some_and(|text| text.trim() == "1"),
        filtered: read("/proc/self/status").is_some_and(|status| is_filtered(&status)),
    }
}

/// The value of a sysctl.
fn setting(name: &str) -> Option<String> {
    read(&format!("/proc/sys/{}", name.replace('.', "/"))).map(|text| text.trim().to_owned())
}

fn is_filtered(status: &str) -> bool {
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2"))
}

fn landlock() -> Landlock {
    match ringwall_executor::landlock_version() {
        Ok(version) => Landlock::Version(version),
        Err(Errno::NOSYS) => Landlock::NotBuilt,
        Err(Errno::OPNOTSUPP) => Landlock::NotEnabled,
        Err(_) => Landlock::Refused,
    }
}

/// Derived from the mounts. A version 1 hierarchy counts only if it has the memory, pids or cpu
/// controller; systemd mounts one without a controller.
fn hierarchy(mounts: &str) -> Hierarchy {
    let mut version_1 = false;
    let mut version_2 = false;
    for line in mounts.lines() {
        let Some((_, back)) = line.split_once(" - ") else { continue };
        let mut fields = back.split(' ');
        match (fields.next(), fields.nth(1)) {
            (Some("cgroup2"), _) => version_2 = true,
            (Some("cgroup"), Some(options)) => {
                version_1 |= options.split(',').any(|option| matches!(option, "memory" | "pids" | "cpu"));
            }
            _ => {}
        }
    }
    match (version_1, version_2) {
        (false, false) => Hierarchy::NotMounted,
        (true, false) => Hierarchy::Version1,
        (true, true) => Hierarchy::Hybrid,
        (false, true) => Hierarchy::Version2,
    }
}

fn cgroup_parents(support: &CgroupSupport) -> Result<CgroupParents, String> {
    let layout = support.as_ref().map_err(Clone::clone)?;
    let [memory, pids, cpu] = [&layout.memory, &layout.pids, &layout.cpu].map(|controller| {
        controller.as_ref().map(|found| found.parent.to_string_lossy().trim_end_matches('/').to_owned())
    });
    Ok(CgroupParents { memory, pids, cpu })
}

fn overlay(release: &str) -> Overlay {
    let listed = read("/proc/filesystems").is_some_and(|text| lists(&text, "overlay"));
    let module = Path::new("/lib/modules").join(release).join("kernel/fs/overlayfs");
    match listed {
        true => Overlay::Listed,
        false if rustix::fs::stat(&module).is_ok() => Overlay::Module,
        false => Overlay::Absent,
    }
}

fn lists(filesystems: &str, name: &str) -> bool {
    filesystems.lines().any(|line| line.split_ascii_whitespace().next_back() == Some(name))
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
    const NAMED: &str = "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n";
    const V2: &str = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const OTHER: &str = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n";

    #[test]
    fn cgroup_version_follows_the_mounts() {
        let table = [
            (vec![OTHER], Hierarchy::NotMounted),
            (vec![OTHER, V1, NAMED], Hierarchy::Version1),
            (vec![V1, V2], Hierarchy::Hybrid),
            (vec![OTHER, V2], Hierarchy::Version2),
            (vec![NAMED, V2], Hierarchy::Version2),
        ];
        for (lines, expected) in table {
            assert_eq!(hierarchy(&lines.concat()), expected, "{lines:?}");
        }
    }

    #[test]
    fn file_system_is_listed_by_its_whole_name() {
        let text = "nodev\tsysfs\nnodev\toverlay\n\text4\n";
        assert!(lists(text, "overlay") && lists(text, "ext4"));
        assert!(!lists(text, "over") && !lists(text, "nodev"));
    }

    #[test]
    fn seccomp_mode_2_is_a_filter() {
        assert!(is_filtered("Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"));
        assert!(!is_filtered("Seccomp:\t0\nSeccomp_filters:\t2\n"));
    }

    #[test]
    fn only_executable_files_in_absolute_directories_are_found() {
        assert!(find(OsStr::new("/nonexistent:/usr/bin:/bin"), "sh").is_some_and(|found| found.ends_with("bin/sh")));
        assert_eq!(find(OsStr::new("/proc:/etc"), "passwd"), None, "not executable");
        assert_eq!(find(OsStr::new("/"), "usr"), None, "a directory");
        assert_eq!(find(OsStr::new(""), "sh"), None);
    }
}
