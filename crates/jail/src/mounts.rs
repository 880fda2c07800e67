//! Mounts as descriptors: made detached, given their attributes, then attached to a place held open.
//!
//! Nothing here takes a path that a box or a tenant could swap between check and use: a source is cloned first
//! and identified afterwards, a target is opened without following any link.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::plan::FileIdentity;
use crate::sys::{self, Reach};

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const NO_SET_ID: u64 = libc::MOUNT_ATTR_NOSUID;
const NO_DEVICES: u64 = libc::MOUNT_ATTR_NODEV;
const NO_EXECUTION: u64 = libc::MOUNT_ATTR_NOEXEC;

/// Attributes of the mounts that a box gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attributes {
    ReadOnlyFiles,
    WritableFiles,
    DeviceNode,
    ReadOnlyRoot,
}

impl Attributes {
    fn bits(self) -> u64 {
        match self {
            Attributes::ReadOnlyFiles => READ_ONLY | NO_SET_ID | NO_DEVICES,
            Attributes::WritableFiles => NO_SET_ID | NO_DEVICES,
            Attributes::DeviceNode => NO_SET_ID | NO_EXECUTION,
            Attributes::ReadOnlyRoot => READ_ONLY,
        }
    }
}

/// A detached copy of the mounts at `path`, with everything mounted below it: leaving submounts out would
/// uncover what they hide, and the kernel forbids it in a user namespace.
pub(crate) fn clone_tree(path: &CStr) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(rustix::fs::CWD, path, flags)
}

/// A detached copy of one mount at a place that is already held.
pub(crate) fn clone_place(place: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(place, c"", flags)
}

/// Whether the clone is of the file that was meant.
pub(crate) fn is_file(tree: BorrowedFd<'_>, expected: FileIdentity) -> Result<bool> {
    let status = rustix::fs::fstat(tree)?;
    Ok(FileIdentity { device: status.st_dev, inode: status.st_ino } == expected)
}

/// Sets attributes on a detached tree and everything below it.
pub(crate) fn restrict(tree: BorrowedFd<'_>, attributes: Attributes, owners: Option<BorrowedFd<'_>>) -> Result<()> {
    let reach = match attributes {
        Attributes::ReadOnlyRoot => Reach::One,
        _ => Reach::AllBelow,
    };
    sys::set_mount_attributes(tree, reach, attributes.bits(), owners)
}

/// Attaches a detached mount to a place.
pub(crate) fn attach(tree: BorrowedFd<'_>, place: BorrowedFd<'_>) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, c"", place, c"", flags)
}

/// An empty file system in memory, bounded in bytes and files.
pub(crate) fn tmpfs(size: u64, inodes: u64, mode: u32) -> Result<OwnedFd> {
    let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"size", size.to_string())?;
    fsconfig_set_string(context.as_fd(), c"nr_inodes", inodes.to_string())?;
    fsconfig_set_string(context.as_fd(), c"mode", format!("{mode:o}"))?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// The process file system of the namespace we are PID 1 of. Read-only as a mount: nothing under it can be
/// written, whatever new knob a kernel adds.
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

/// A terminal file system of the box's own.
pub(crate) fn pts() -> Result<OwnedFd> {
    let context = fsopen(c"devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"ptmxmode", c"0666")?;
    fsconfig_set_string(context.as_fd(), c"mode", c"0620")?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
}

/// An overlay of three directories given by paths that only the jail has made.
pub(crate) fn overlay(lower: &CStr, upper: &CStr, work: &CStr) -> Result<OwnedFd> {
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(context.as_fd(), c"lowerdir", lower)?;
    fsconfig_set_string(context.as_fd(), c"upperdir", upper)?;
    fsconfig_set_string(context.as_fd(), c"workdir", work)?;
    fsconfig_set_flag(context.as_fd(), c"userxattr")?;
    finish(&context, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

fn finish(context: &OwnedFd, attributes: MountAttrFlags) -> Result<OwnedFd> {
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Opens a place beneath `root` without following any link, however planted.
pub(crate) fn open_place(root: BorrowedFd<'_>, at: &CStr) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let relative = relative(at)?;
    if relative.is_empty() {
        return rustix::io::fcntl_dupfd_cloexec(root, 3);
    }
    rustix::fs::openat2(root, relative, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Opens a directory beneath `root`, making it and its parents where they are missing.
pub(crate) fn make_directory(root: BorrowedFd<'_>, at: &CStr, mode: u32) -> Result<OwnedFd> {
    match open_place(root, at) {
        Err(Errno::NOENT) => {}
        Ok(place) if is_directory(place.as_fd())? => return Ok(place),
        Ok(_) => return Err(Errno::NOTDIR),
        Err(error) => return Err(error),
    }
    let (parent, name) = make_parent(root, at)?;
    rustix::fs::mkdirat(parent.as_fd(), name, Mode::from_raw_mode(mode))?;
    open_place(root, at)
}

/// The parent of a path, made where it is missing, and the path's last name.
pub(crate) fn make_parent<'a>(root: BorrowedFd<'_>, at: &'a CStr) -> Result<(OwnedFd, &'a [u8])> {
    let relative = relative(at)?;
    let (parent, name) = match relative.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&relative[..slash], &relative[slash + 1..]),
        None => (&relative[..0], relative),
    };
    let parent = std::ffi::CString::new([b"/", parent].concat()).map_err(|_| Errno::INVAL)?;
    Ok((make_directory(root, &parent, 0o755)?, name))
}

pub(crate) fn is_directory(place: BorrowedFd<'_>) -> Result<bool> {
    let mode = rustix::fs::fstat(place)?.st_mode;
    Ok(rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Directory)
}

fn relative(at: &CStr) -> Result<&[u8]> {
    at.to_bytes().strip_prefix(b"/").ok_or(Errno::INVAL)
}
