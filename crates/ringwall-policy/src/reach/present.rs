//! The paths that every box has of its own; they need no permission.
//!
//! A box has files of its own at these paths, or shows the host's: system directories and a few
//! entries of `/etc`, read-only, and harmless devices such as `/dev/null`.

use super::host_path::{HostPath, PathStyle};

/// Including everything below.
const TREES: [&str; 21] = [
    "/workspace",
    "/tmp",
    "/var/tmp",
    "/home/sandbox",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/dev/fd",
    "/dev/pts",
    "/dev/shm",
    "/proc/self",
    "/proc/thread-self",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/ssl/openssl.cnf",
];

const FILES: [&str; 27] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/mounts",
    "/proc/stat",
    "/proc/uptime",
    "/proc/version",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/random/uuid",
    "/proc/sys/kernel/random/boot_id",
    "/proc/sys/fs/file-max",
    "/proc/sys/vm/overcommit_memory",
];

/// Entries of `/proc/<pid>` that lead to arbitrary other paths.
const DOORS: [&str; 4] = ["root", "cwd", "task", "map_files"];

/// True if every box has this path.
pub fn is_in_every_box(path: &HostPath) -> bool {
    let text = path.as_str();
    let below = |tree: &&str| text.strip_prefix(*tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path.style() == PathStyle::Linux && (FILES.contains(&text) || TREES.iter().any(below) && !leads_on(path))
}

fn leads_on(path: &HostPath) -> bool {
    let mut names = path.names();
    names.next() == Some("proc") && names.nth(1).is_some_and(|name| DOORS.contains(&name))
}

/// The named paths that no box has of its own and no entry covers.
pub fn blocked<'a>(named: &'a [HostPath], entries: &[HostPath]) -> Vec<&'a HostPath> {
    let is_open = |path: &&HostPath| is_in_every_box(path) || entries.iter().any(|entry| entry.covers(path));
    named.iter().filter(|path| !is_open(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::normalise;
    use super::*;

    fn path(text: &str) -> HostPath {
        normalise(text, "/workspace", Some("/home/sandbox")).expect("a path")
    }

    #[test]
    fn box_has_own_paths() {
        for there in [
            "/workspace",
            "a/b",
            "/tmp",
            "/tmp/x",
            "~",
            "~/x",
            "/usr/bin/python3",
            "/bin/ls",
            "/lib64/x",
            "/dev/null",
            "/dev/fd/3",
            "/proc/self/status",
            "/proc/self",
            "/proc/cpuinfo",
            "/etc/ssl/certs/ca.pem",
        ] {
            assert!(is_in_every_box(&path(there)), "{there}");
        }
        for not in [
            "/",
            "/home",
            "/home/u",
            "/home/sandboxes",
            "/workspaces",
            "/tmpfile",
            "../etc/passwd",
            "/tmp/../etc",
            "/etc",
            "/etc/passwd",
            "/etc/ssl/private",
            "/dev",
            "/dev/sda",
            "/dev/null/x",
            "/proc",
            "/proc/1/environ",
            "/proc/self/root/etc/passwd",
            "/proc/thread-self/cwd",
            "/var",
            "/root",
            r"C:\tmp",
            r"\\tmp\x",
        ] {
            assert!(!is_in_every_box(&path(not)), "{not}");
        }
    }

    #[test]
    fn uncovered_path_is_blocked() {
        let named = ["/home/u/a", "x", "/home/userbackup", r"C:\a\b", "/etc"].map(path);
        let left = |entries: &[&str]| {
            let entries: Vec<HostPath> = entries.iter().map(|entry| path(entry)).collect();
            blocked(&named, &entries).into_iter().map(HostPath::to_string).collect::<Vec<_>>()
        };
        assert_eq!(left(&[]), ["/home/u/a", "/home/userbackup", r"C:\a\b", "/etc"]);
        assert_eq!(left(&["/home/u", r"c:\A"]), ["/home/userbackup", "/etc"]);
        assert_eq!(left(&["/"]), [r"C:\a\b"]);
    }
}
