//! Places that are better not allowed, each with the sentence that says why.
//!
//! A warning refuses nothing by itself. Some places are too much only as a whole (`/var/log`, where `/var/log/app` is a
//! fair wish), others with everything in them.

use super::host_path::{HostPath, PathStyle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// The place itself.
    Whole,
    /// And everything below it.
    Tree,
}

use Extent::{Tree, Whole};

const DEVICES: &str =
    "These are devices and sockets of the running machine; whoever opens them can act on it directly.";
const PROGRAMS: &str = "The system's programs and libraries are here; whoever writes here changes what others run.";
const KEYS: &str = "Keys and credentials are kept here; whoever reads them can act in somebody else's name.";
const MACHINE: &str = "This is a window into the running machine: its processes, their memory and its settings.";
const MACOS: &str = "The system's own files are here; whoever writes here changes the machine itself.";
const WINDOWS: &str = "The system's own files are here; whoever writes here changes Windows itself.";
const INSTALLED: &str = "Installed programs and their settings are here; whoever writes here changes what others run.";
const SERVICES: &str = "Services keep their state here, databases and containers among it.";

const LINUX_ROOTS: [(&str, Extent, &str); 33] = [
    ("/", Whole, "This is the whole machine: every file of every user."),
    ("/etc", Tree, "The machine's configuration is here, with accounts, password hashes and keys."),
    ("/root", Tree, "This is the administrator's home, with keys and history."),
    ("/proc", Tree, MACHINE),
    ("/sys", Tree, MACHINE),
    ("/dev", Tree, DEVICES),
    ("/run", Tree, DEVICES),
    ("/var/run", Tree, DEVICES),
    ("/boot", Tree, "The machine starts from here; whoever writes here owns it after the next start."),
    ("/var", Whole, "Logs, mail, databases and the state of every service are here."),
    ("/var/log", Whole, "The logs of the whole machine are here, with what others did and sometimes their secrets."),
    ("/var/lib", Whole, SERVICES),
    ("/var/lib/docker", Tree, SERVICES),
    ("/var/lib/containerd", Tree, SERVICES),
    ("/var/lib/kubelet", Tree, SERVICES),
    ("/var/spool/cron", Tree, "What is written here is run later, by and as the machine's own clock."),
    ("/var/backups", Tree, "Copies of the accounts and of the machine's configuration are here."),
    ("/usr", Tree, PROGRAMS),
    ("/bin", Tree, PROGRAMS),
    ("/sbin", Tree, PROGRAMS),
    ("/lib", Tree, PROGRAMS),
    ("/lib32", Tree, PROGRAMS),
    ("/lib64", Tree, PROGRAMS),
    ("/libx32", Tree, PROGRAMS),
    ("/opt", Whole, INSTALLED),
    ("/home", Whole, "These are the homes of all users of this machine."),
    ("/Users", Whole, "These are the homes of all users of this machine."),
    ("/mnt", Whole, "Every mounted disk of this machine is here."),
    ("/media", Whole, "Every mounted disk of this machine is here."),
    ("/System", Tree, MACOS),
    ("/Library", Tree, MACOS),
    ("/private", Tree, MACOS),
    ("/Applications", Tree, INSTALLED),
];

/// Below a drive.
const WINDOWS_ROOTS: [(&str, Extent, &str); 9] = [
    ("", Whole, "This is a whole drive: every file of every user on it."),
    ("windows", Tree, WINDOWS),
    ("program files", Tree, INSTALLED),
    ("program files (x86)", Tree, INSTALLED),
    ("programdata", Tree, INSTALLED),
    ("system volume information", Tree, WINDOWS),
    ("users", Whole, "These are the homes of all users of this machine."),
    ("documents and settings", Whole, "These are the homes of all users of this machine."),
    (r"users\administrator", Tree, "This is the administrator's home, with keys and history."),
];

/// Names that mean the same wherever they stand.
const KEEPERS_OF_KEYS: [&str; 12] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".vault-token",
    ".mozilla",
];

pub(super) fn warning(path: &HostPath) -> Option<&'static str> {
    let key = path.key();
    let found = match path.style() {
        PathStyle::Linux => sentence(&LINUX_ROOTS, &key, '/'),
        PathStyle::Windows if key.starts_with(r"\\") => {
            let is_administrative = path.names().nth(1).is_some_and(|share| share.ends_with('$'));
            is_administrative.then_some("This share is for administrators: it is a whole drive of that machine.")
        }
        PathStyle::Windows => sentence(&WINDOWS_ROOTS, key.get(3..).unwrap_or_default(), '\\'),
    };
    let keeps_keys = || path.names().any(|name| KEEPERS_OF_KEYS.iter().any(|known| name.eq_ignore_ascii_case(known)));
    found.or_else(|| keeps_keys().then_some(KEYS))
}

fn sentence(roots: &[(&str, Extent, &'static str)], path: &str, separator: char) -> Option<&'static str> {
    let is_meant = |(root, extent, _): &&(&str, Extent, &'static str)| match path.strip_prefix(root) {
        Some("") => true,
        Some(rest) => *extent == Tree && rest.starts_with(separator),
        None => false,
    };
    roots.iter().find(is_meant).map(|(_, _, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use super::super::normalise;

    fn warns(text: &str) -> bool {
        normalise(text, "/workspace", Some("/home/u")).expect("a path").warning().is_some()
    }

    #[test]
    fn sensitive_places_warn() {
        for text in [
            "/",
            "/etc",
            "/etc/",
            "/etc/nginx",
            "/home/../etc/shadow",
            "/root",
            "/root/.bashrc",
            "/proc",
            "/proc/1",
            "/sys",
            "/dev/sda",
            "/var/log",
            "/var",
            "/boot",
            "/run/docker.sock",
            "/usr",
            "/usr/local/bin",
            "/bin",
            "/home",
            "~/.ssh",
            "/home/u/.ssh/id_ed25519",
            "/srv/backup/.aws/credentials",
            r"C:\",
            r"d:\",
            r"C:\Windows",
            r"c:\windows\System32\config\SAM",
            r"C:\Program Files\SomeApp",
            r"C:\Users",
            r"C:\Users\Administrator",
            r"C:\Users\me\.ssh",
            r"\\server\C$\x",
            "/System",
            "/Library/x",
            "/private",
        ] {
            assert!(warns(text), "{text}");
        }
        for text in [
            "/home/u",
            "/home/u/etc",
            "/etcetera",
            "/rooted",
            "/var/log/app",
            "/var/www/html",
            "/opt/app/config",
            "/srv",
            "/tmp/app",
            "/workspace/.sshx",
            r"C:\Users\Documents",
            r"C:\WindowsOld",
            r"D:\Projects",
            r"\\server\share",
        ] {
            assert!(!warns(text), "{text}");
        }
    }
}
