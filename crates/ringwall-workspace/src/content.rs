//! Digests of named files, for approvals that cover the files a command reads.
//!
//! Each file is looked up beneath a directory handle without following symlinks, and only regular
//! files are opened, so that a FIFO or device cannot block. The box's user must be allowed to read
//! the file: the server may run as root and must not reveal more than the box could read itself.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::fs::beneath;
use crate::fs::read::file_size;
use crate::workspaces::Owner;

const BUFFER_SIZE: usize = 64 * 1024;
const READ_BIT: u32 = 4;
const SEARCH_BIT: u32 = 1;

/// A file's content at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub sha256: [u8; 32],
    pub size: u64,
    /// The first bytes, at most `head_bytes`.
    pub head: Vec<u8>,
    pub stamp: Stamp,
}

/// Changes when the file is replaced, written or renamed. It contains the change time (ctime),
/// which users cannot set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    pub(crate) inode: u64,
    size: u64,
    modified: (i64, u64),
    changed: (i64, u64),
}

/// Why a file has no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentError {
    Missing,
    Directory,
    /// The file, or a directory on the path to it, is a symlink.
    Link,
    /// A FIFO, a socket or a device.
    Special,
    Unreadable,
    /// Larger than `max_bytes`.
    TooLarge,
    /// Modified while it was read.
    Changing,
}

/// Reads the regular file at `path` beneath `root` if its mode bits allow `reader` to. At most
/// `max_bytes` are read.
pub fn read_content(
    root: &Path,
    path: &Path,
    reader: Owner,
    max_bytes: u64,
    head_bytes: usize,
) -> Result<Content, ContentError> {
    let (located, status) = locate(root, path, reader)?;
    if !is_allowed(&status, reader, READ_BIT) {
        return Err(ContentError::Unreadable);
    }
    if file_size(&status) > max_bytes {
        return Err(ContentError::TooLarge);
    }
    let file = beneath::open_readable(&located).map_err(|_| ContentError::Unreadable)?;
    let before = stamp(&file)?;
    // The file may have grown since it was located.
    if before.size > max_bytes {
        return Err(ContentError::TooLarge);
    }
    digest(&file, &file, before, head_bytes)
}

/// Hashes `bytes`, which are read from `file`, and checks that the file has not changed since
/// `before`.
fn digest(file: &File, mut bytes: impl Read, before: Stamp, head_bytes: usize) -> Result<Content, ContentError> {
    let (mut hasher, mut head, mut size) = (Sha256::new(), Vec::new(), 0_u64);
    let mut buffer = vec![0; BUFFER_SIZE];
    loop {
        let count = match bytes.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(ContentError::Unreadable),
        };
        let part = &buffer[..count];
        size += count as u64;
        // Otherwise a file that grows as fast as it is read would be read forever.
        if size > before.size {
            return Err(ContentError::Changing);
        }
        hasher.update(part);
        head.extend_from_slice(&part[..count.min(head_bytes - head.len())]);
    }
    if size != before.size || stamp(file)? != before {
        return Err(ContentError::Changing);
    }
    Ok(Content { sha256: hasher.finalize().into(), size, head, stamp: before })
}

/// Returns the stamp of the file that is at `path` now.
pub fn read_stamp(root: &Path, path: &Path, reader: Owner) -> Result<Stamp, ContentError> {
    let (_, status) = locate(root, path, reader)?;
    if !is_allowed(&status, reader, READ_BIT) {
        return Err(ContentError::Unreadable);
    }
    Ok(Stamp::of(&status))
}

fn stamp(file: &File) -> Result<Stamp, ContentError> {
    rustix::fs::fstat(file).map(|status| Stamp::of(&status)).map_err(|_| ContentError::Unreadable)
}

impl Stamp {
    pub(crate) fn of(status: &Stat) -> Self {
        Self {
            device: status.st_dev,
            inode: status.st_ino,
            size: file_size(status),
            modified: (status.st_mtime, status.st_mtime_nsec),
            changed: (status.st_ctime, status.st_ctime_nsec),
        }
    }
}

/// Finds a regular file beneath `root`. The mode bits of each directory below `root` must allow
/// `reader` to search it.
fn locate(root: &Path, path: &Path, reader: Owner) -> Result<(OwnedFd, Stat), ContentError> {
    let no_content = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR => ContentError::Missing,
        Errno::LOOP => ContentError::Link,
        _ => ContentError::Unreadable,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open(root, flags, Mode::empty()).map_err(no_content)?;
    let mut names = path.components().peekable();
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(ContentError::Unreadable) };
        let (located, status) = beneath::locate(&directory, name).map_err(no_content)?;
        match (FileType::from_raw_mode(status.st_mode), names.peek()) {
            (FileType::Directory, Some(_)) if !is_allowed(&status, reader, SEARCH_BIT) => {
                return Err(ContentError::Unreadable);
            }
            (FileType::Directory, Some(_)) => directory = located,
            (FileType::Directory, None) => return Err(ContentError::Directory),
            (FileType::Symlink, _) => return Err(ContentError::Link),
            (FileType::RegularFile, None) => return Ok((located, status)),
            (_, Some(_)) => return Err(ContentError::Missing),
            (_, None) => return Err(ContentError::Special),
        }
    }
    Err(ContentError::Directory)
}

/// Checks the mode bits as for a process with this uid and gid and without capabilities.
fn is_allowed(status: &Stat, reader: Owner, right: u32) -> bool {
    let class = if status.st_uid == reader.uid {
        6
    } else if status.st_gid == reader.gid {
        3
    } else {
        0
    };
    status.st_mode >> class & right == right
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn own() -> Owner {
        Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    fn read(root: &Path, path: &str, max_bytes: u64) -> Result<Content, ContentError> {
        read_content(root, Path::new(path), own(), max_bytes, 4)
    }

    #[test]
    fn regular_file_has_digest_and_head() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        std::fs::write(root.path().join("d/f"), "hello").unwrap();
        let content = read(root.path(), "d/f", 5).unwrap();
        assert_eq!((content.size, content.head.as_slice()), (5, &b"hell"[..]));
        assert_eq!(content.sha256, <[u8; 32]>::from(Sha256::digest(b"hello")));
        assert_eq!(read_stamp(root.path(), Path::new("d/f"), own()), Ok(content.stamp));
        assert_eq!(read(root.path(), "d/f", 4), Err(ContentError::TooLarge));
    }

    #[test]
    fn other_file_types_have_no_content_and_do_not_block() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("f"), "x").unwrap();
        std::fs::create_dir(at("d")).unwrap();
        symlink("f", at("link")).unwrap();
        symlink(".", at("up")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RWXU).unwrap();
        std::fs::write(at("closed"), "x").unwrap();
        std::fs::set_permissions(at("closed"), std::fs::Permissions::from_mode(0o000)).unwrap();
        for (path, expected) in [
            ("d", ContentError::Directory),
            ("link", ContentError::Link),
            ("up/f", ContentError::Link),
            ("fifo", ContentError::Special),
            ("closed", ContentError::Unreadable),
            ("none", ContentError::Missing),
            ("none/f", ContentError::Missing),
            ("f/g", ContentError::Missing),
            ("../f", ContentError::Unreadable),
        ] {
            assert_eq!(read(root.path(), path, 100), Err(expected), "{path}");
        }
    }

    #[test]
    fn file_that_reader_may_not_reach_is_unreadable() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("private")).unwrap();
        std::fs::write(root.path().join("private/f"), "x").unwrap();
        std::fs::set_permissions(root.path().join("private"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Owner { uid: own().uid + 4711, gid: own().gid + 4711 };
        let content = read_content(root.path(), Path::new("private/f"), stranger, 100, 0);
        assert_eq!(content, Err(ContentError::Unreadable));
        assert!(read(root.path(), "private/f", 100).is_ok(), "control");
    }

    #[test]
    fn sparse_file_beyond_limit_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        std::fs::File::create(root.path().join("f")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(root.path(), "f", 64 << 20), Err(ContentError::TooLarge));
    }

    /// Reads a file and calls `change` after each read.
    struct ChangingReader<'a, F> {
        file: &'a File,
        change: F,
        bytes_read: u64,
    }

    impl<F: FnMut()> Read for ChangingReader<'_, F> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let count = self.file.read(buffer)?;
            self.bytes_read += count as u64;
            (self.change)();
            Ok(count)
        }
    }

    /// Digests a file while `change` changes it. Returns the result and the number of bytes read.
    fn digest_during(path: &Path, change: impl FnMut()) -> (Result<Content, ContentError>, u64) {
        let file = File::open(path).unwrap();
        let before = stamp(&file).unwrap();
        let mut reader = ChangingReader { file: &file, change, bytes_read: 0 };
        let content = digest(&file, &mut reader, before, 4);
        (content, reader.bytes_read)
    }

    #[test]
    fn growing_file_has_no_content() {
        use std::io::Write;
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let mut writer = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut parts = 10;
        let grow = || {
            if parts > 0 {
                parts -= 1;
                writer.write_all(&[b'x'; BUFFER_SIZE]).unwrap();
            }
        };
        let (content, bytes_read) = digest_during(&path, grow);
        assert_eq!(content, Err(ContentError::Changing));
        assert!(bytes_read <= 3 + BUFFER_SIZE as u64, "{bytes_read} bytes of a growing file were read");
    }

    #[test]
    fn file_modified_during_read_has_no_content() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let (content, _) = digest_during(&path, || file.set_modified(past).unwrap());
        assert_eq!(content, Err(ContentError::Changing), "the change time differs");
        let (content, _) = digest_during(&path, || {});
        assert_eq!(content.unwrap().sha256, <[u8; 32]>::from(Sha256::digest(b"one")), "control: unchanged file");
    }

    #[test]
    fn replaced_or_written_file_has_another_stamp() {
        let root = tempfile::tempdir().unwrap();
        let (file, other) = (root.path().join("f"), root.path().join("g"));
        std::fs::write(&file, "one").unwrap();
        let first = read(root.path(), "f", 100).unwrap().stamp;
        std::fs::write(&other, "two").unwrap();
        std::fs::rename(&other, &file).unwrap();
        let second = read(root.path(), "f", 100).unwrap().stamp;
        assert_ne!(first, second);
        std::fs::write(&file, "three").unwrap();
        assert_ne!(read(root.path(), "f", 100).unwrap().stamp, second);
    }
}
