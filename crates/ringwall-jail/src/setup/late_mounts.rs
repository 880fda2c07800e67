//! Mounts files into a running container, from outside its mount namespace.
//!
//! The container was started with an empty read-only tmpfs as placeholder. No tenant code runs in
//! it yet, but its image is untrusted: the mount point is opened without following symlinks, and
//! what is mounted there must be a read-only tmpfs. It is unmounted first, so that the container's
//! mounts are those of any other container.
//!
//! Call these functions on a thread that ends afterwards: it cannot return to its mount namespace.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags};

use crate::protocol::plan::FileIdentity;
use crate::protocol::report::{Failure, Step};
use crate::setup::{mounts, mounts::Attributes};
use crate::sys;

const TMPFS: u64 = 0x0102_1994;

/// Checks that the placeholder is at `at` in the mount namespace of `process` (a pidfd). Moves the
/// calling thread there.
pub fn check(process: BorrowedFd<'_>, at: &str) -> std::result::Result<(), Failure> {
    let fail = |errno| Failure::new(Step::BuildRoot, at, errno);
    // setns(2) into a mount namespace fails while root and working directory are shared with other
    // threads.
    sys::unshare(UnshareFlags::FS).map_err(fail)?;
    rustix::thread::move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT).map_err(fail)?;
    match is_placeholder(&open(at).map_err(fail)?).map_err(fail)? {
        true => Ok(()),
        false => refuse(at, "the mount is not the empty read-only tmpfs that the container was created with"),
    }
}

/// Checks as [`check`] does, and replaces the placeholder by a detached tree.
pub fn replace(tree: &OwnedFd, process: BorrowedFd<'_>, at: &str) -> std::result::Result<(), Failure> {
    let fail = |errno| Failure::new(Step::BuildRoot, at, errno);
    mounts::restrict(tree.as_fd(), Attributes::WritableFiles).map_err(fail)?;
    check(process, at)?;
    rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(fail)?;
    let mount_point = open(at).map_err(fail)?;
    if is_mounted(&mount_point).map_err(fail)? {
        return refuse(at, "more than one file system is mounted there");
    }
    mounts::attach(tree.as_fd(), mount_point.as_fd(), b"").map_err(fail)?;
    let mounted = open(at).map_err(fail)?;
    let status = rustix::fs::fstat(tree).map_err(fail)?;
    if !mounts::is_file(mounted.as_fd(), FileIdentity { device: status.st_dev, inode: status.st_ino }).map_err(fail)? {
        return refuse(at, "another file system covers the mounted files");
    }
    // Otherwise mounts that the host adds below the tree later would propagate into the container.
    rustix::process::fchdir(&mounted).map_err(fail)?;
    rustix::mount::mount_change(c".", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(fail)
}

fn refuse(at: &str, why: &str) -> std::result::Result<(), Failure> {
    Err(Failure::plain(Step::BuildRoot, format!("{at}: {why}")))
}

fn open(at: &str) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(rustix::fs::CWD, at, flags, Mode::empty(), resolve)
}

/// Returns whether this is the root of a read-only tmpfs.
fn is_placeholder(mount_point: &OwnedFd) -> Result<bool> {
    let is_tmpfs = u64::try_from(rustix::fs::fstatfs(mount_point)?.f_type).is_ok_and(|kind| kind == TMPFS);
    let is_read_only = rustix::fs::fstatvfs(mount_point)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    Ok(is_tmpfs && is_read_only && is_mounted(mount_point)?)
}

fn is_mounted(mount_point: &OwnedFd) -> Result<bool> {
    let status = rustix::fs::statx(mount_point, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    if !status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::NOSYS);
    }
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
