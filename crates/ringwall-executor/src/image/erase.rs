//! Deleting a directory tree by handles: no link is followed, no depth is too great.
//!
//! Instead of descending, every directory found is emptied of its files and its subdirectories are moved up to the top,
//! until the top is empty. That needs two handles and no stack however deep the tree is, and a hostile tree can be
//! deeper than any path can say.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Deletes the directory `name` of `parent` and everything in it.
pub(crate) fn erase(parent: impl AsFd, name: &str) -> rustix::io::Result<()> {
    let top = open_writable(&parent, name)?;
    empty(&top)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

/// Deletes everything in a directory; how many names there were at its top.
pub(super) fn empty(top: &OwnedFd) -> rustix::io::Result<u64> {
    let mut moved = 0;
    let mut at_top = None;
    loop {
        let mut found = 0;
        let mut names = Dir::read_from(top)?;
        while let Some(entry) = names.read() {
            let entry = entry?;
            let name = entry.file_name();
            if is_dots(name) {
                continue;
            }
            found += 1;
            if let Err(error) = rustix::fs::unlinkat(top, name, AtFlags::empty()) {
                match error {
                    Errno::ISDIR | Errno::PERM => dissolve(top, name, &mut moved)?,
                    _ => return Err(error),
                }
            }
        }
        let at_top = *at_top.get_or_insert(found);
        if found == 0 {
            return Ok(at_top);
        }
    }
}

/// Removes one directory of the top, its subdirectories being moved to the top.
fn dissolve(top: &OwnedFd, name: &CStr, moved: &mut u64) -> rustix::io::Result<()> {
    let directory = open_writable(top, name)?;
    let mut names = Dir::read_from(&directory)?;
    while let Some(entry) = names.read() {
        let entry = entry?;
        let inner = entry.file_name();
        if is_dots(inner) {
            continue;
        }
        match rustix::fs::unlinkat(&directory, inner, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {
                // Moving a directory rewrites its `..`, for which it must be writable itself.
                open_writable(&directory, inner)?;
                move_up(&directory, inner, top, moved)?;
            }
            outcome => outcome?,
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        // The listing missed a name that moved while it was read; the next round finds the rest.
        Err(Errno::NOTEMPTY) => Ok(()),
        outcome => outcome,
    }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match rustix::fs::renameat_with(from, name, top, free.as_str(), RenameFlags::NOREPLACE) {
            // The tree has a name like ours: take the next number.
            Err(Errno::EXIST) => {}
            outcome => return outcome,
        }
    }
}

/// Opens a directory, first giving its owner back the rights that its mode withholds.
fn open_writable(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<OwnedFd> {
    let located = rustix::fs::openat(&parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&located)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // A path handle cannot be changed itself, and the name could be swapped for a link; the handle's entry in
        // /proc leads to exactly this inode.
        rustix::fs::chmod(format!("/proc/self/fd/{}", located.as_raw_fd()), Mode::RWXU)?;
    }
    rustix::fs::openat(&located, c".", DIRECTORY | OFlags::RDONLY, Mode::empty())
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
