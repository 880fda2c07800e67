//! Finds other paths of a directory: where the same file system, or a part of it, is mounted a
//! second time.
//!
//! Links are found by following them. A bind mount has nothing to follow, and the kernel reports
//! the path by which it was reached. So both sides are compared by file system and path inside of
//! it. A file system that shows another one's files (an overlay, a network share of this machine)
//! is not recognised.

use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::host::{mount_table, mount_table::Mount};

/// Other paths of these directories or of parts of them. Empty if the mount table cannot be read.
pub fn aliases(paths: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(mounts) = mount_table::read() else { return Vec::new() };
    let mut found = Vec::new();
    for path in paths {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let Ok(status) = rustix::fs::statx(CWD, path, flags, StatxFlags::MNT_ID) else { continue };
        found.extend(others(path, status.stx_mnt_id, &mounts));
    }
    found.sort();
    found.dedup();
    found
}

/// Other paths of a path on the mount with this id.
fn others(path: &Path, mount: u64, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(own) = mounts.iter().find(|one| one.id == mount) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&own.at) else { return Vec::new() };
    let inner = own.root.join(below);
    let same = mounts.iter().filter(|one| one.file_system == own.file_system);
    let named = same.filter_map(|one| match inner.strip_prefix(&one.root) {
        Ok(below) => Some(one.at.join(below)),
        // A part of the directory.
        Err(_) => one.root.starts_with(&inner).then(|| one.at.clone()),
    });
    named.filter(|name| !name.starts_with(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_mount_is_another_name() {
        let table = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 21 8:1 /var/data /mnt/whole rw - ext4 /dev/sda1 rw\n\
                     31 21 8:1 /var/data/workspaces/u /mnt/a\\040part rw - ext4 /dev/sda1 rw\n\
                     32 21 8:1 /var /mnt/above rw - ext4 /dev/sda1 rw\n\
                     33 21 8:1 /var/database /mnt/beside rw - ext4 /dev/sda1 rw\n\
                     34 21 0:5 / /mnt/another rw - tmpfs tmpfs rw\n\
                     35 21 8:1 /var/data/baselines /var/data/inside rw - ext4 /dev/sda1 rw\n\
                     odd line\n";
        let mounts = mount_table::parse(table.as_bytes());
        assert_eq!(mounts.len(), 7);
        let mut found = others(Path::new("/var/data"), 21, &mounts);
        found.sort();
        assert_eq!(found, ["/mnt/a part", "/mnt/above/data", "/mnt/whole"].map(PathBuf::from));
        // From the second path, the first one is found.
        let mut found = others(Path::new("/mnt/whole"), 30, &mounts);
        found.sort();
        let expected = ["/mnt/a part", "/mnt/above/data", "/var/data", "/var/data/inside"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(others(Path::new("/var/data"), 99, &mounts).is_empty());
    }

    #[test]
    fn root_directory_has_no_alias_at_itself() {
        assert!(!aliases(&[PathBuf::from("/")]).contains(&PathBuf::from("/")));
    }
}
