//! Files for a container that runs already: mounted into its mount namespace from outside, over our own empty place.
//!
//! For a thread that ends afterwards, because it leaves its mount namespace for good. Nothing of a tenant's runs in the
//! container yet, but its image is a stranger's: the place is opened without following a link, and what is there must be
//! the empty file system that we asked for. That goes, so that the container ends up with the mounts of any other.

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

/// Looks whether our own empty file system is at a directory of the root of this process, which is held. The thread that
/// calls this is of no other use.
pub fn look(process: BorrowedFd<'_>, at: &str) -> std::result::Result<(), Failure> {
    let fail = |errno| Failure::new(Step::BuildRoot, at, errno);
    // The directory to start from and the root are those of all threads, which do not come along.
    sys::unshare(UnshareFlags::FS).map_err(fail)?;
    rustix::thread::move_into_thread_name_spaces(process, ThreadNameSpaceType::MOUNT).map_err(fail)?;
    match is_ours(&open(at).map_err(fail)?).map_err(fail)? {
        true => Ok(()),
        false => refuse(at, "something else is in the place of a container's files"),
    }
}

/// The same, and shows a detached tree there.
pub fn show(tree: &OwnedFd, process: BorrowedFd<'_>, at: &str) -> std::result::Result<(), Failure> {
    let fail = |errno| Failure::new(Step::BuildRoot, at, errno);
    mounts::restrict(tree.as_fd(), Attributes::WritableFiles).map_err(fail)?;
    look(process, at)?;
    rustix::mount::unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(fail)?;
    let place = open(at).map_err(fail)?;
    if is_mounted(&place).map_err(fail)? {
        return refuse(at, "more than one file system is in the place of a container's files");
    }
    mounts::attach(tree.as_fd(), place.as_fd(), b"").map_err(fail)?;
    let shown = open(at).map_err(fail)?;
    let status = rustix::fs::fstat(tree).map_err(fail)?;
    if !mounts::is_file(shown.as_fd(), FileIdentity { device: status.st_dev, inode: status.st_ino }).map_err(fail)? {
        return refuse(at, "the files are not where they were mounted");
    }
    // What is mounted below it on the host from now on is not for the container.
    rustix::process::fchdir(&shown).map_err(fail)?;
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

/// Whether this is a file system in memory of its own that nobody can write to.
fn is_ours(place: &OwnedFd) -> Result<bool> {
    let is_tmpfs = u64::try_from(rustix::fs::fstatfs(place)?.f_type).is_ok_and(|kind| kind == TMPFS);
    let is_read_only = rustix::fs::fstatvfs(place)?.f_flag.contains(StatVfsMountFlags::RDONLY);
    Ok(is_tmpfs && is_read_only && is_mounted(place)?)
}

fn is_mounted(place: &OwnedFd) -> Result<bool> {
    let status = rustix::fs::statx(place, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    if !status.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(Errno::NOSYS);
    }
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}
