//! What every box has of its own at a path, and what is left to ask for.
//!
//! A name here never means the host's file of that name, except in the system's directories, which every box can read and
//! none can write.

use super::host_path::{HostPath, PathStyle};

/// With everything below them.
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

/// Ways back to every other path.
const DOORS: [&str; 4] = ["root", "cwd", "task", "map_files"];

/// Inside every box anyway.
pub fn is_always_there(path: &HostPath) -> bool {
    let text = path.as_str();
    let below = |tree: &&str| text.strip_prefix(*tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path.style() == PathStyle::Linux && (FILES.contains(&text) || TREES.iter().any(below) && !leads_on(path))
}

fn leads_on(path: &HostPath) -> bool {
    let mut names = path.names();
    names.next() == Some("proc") && names.nth(1).is_some_and(|name| DOORS.contains(&name))
}

/// Of those named, the ones that neither every box has nor an entry covers.
pub fn blocked<'a>(named: &'a [HostPath], entries: &[HostPath]) -> Vec<&'a HostPath> {
    let is_open = |path: &&HostPath| is_always_there(path) || entries.iter().any(|entry| entry.covers(path));
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
    fn a_box_has_its_own() {
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
            assert!(is_always_there(&path(there)), "{there}");
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
            assert!(!is_always_there(&path(not)), "{not}");
        }
    }

    #[test]
    fn what_no_entry_covers_is_left() {
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
