//! Deletes a directory tree by handles, without following links and for any depth.
//!
//! It does not recurse: each directory is emptied of its files, and its subdirectories are moved to
//! the top, until the top is empty. So two handles suffice for a tree that is deeper than PATH_MAX.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Deletes the directory `name` of `parent` with its content.
pub(crate) fn erase(parent: impl AsFd, name: &str) -> rustix::io::Result<()> {
    let top = open_writable(&parent, name)?;
    empty(&top)?;
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)
}

/// Deletes the content of a directory. Returns how many entries it had itself.
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

/// Removes one directory after moving its subdirectories to the top.
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
                // Renaming a directory changes its `..` entry, which requires write permission on
                // it.
                open_writable(&directory, inner)?;
                move_up(&directory, inner, top, moved)?;
            }
            outcome => outcome?,
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        // The directory changed while it was listed; the next round removes the rest.
        Err(Errno::NOTEMPTY) => Ok(()),
        outcome => outcome,
    }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> rustix::io::Result<()> {
    loop {
        *moved += 1;
        let free = format!("moved-{moved}");
        match rustix::fs::renameat_with(from, name, top, free.as_str(), RenameFlags::NOREPLACE) {
            // The tree already contains this name; try the next number.
            Err(Errno::EXIST) => {}
            outcome => return outcome,
        }
    }
}

/// Opens a directory, and first gives its owner full permissions.
fn open_writable(parent: impl AsFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<OwnedFd> {
    let located = rustix::fs::openat(&parent, name, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&located)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // fchmod does not work on an O_PATH handle, and `name` could be replaced by a link
        // meanwhile. The handle's entry in /proc refers to exactly this inode.
        rustix::fs::chmod(format!("/proc/self/fd/{}", located.as_raw_fd()), Mode::RWXU)?;
    }
    rustix::fs::openat(&located, c".", DIRECTORY | OFlags::RDONLY, Mode::empty())
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}
