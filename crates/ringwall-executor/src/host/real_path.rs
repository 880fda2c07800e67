//! Resolves names of the host through all links.
//!
//! The answer is the kernel's name and may be stale when used: the code that opens it checks that
//! it is still the same, through no link. Files are located with O_PATH only, so no FIFO blocks and
//! no device acts.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use ringwall_jail::plan::FileKind;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// The kernel's limit of links in one path.
const MAX_LINKS: usize = 40;

/// An existing file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealPath {
    pub path: PathBuf,
    pub kind: PathKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    Directory,
    File,
    /// A socket, a device, a pipe.
    Other,
}

impl PathKind {
    pub(crate) const fn mounted_as(self) -> FileKind {
        match self {
            PathKind::Directory => FileKind::Directory,
            PathKind::File | PathKind::Other => FileKind::File,
        }
    }
}

/// `None` if the path does not exist or is not accessible.
pub fn find_path(path: &Path) -> Option<RealPath> {
    find(path, ResolveFlags::empty())
}

/// The same for a name from outside: also `None` if it leads elsewhere in each process
/// (`/dev/fd/7`).
pub(crate) fn find_path_without_magic_links(path: &Path) -> Option<RealPath> {
    find(path, ResolveFlags::NO_MAGICLINKS)
}

fn find(path: &Path, resolve: ResolveFlags) -> Option<RealPath> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let handle = rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), resolve).ok()?;
    let status = rustix::fs::fstat(&handle).ok()?;
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => PathKind::Directory,
        FileType::RegularFile => PathKind::File,
        _ => PathKind::Other,
    };
    let path = PathBuf::from(OsStr::from_bytes(&where_is(handle.as_fd()).ok()?));
    Some(RealPath { path, kind })
}

/// The real path of an absolute path that may not exist: the existing part is resolved, and the
/// rest is appended. A dangling link leads to its target.
pub fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Some((found, missing)) = split(&path) else { return path };
        let mut missing = missing.components();
        let Some(next) = missing.next() else { return found };
        let name = found.join(next);
        match std::fs::read_link(&name) {
            // A `..` in the target may follow another link, so the kernel resolves it in the next round.
            Ok(target) => path = found.join(target).join(missing.as_path()),
            Err(_) => {
                path = name.join(missing.as_path());
                let without_dots = plain(&path);
                if without_dots == path {
                    return path;
                }
                // The path without `..` may exist and may be a link.
                path = without_dots;
            }
        }
    }
    plain(&path)
}

/// The longest existing part of a path, resolved, and the rest.
fn split(path: &Path) -> Option<(PathBuf, PathBuf)> {
    path.ancestors().find_map(|part| {
        let found = find_path(part)?;
        Some((found.path, path.strip_prefix(part).ok()?.to_owned()))
    })
}

/// Removes `.` and `..`. A missing part contains no links, so this is safe for it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// The kernel's path of an open file.
pub(crate) fn where_is(handle: BorrowedFd<'_>) -> rustix::io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(rustix::fs::readlink(link, Vec::new())?.into_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn missing_path_is_resolved_through_links() {
        let directory = tempfile::tempdir().unwrap();
        let top = find_path(directory.path()).unwrap().path;
        std::fs::create_dir(top.join("a")).unwrap();
        std::fs::write(top.join("a/file"), "x").unwrap();
        symlink(top.join("a"), top.join("link")).unwrap();
        symlink("a/none", top.join("dangling")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        // `far` leads two directories down, so its parent is `b/c` and not `top`.
        std::fs::create_dir_all(top.join("b/c")).unwrap();
        symlink("b/c", top.join("far")).unwrap();
        symlink("far/../none", top.join("up")).unwrap();
        for (given, real) in [
            ("a", "a"),
            ("link", "a"),
            ("link/file", "a/file"),
            ("link/new/b", "a/new/b"),
            ("link/new/../../b", "b"),
            ("dangling", "a/none"),
            ("dangling/x", "a/none/x"),
            ("none/x", "none/x"),
            ("none/../link/x", "a/x"),
            ("up/x", "b/none/x"),
        ] {
            assert_eq!(resolve(&top.join(given)), top.join(real), "{given}");
        }
        assert_eq!(find_path(&top.join("link/file")).unwrap().kind, PathKind::File);
        assert_eq!(find_path(&top.join("dangling")), None);
        resolve(&top.join("loop/x"));
    }

    #[test]
    fn path_through_proc_self_fd_is_not_resolved() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        symlink("a", directory.path().join("link")).unwrap();
        let held = std::fs::File::open(directory.path()).unwrap();
        for way in ["/proc/self/fd", "/dev/fd"] {
            let name = Path::new(way).join(held.as_raw_fd().to_string());
            for name in [name.join("a"), name] {
                assert!(find_path(&name).is_some(), "the control: {}", name.display());
                assert_eq!(find_path_without_magic_links(&name), None, "{}", name.display());
            }
        }
        let link = directory.path().join("link");
        assert_eq!(find_path_without_magic_links(&link), find_path(&link), "an ordinary link is followed");
    }
}
