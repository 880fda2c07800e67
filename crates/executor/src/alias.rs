//! Other names of a directory: where the same file system, or a part of it, is mounted a second time.
//!
//! Links are found by following them; a bind mount leaves nothing to follow, and its kernel's own name is the one by which it
//! was reached. So both sides are named by what lies beneath all mounts: the file system, and the path inside of it. A
//! file system that shows another one's files as its own (an overlay, a network share of this machine) is not seen through.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Debug)]
struct Mount {
    id: u64,
    file_system: Vec<u8>,
    /// What of the file system is mounted.
    root: PathBuf,
    at: PathBuf,
}

/// The other names of these directories, or of parts of them. Nothing where the kernel does not say.
pub fn aliases(paths: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(table) = std::fs::read(TABLE) else { return Vec::new() };
    let mounts: Vec<Mount> = table.split(|byte| *byte == b'\n').filter_map(read).collect();
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

/// The other names of a path that lies on the mount of that number.
fn others(path: &Path, mount: u64, mounts: &[Mount]) -> Vec<PathBuf> {
    let Some(own) = mounts.iter().find(|one| one.id == mount) else { return Vec::new() };
    let Ok(below) = path.strip_prefix(&own.at) else { return Vec::new() };
    let inner = own.root.join(below);
    let same = mounts.iter().filter(|one| one.file_system == own.file_system);
    let named = same.filter_map(|one| match inner.strip_prefix(&one.root) {
        Ok(below) => Some(one.at.join(below)),
        // A part of it.
        Err(_) => one.root.starts_with(&inner).then(|| one.at.clone()),
    });
    named.filter(|name| !name.starts_with(path)).collect()
}

/// `36 35 98:0 /root /at options …`
fn read(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let file_system = words.nth(1)?.to_vec();
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(words.next()?))));
    Some(Mount { id, file_system, root: path()?, at: path()? })
}

/// Blanks and the like stand as `\040`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, after)) = rest.split_first() {
        let digits =
            after.get(..3).filter(|digits| *byte == b'\\' && digits.iter().all(|digit| matches!(digit, b'0'..=b'7')));
        match digits {
            Some(digits) => {
                plain.push(digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                plain.push(*byte);
                rest = after;
            }
        }
    }
    plain
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
        let mounts: Vec<Mount> = table.as_bytes().split(|byte| *byte == b'\n').filter_map(read).collect();
        assert_eq!(mounts.len(), 7);
        let mut found = others(Path::new("/var/data"), 21, &mounts);
        found.sort();
        assert_eq!(found, ["/mnt/a part", "/mnt/above/data", "/mnt/whole"].map(PathBuf::from));
        // Reached by the second name, the first is another.
        let mut found = others(Path::new("/mnt/whole"), 30, &mounts);
        found.sort();
        let expected = ["/mnt/a part", "/mnt/above/data", "/var/data", "/var/data/inside"];
        assert_eq!(found, expected.map(PathBuf::from));
        assert!(others(Path::new("/var/data"), 99, &mounts).is_empty());
    }

    #[test]
    fn the_kernels_own_table_is_read() {
        assert!(!aliases(&[PathBuf::from("/")]).contains(&PathBuf::from("/")));
        let table = std::fs::read(TABLE).unwrap();
        assert!(table.split(|byte| *byte == b'\n').filter_map(read).any(|mount| mount.at == Path::new("/")));
    }
}
