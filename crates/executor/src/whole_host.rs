//! What a box sees where paths are not controlled: the host's files, as a user without privileges sees them.
//!
//! Every directory of the host's root is shown, but those that a box has of its own. Covered stay the places where
//! programs wait for whoever connects, and where people keep keys and passwords: file permissions alone do not tell those
//! from other files of the same user.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jail::plan::MountAccess;
use policy::Rights;

use crate::allowed::{self, Allowed};
use crate::error::Error;
use crate::kernel_file;
use crate::real::find_others_place;
use crate::sources::Covered;

/// Windows into the machine, the box's own places, and the system, which every box has read-only.
const OWN: [&str; 14] = [
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "workspace",
    "lost+found",
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
];

/// Below the home of everybody.
const SECRETS: [&str; 33] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".docker",
    ".kube",
    ".minikube",
    ".oci",
    ".terraform.d",
    ".vault-token",
    ".netrc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".password-store",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".m2/settings.xml",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/doctl",
    ".config/containers/auth.json",
    ".config/google-chrome",
    ".config/chromium",
    ".mozilla",
    ".local/share/keyrings",
    ".local/share/containers",
];

/// Keys and sockets of the system.
const SYSTEM_SECRETS: [&str; 10] = [
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/kubernetes",
    "/etc/letsencrypt",
    "/var/lib/docker",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/libvirt",
    "/var/spool/cron",
];

/// Directories of many people's files: a socket in one of these is covered alone.
const BROAD: [&str; 9] = ["/", "/home", "/root", "/etc", "/var", "/var/lib", "/opt", "/srv", "/mnt"];

/// Everything in the host's root that a box does not have of its own.
pub(crate) fn open() -> Result<Vec<Allowed>, Error> {
    let fail = |source| Error::OpenDirectory { path: "/".into(), source };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir("/").map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if !OWN.iter().any(|own| name == *own) {
            paths.push(Path::new("/").join(name));
        }
    }
    paths.sort();
    // A link leads to what is shown anyway, or is not there.
    let paths = paths.iter().filter(|path| !path.is_symlink());
    let opened = paths.map(|path| allowed::open(path, path, Rights::Boxes));
    opened.filter_map(Result::transpose).collect()
}

/// The same where nobody has allowed anything. A box of an ordinary user is that user to the host, and would own what they
/// own: so it only sees.
pub(crate) fn open_to_see() -> Result<Vec<Allowed>, Error> {
    let access = if rustix::process::geteuid().is_root() { MountAccess::ReadWrite } else { MountAccess::ReadOnly };
    Ok(open()?.into_iter().map(|one| Allowed { access, ..one }).collect())
}

/// What stays covered of that.
pub(crate) fn covered() -> Vec<Covered> {
    let mut covered: BTreeSet<PathBuf> = SYSTEM_SECRETS.iter().map(PathBuf::from).collect();
    for home in homes() {
        covered.extend(SECRETS.iter().map(|secret| home.join(secret)));
    }
    covered.extend(kernel_file::read("/proc/net/unix").iter().flat_map(|table| sockets(table)));
    // Only by their real names can they be covered: a link is not followed there. A socket that was made by way of an open
    // directory (`/proc/self/fd/7/x`) has none: who listens there is kept from boxes by their filter alone.
    let found = covered.iter().filter_map(|path| find_others_place(path));
    found.map(|place| Covered { path: place.path, kind: place.kind.mounted_as() }).collect()
}

/// Where people keep keys or passwords in, at or above this path, if that is there.
pub fn keys_near(path: &Path) -> Option<PathBuf> {
    let of_people = homes().into_iter().flat_map(|home| SECRETS.map(|secret| home.join(secret)));
    let mut known = SYSTEM_SECRETS.iter().map(PathBuf::from).chain(of_people);
    known.find(|keys| (keys.starts_with(path) || path.starts_with(keys)) && keys.symlink_metadata().is_ok())
}

/// The homes of all accounts that have one.
fn homes() -> BTreeSet<PathBuf> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
    let beside = std::fs::read_dir("/home").into_iter().flatten().flatten().map(|entry| entry.path());
    let own = std::env::var_os("HOME").map(PathBuf::from);
    named.chain(beside).chain(own).chain([PathBuf::from("/root")]).filter(|home| home.is_absolute()).collect()
}

/// Where somebody listens, by the kernel's own list: the directory of a socket, so that one that comes later is covered
/// too, unless people have their files there.
fn sockets(table: &str) -> BTreeSet<PathBuf> {
    let paths = table.lines().skip(1).filter_map(|line| line.split_once(" /"));
    let paths = paths.map(|(_, rest)| PathBuf::from(format!("/{rest}")));
    let is_theirs =
        |directory: &Path| !directory.starts_with("/home") && !BROAD.iter().any(|broad| directory == Path::new(broad));
    let covered = paths.map(|path| match path.parent() {
        Some(directory) if is_theirs(directory) => directory.to_owned(),
        _ => path,
    });
    covered.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_covered_with_their_directory_where_it_is_theirs() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 17 /run/a/b.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 18\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 19 @abstract/x\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /home/u/.x.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /srv/y.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /home/u/with space/z.sock\n";
        let expected = ["/home/u/.x.sock", "/home/u/with space/z.sock", "/run/a", "/srv/y.sock"];
        assert_eq!(sockets(table).into_iter().collect::<Vec<_>>(), expected.map(PathBuf::from));
    }

    #[test]
    fn the_box_keeps_its_own() {
        let shown = open().unwrap();
        for own in OWN {
            assert!(!shown.iter().any(|one| one.at == Path::new("/").join(own)), "{own}");
        }
        assert!(shown.iter().any(|one| one.at == Path::new("/etc")));
    }
}
