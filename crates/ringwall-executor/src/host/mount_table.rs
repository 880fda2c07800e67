//! `/proc/self/mountinfo`: mounts of kernel file systems, and directories that are mounted a second time.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use ringwall_jail::plan::FileKind;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

use crate::host::Covered;

const TABLE: &str = "/proc/self/mountinfo";

/// File systems through which the kernel shows processes, devices and its own state. Mount points of these types are masked
/// in a box at any path: a chroot's `/proc` shows the processes of the host as well as `/proc` does.
const KERNEL_TYPES: &str = "
    proc sysfs cgroup cgroup2 devtmpfs devpts securityfs debugfs tracefs bpf configfs pstore efivarfs fusectl
    mqueue autofs binfmt_misc nsfs rpc_pipefs nfsd selinuxfs smackfs hugetlbfs resctrl functionfs gadgetfs usbfs
    xenfs ipathfs
";

/// One line of the table.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// Major and minor number: equal for two mounts of one file system.
    pub(crate) file_system: Vec<u8>,
    /// The directory of the file system that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) at: PathBuf,
    kind: Vec<u8>,
}

impl Mount {
    fn shows_kernel(&self) -> bool {
        KERNEL_TYPES.split_ascii_whitespace().any(|kind| self.kind == kind.as_bytes())
    }
}

pub(crate) fn read() -> std::io::Result<Vec<Mount>> {
    // The kernel reports a size of 0, for which `fs::read` makes eight reads of growing size.
    let mut table = Vec::with_capacity(16 << 10);
    File::open(TABLE)?.read_to_end(&mut table)?;
    Ok(parse(&table))
}

/// The mounts of kernel file systems whose paths `is_shown` selects, as paths to mask. Read them again for each box that
/// clones directories of the host, because a mount may be newer than the server. An unreadable table is an error, because
/// then the paths to mask are unknown.
pub(crate) fn kernel_mounts(is_shown: impl Fn(&Path) -> bool) -> std::io::Result<Vec<Covered>> {
    Ok(read()?.into_iter().filter(|mount| mount.shows_kernel() && is_shown(&mount.at)).filter_map(cover).collect())
}

/// True if an open file lies on a kernel file system, or if its mount is not known.
pub(crate) fn is_kernel_file(file: BorrowedFd<'_>, mounts: &[Mount]) -> bool {
    let status = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
    let mount = status.ok().and_then(|status| mounts.iter().find(|one| one.id == status.stx_mnt_id));
    mount.is_none_or(Mount::shows_kernel)
}

/// `None` for a mount point that this process cannot reach; a box cannot reach it either.
fn cover(mount: Mount) -> Option<Covered> {
    // Asking for the status of an automount point must not mount it.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let status = rustix::fs::statx(CWD, &mount.at, flags, StatxFlags::TYPE).ok()?;
    let kind = match FileType::from_raw_mode(status.stx_mode.into()) {
        FileType::Directory => FileKind::Directory,
        _ => FileKind::File,
    };
    Some(Covered { path: mount.at, kind })
}

pub(crate) fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /at options [optional fields] - type source options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let file_system = words.nth(1)?.to_vec();
    let mut path = || Some(PathBuf::from(OsString::from_vec(unescape(words.next()?))));
    let (root, at) = (path()?, path()?);
    words.find(|word| *word == b"-")?;
    Some(Mount { id, file_system, root, at, kind: words.next()?.to_vec() })
}

/// The kernel writes blanks, tabs, line feeds and backslashes as `\040` and the like.
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

/// Other paths of these directories or of parts of them: where the same file system, or a part of it, is mounted a second
/// time. A bind mount has nothing to follow, so both sides are compared by file system and path inside of it. A file system
/// that shows another one's files (an overlay, a network share of this machine) is not recognised. Empty if the mount table
/// cannot be read.
pub fn aliases(paths: &[PathBuf]) -> Vec<PathBuf> {
    let Ok(mounts) = read() else { return Vec::new() };
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
    use std::os::fd::AsFd;
    use std::path::Path;

    use super::*;

    #[test]
    fn line_with_optional_fields_gives_type() {
        let table = b"22 27 0:21 / /srv/a\\040chroot/proc rw shared:5 master:1 - proc proc rw\n\
                      23 27 8:1 / /srv rw - ext4 /dev/sda1 rw\n\
                      24 27 0:21 / /odd rw";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        assert_eq!(mounts[0].at, Path::new("/srv/a chroot/proc"));
        assert!(mounts[0].shows_kernel() && !mounts[1].shows_kernel());
    }

    #[test]
    fn own_proc_is_a_kernel_mount() {
        let proc = Covered { path: "/proc".into(), kind: FileKind::Directory };
        assert!(kernel_mounts(|_| true).unwrap().contains(&proc));
        assert_eq!(kernel_mounts(|path| path.starts_with("/nowhere")).unwrap(), []);
        let is_kernel = |path: &str| is_kernel_file(std::fs::File::open(path).unwrap().as_fd(), &read().unwrap());
        assert!(is_kernel("/proc/self/status") && !is_kernel("/usr"));
    }

    #[test]
    fn second_mount_is_alias() {
        let table = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 21 8:1 /var/data /mnt/whole rw - ext4 /dev/sda1 rw\n\
                     31 21 8:1 /var/data/workspaces/u /mnt/a\\040part rw - ext4 /dev/sda1 rw\n\
                     32 21 8:1 /var /mnt/above rw - ext4 /dev/sda1 rw\n\
                     33 21 8:1 /var/database /mnt/beside rw - ext4 /dev/sda1 rw\n\
                     34 21 0:5 / /mnt/another rw - tmpfs tmpfs rw\n\
                     35 21 8:1 /var/data/baselines /var/data/inside rw - ext4 /dev/sda1 rw\n\
                     odd line\n";
        let mounts = parse(table.as_bytes());
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
