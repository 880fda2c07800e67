//! Mounts by file descriptor: created detached, restricted, then attached to an open directory.
//!
//! No check-then-use of paths: a source is cloned first and identified afterwards, a target is
//! opened without following symlinks.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Result;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::protocol::plan::FileIdentity;
use crate::sys::{self, MountScope};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SET_ID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
/// Limit per box. All boxes share one pool of the machine (kernel.pty.max, by default 4096).
const MAX_TERMINALS: &str = "64";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes {
    ReadOnlyFiles,
    WritableFiles,
    ReadOnlyRoot,
}

impl Attributes {
    fn bits(self) -> u64 {
        match self {
            Attributes::ReadOnlyFiles => READ_ONLY | NO_SET_ID | NO_DEVICES,
            Attributes::WritableFiles => NO_SET_ID | NO_DEVICES,
            Attributes::ReadOnlyRoot => READ_ONLY,
        }
    }
}

/// A detached recursive copy of the mounts at `path`. Without its submounts it would expose what
/// they cover, and in a user namespace the kernel refuses such a copy.
pub(crate) fn clone_tree(path: &CStr) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(rustix::fs::CWD, path, flags)
}

/// A detached copy of the mount at one name of an open directory, without submounts.
pub(crate) fn clone_at(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    open_tree(directory, name, flags)
}

/// Returns whether the cloned tree is the expected file.
pub(crate) fn is_file(tree: BorrowedFd<'_>, expected: FileIdentity) -> Result<bool> {
    let status = rustix::fs::fstat(tree)?;
    Ok(FileIdentity { device: status.st_dev, inode: status.st_ino } == expected)
}

/// Sets attributes on a mount and, except for the root, on all mounts below it.
pub(crate) fn restrict(tree: BorrowedFd<'_>, attributes: Attributes) -> Result<()> {
    let scope = match attributes {
        Attributes::ReadOnlyRoot => MountScope::One,
        _ => MountScope::Recursive,
    };
    sys::set_mount_attributes(tree, scope, attributes.bits(), None)
}

/// Attaches a detached mount to a name in a directory or, if the name is empty, to the directory
/// itself.
pub(crate) fn attach(tree: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if name.is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(tree, c"", directory, name, flags)
}

/// An empty tmpfs with limits on bytes and inodes.
pub(crate) fn tmpfs(size: u64, inodes: u64, mode: u32) -> Result<OwnedFd> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"size", size.to_string())?;
    fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes.to_string())?;
    fsconfig_set_string(context.as_fd(), c"mode", format!("{mode:o}"))?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// procfs of the caller's PID namespace, in which it is PID 1. Read-only, so that no setting under
/// /proc/sys can be written, also not one that a newer kernel adds.
pub(crate) fn proc() -> Result<OwnedFd> {
    let context = fsopen(c"proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    finish(
        &context,
        MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY,
    )
}

/// A devpts instance of the box's own, with at most `MAX_TERMINALS` terminals.
pub(crate) fn pts() -> Result<OwnedFd> {
    let context = fsopen(c"devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"ptmxmode", c"0666")?;
    fsconfig_set_string(context.as_fd(), c"mode", c"0620")?;
    fsconfig_set_string(context.as_fd(), c"max", MAX_TERMINALS)?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

/// An overlay. Only the jail has created the paths, so they contain none of overlayfs's separators.
pub(crate) fn overlay(lower: &CStr, upper: &CStr, work: &CStr) -> Result<OwnedFd> {
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"lowerdir", lower)?;
    fsconfig_set_string(context.as_fd(), c"upperdir", upper)?;
    fsconfig_set_string(context.as_fd(), c"workdir", work)?;
    fsconfig_set_flag(context.as_fd(), c"userxattr")?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// A read-only overlay of directories separated by `:`, the topmost first. The paths are the
/// plan's.
pub(crate) fn layers(lower: &str) -> Result<OwnedFd> {
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"lowerdir", lower)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    finish(&context, attributes | MountAttrFlags::MOUNT_ATTR_RDONLY)
}

/// Checks that the kernel can clone a mount out of a detached file system (Linux 6.15).
pub(crate) fn can_clone_detached() -> Result<()> {
    let detached = tmpfs(4096, 2, 0o755)?;
    rustix::fs::mkdirat(&detached, c"directory", rustix::fs::Mode::from_raw_mode(0o755))?;
    clone_at(detached.as_fd(), b"directory").map(drop)
}

fn finish(context: &OwnedFd, attributes: MountAttrFlags) -> Result<OwnedFd> {
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
