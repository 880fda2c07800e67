//! The root file system: the plan's operations, applied in order inside the new mount namespace.
//!
//! The new root is attached over a host directory that nobody looks at any more, filled, and pivoted into; the
//! host's tree then leaves the namespace as a whole. Sources were opened before, because afterwards there is
//! nothing left to open.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::mounts::{self, Attributes};
use crate::plan::{FileKind, MountAccess, Operation};
use crate::report::{Failure, Step};

/// Covered by the new root while it is being built. Every system that can start a box has it.
const STAGE: &CStr = c"/usr";
const LOWER: &CStr = c"/usr/lower";
const UPPER: &CStr = c"/usr/upper";
const WORK: &CStr = c"/usr/work";

/// Makes changes to mounts stay in this namespace, and the host's later mounts stay out of it.
pub(crate) fn detach_from_host() -> std::result::Result<(), Failure> {
    rustix::mount::mount_change(c"/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .map_err(|errno| Failure::new(Step::DetachMounts, "", errno))
}

/// Applies all operations and returns the new root. `sources` holds one tree per operation that has a source.
pub(crate) fn build(operations: &[Operation], sources: Vec<OwnedFd>) -> std::result::Result<OwnedFd, Failure> {
    let mut sources = sources.into_iter();
    let mut root: Option<OwnedFd> = None;
    for operation in operations {
        let source = if has_source(operation) { sources.next() } else { None };
        let result = match (&root, operation) {
            (None, _) => begin(operation, source).map(|made| root = Some(made)),
            (Some(root), _) => apply(root, operation, source),
        };
        result.map_err(|errno| Failure::new(Step::BuildRoot, subject(operation), errno))?;
    }
    root.ok_or_else(|| Failure::plain(Step::BuildRoot, "/ (the plan has no root)"))
}

/// Makes the new root the only one.
pub(crate) fn enter(root: &OwnedFd) -> std::result::Result<(), Failure> {
    let enter = || -> Result<()> {
        rustix::process::fchdir(root)?;
        rustix::process::pivot_root(c".", c".")?;
        // The old root now lies on top of the new one; detaching it leaves the new one alone.
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    };
    enter().map_err(|errno| Failure::new(Step::EnterRoot, "", errno))
}

pub(crate) fn has_source(operation: &Operation) -> bool {
    matches!(operation, Operation::OverlayRoot { .. } | Operation::Bind { .. } | Operation::Device { .. })
}

fn begin(operation: &Operation, source: Option<OwnedFd>) -> Result<OwnedFd> {
    let stage = open_stage()?;
    match operation {
        Operation::TmpfsRoot { size, inodes } => {
            let root = mounts::tmpfs(*size, *inodes, 0o755)?;
            mounts::attach(root.as_fd(), stage.as_fd())?;
            Ok(root)
        }
        Operation::OverlayRoot { size, inodes, .. } => {
            let image = source.ok_or(Errno::BADF)?;
            let changes = mounts::tmpfs(*size, *inodes, 0o755)?;
            mounts::attach(changes.as_fd(), stage.as_fd())?;
            for directory in [c"/lower", c"/upper", c"/work", c"/root"] {
                mounts::make_directory(changes.as_fd(), directory, 0o755)?;
            }
            mounts::attach(image.as_fd(), mounts::open_place(changes.as_fd(), c"/lower")?.as_fd())?;
            let root = mounts::overlay(LOWER, UPPER, WORK)?;
            mounts::attach(root.as_fd(), mounts::open_place(changes.as_fd(), c"/root")?.as_fd())?;
            Ok(root)
        }
        _ => Err(Errno::INVAL),
    }
}

fn open_stage() -> Result<OwnedFd> {
    rustix::fs::open(STAGE, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn apply(root: &OwnedFd, operation: &Operation, source: Option<OwnedFd>) -> Result<()> {
    let root = root.as_fd();
    match operation {
        Operation::TmpfsRoot { .. } | Operation::OverlayRoot { .. } => Err(Errno::INVAL),
        Operation::Directory { at, mode } => mounts::make_directory(root, at, *mode).map(drop),
        Operation::Symlink { at, target } => {
            let (parent, name) = mounts::make_parent(root, at)?;
            rustix::fs::symlinkat(target, parent, name)
        }
        Operation::File { at, content, mode } => {
            let (parent, name) = mounts::make_parent(root, at)?;
            // An image may have something else under this name, a link included: it goes, unread.
            match rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(parent.as_fd(), name, flags, Mode::from_raw_mode(*mode))?;
            write_all(&file, content)
        }
        Operation::Tmpfs { at, size, inodes, mode } => {
            let place = mounts::make_directory(root, at, 0o755)?;
            mounts::attach(mounts::tmpfs(*size, *inodes, *mode)?.as_fd(), place.as_fd())
        }
        Operation::Bind { at, kind, access, .. } => {
            let tree = source.ok_or(Errno::BADF)?;
            let place = match kind {
                FileKind::Directory => mounts::make_directory(root, at, 0o755)?,
                FileKind::File => make_file(root, at)?,
            };
            let attributes = match access {
                MountAccess::ReadOnly => Attributes::ReadOnlyFiles,
                MountAccess::ReadWrite => Attributes::WritableFiles,
            };
            mounts::restrict(tree.as_fd(), attributes, None)?;
            mounts::attach(tree.as_fd(), place.as_fd())
        }
        Operation::Device { at, .. } => {
            let tree = source.ok_or(Errno::BADF)?;
            let place = make_file(root, at)?;
            mounts::restrict(tree.as_fd(), Attributes::DeviceNode, None)?;
            mounts::attach(tree.as_fd(), place.as_fd())
        }
        Operation::Pts { at } => {
            let place = mounts::make_directory(root, at, 0o755)?;
            mounts::attach(mounts::pts()?.as_fd(), place.as_fd())
        }
        Operation::Proc { at } => {
            let place = mounts::make_directory(root, at, 0o555)?;
            mounts::attach(mounts::proc()?.as_fd(), place.as_fd())
        }
        Operation::Mask { at, kind } => mask(root, at, *kind),
        Operation::SealRoot => mounts::restrict(root, Attributes::ReadOnlyRoot, None),
    }
}

/// Hides a file under /dev/null, or a directory under an empty one.
fn mask(root: std::os::fd::BorrowedFd<'_>, at: &CStr, kind: FileKind) -> Result<()> {
    let place = match mounts::open_place(root, at) {
        Ok(place) => place,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    let cover = match kind {
        FileKind::File => mounts::clone_place(mounts::open_place(root, c"/dev/null")?.as_fd())?,
        FileKind::Directory => {
            let empty = mounts::tmpfs(4096, 1, 0o555)?;
            mounts::restrict(empty.as_fd(), Attributes::ReadOnlyFiles, None)?;
            empty
        }
    };
    mounts::attach(cover.as_fd(), place.as_fd())
}

/// An empty file to mount on.
fn make_file(root: std::os::fd::BorrowedFd<'_>, at: &CStr) -> Result<OwnedFd> {
    match mounts::open_place(root, at) {
        Ok(place) if mounts::is_directory(place.as_fd())? => return Err(Errno::ISDIR),
        Ok(place) => return Ok(place),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let (parent, name) = mounts::make_parent(root, at)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent.as_fd(), name, flags, Mode::from_raw_mode(0o644))?;
    mounts::open_place(root, at)
}

fn write_all(file: &OwnedFd, mut content: &[u8]) -> Result<()> {
    while !content.is_empty() {
        let written = rustix::io::write(file, content)?;
        content = &content[written..];
    }
    Ok(())
}

fn subject(operation: &Operation) -> String {
    match operation {
        Operation::TmpfsRoot { .. } | Operation::OverlayRoot { .. } | Operation::SealRoot => "/".to_owned(),
        Operation::Directory { at, .. }
        | Operation::Symlink { at, .. }
        | Operation::File { at, .. }
        | Operation::Tmpfs { at, .. }
        | Operation::Bind { at, .. }
        | Operation::Device { at, .. }
        | Operation::Pts { at }
        | Operation::Proc { at }
        | Operation::Mask { at, .. } => at.to_string_lossy().into_owned(),
    }
}
