//! Opens files and directories beneath a directory handle without following symlinks.
//!
//! A file is first located with O_PATH and its type is checked; then that inode is opened through
//! `/proc/self/fd`. So a FIFO, socket or device left by a box is never opened, and swapping the
//! name in between has no effect. Owner and mode of a located inode are changed in the same way.

use std::ffi::CStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use crate::workspaces::Owner;

pub(crate) const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
pub(crate) const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// `openat2` returns EAGAIN if a concurrent rename or mount kept it from checking that the path
/// stays beneath; its manual says to retry.
const MAX_LOOKUPS: u32 = 10_000;

/// Looks up a path beneath a directory. A symlink in the path is ELOOP, except as the last name
/// with O_PATH, which opens the symlink itself.
pub(crate) fn look_up(directory: impl AsFd, path: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    resolve(directory, path, flags | OFlags::NOFOLLOW, mode, ResolveFlags::NO_SYMLINKS)
}

/// Locates what is at a path. Follows symlinks that stay beneath `directory`; one that leaves it is
/// EXDEV.
pub(crate) fn locate_through_links(directory: impl AsFd, path: impl Arg + Copy) -> Result<(OwnedFd, Stat)> {
    let located = resolve(directory, path, OFlags::PATH, Mode::empty(), ResolveFlags::empty())?;
    let status = rustix::fs::fstat(&located)?;
    Ok((located, status))
}

fn resolve(
    directory: impl AsFd,
    path: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
    resolve: ResolveFlags,
) -> Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let resolve = resolve | ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut left = MAX_LOOKUPS;
    loop {
        match rustix::fs::openat2(&directory, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) if left > 0 => left -= 1,
            outcome => return outcome,
        }
    }
}

/// Locates what is at a path, without opening it.
pub(crate) fn locate(directory: impl AsFd, path: impl Arg + Copy) -> Result<(OwnedFd, Stat)> {
    let located = look_up(directory, path, OFlags::PATH, Mode::empty())?;
    let status = rustix::fs::fstat(&located)?;
    Ok((located, status))
}

/// Locates a directory. Needs no permission on the directory itself.
pub(crate) fn locate_directory(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    look_up(parent, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
}

/// Opens a directory for listing.
pub(crate) fn open_directory(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    look_up(parent, path, DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// Opens a directory for listing, with a file offset of its own. If its mode forbids that, restores
/// the owner's permissions first.
pub(crate) fn open_listing(parent: impl AsFd, name: impl Arg + Copy) -> Result<OwnedFd> {
    const LISTED: OFlags = DIRECTORY.union(OFlags::NONBLOCK);
    let open = || rustix::fs::openat(&parent, name, LISTED | OFlags::RDONLY, Mode::empty());
    match open() {
        Err(Errno::ACCESS) => {
            restore_owner_access(&parent);
            restore_owner_access(rustix::fs::openat(&parent, name, LISTED | OFlags::PATH, Mode::empty())?);
            open()
        }
        outcome => outcome,
    }
}

/// The type of a listed entry. Some file systems return no type with the entry.
pub(crate) fn entry_type(directory: impl AsFd, name: &CStr, listed: FileType) -> Result<FileType> {
    match listed {
        FileType::Unknown => rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map(|status| FileType::from_raw_mode(status.st_mode)),
        known => Ok(known),
    }
}

/// Opens a directory and creates it if missing. Safe to call concurrently.
pub(crate) fn ensure_directory(parent: impl AsFd, name: &str, mode: Mode) -> Result<OwnedFd> {
    match open_directory(&parent, name) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    match rustix::fs::mkdirat(&parent, name, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let created = open_directory(&parent, name)?;
    // The umask may have removed bits. Concurrent callers set the same mode.
    rustix::fs::fchmod(&created, mode)?;
    Ok(created)
}

/// Locates the directory at `path` and creates its missing parts with `mode` for `owner`. A symlink
/// in the path is ELOOP or ENOTDIR.
pub(crate) fn ensure_directories(top: &OwnedFd, path: &str, mode: Mode, owner: Owner) -> Result<OwnedFd> {
    match locate_directory(top, path) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    let mut components = path.split('/');
    let mut handle = ensure_owned_directory(top, components.next().unwrap_or(path), mode, owner)?;
    for name in components {
        handle = ensure_owned_directory(&handle, name, mode, owner)?;
    }
    Ok(handle)
}

/// Locates a directory in which boxes may change names, and creates it for `owner` if missing.
pub(crate) fn ensure_owned_directory(parent: &OwnedFd, name: &str, mode: Mode, owner: Owner) -> Result<OwnedFd> {
    match locate_directory(parent, name) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => {}
        Err(Errno::EXIST) => return locate_directory(parent, name),
        Err(errno) => return Err(errno),
    }
    let created = locate_directory(parent, name)?;
    // If a box replaced the directory meanwhile, this changes another directory of the box's own.
    set_mode(&created, mode)?;
    set_owner_of_new(&created, owner)?;
    Ok(created)
}

/// Creates a file and opens it for reading and writing. EEXIST if the name exists, also as a
/// symlink.
pub(crate) fn create_file(directory: impl AsFd, path: impl Arg + Copy) -> Result<File> {
    look_up(directory, path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, PRIVATE_FILE).map(File::from)
}

/// Opens the regular file at a path. `None` if something else is there.
pub(crate) fn open_regular(directory: impl AsFd, path: impl Arg + Copy) -> Result<Option<(File, Stat)>> {
    let (located, status) = match locate(directory, path) {
        // A directory in the path is a symlink; the server creates none.
        Err(Errno::LOOP) => return Ok(None),
        outcome => outcome?,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    Ok(Some((open_located(&located)?, status)))
}

/// Opens a located regular file for reading.
pub(crate) fn open_located(located: &OwnedFd) -> Result<File> {
    match open_readable(located) {
        // The server is rootless and owns the file, so it may restore its mode.
        Err(Errno::ACCESS) => set_mode(located, PRIVATE_FILE).and_then(|()| open_readable(located)),
        outcome => outcome,
    }
}

/// Like [`open_located`], but leaves the mode unchanged.
pub(crate) fn open_readable(located: &OwnedFd) -> Result<File> {
    // O_NONBLOCK: if a box holds a lease on the file, a blocking open waits up to 45 s
    // (`lease-break-time`).
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(entry_of(located), flags, Mode::empty()).map(File::from)
}

/// Opens a directory that a box may have created, with any owner and mode. Makes the server
/// its owner, with mode 0700: a box that received a descriptor of the directory cannot add entries
/// any more, unless it runs as the server's user.
pub(crate) fn take_ownership(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    let located = look_up(parent, path, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let status = rustix::fs::fstat(&located)?;
    let server = Owner::server();
    if status.st_uid != server.uid {
        change_owner(&located, server)?;
    }
    if Mode::from_raw_mode(status.st_mode) != PRIVATE_DIRECTORY {
        set_mode(&located, PRIVATE_DIRECTORY)?;
    }
    rustix::fs::openat(&located, c".", DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// Changes the owner of an open or located inode.
pub(crate) fn change_owner(handle: impl AsFd, Owner { uid, gid }: Owner) -> Result<()> {
    rustix::fs::chownat(handle, c"", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

/// Gives an entry that the server has just created to `owner`.
pub(crate) fn set_owner_of_new(handle: impl AsFd, owner: Owner) -> Result<()> {
    if owner == Owner::server() { Ok(()) } else { change_owner(handle, owner) }
}

/// Lets the owner of a directory list, enter and change it. Errors are ignored; the following
/// operation reports them. Needed for a rootless server: it is the same user as its boxes, so a box
/// can lock it out of a directory.
pub(crate) fn restore_owner_access(directory: impl AsFd) {
    if let Ok(status) = rustix::fs::fstat(&directory) {
        let mode = Mode::from_raw_mode(status.st_mode);
        if !mode.contains(PRIVATE_DIRECTORY) {
            let _ = set_mode(&directory, mode | PRIVATE_DIRECTORY);
        }
    }
}

/// Changes the mode of an open or located inode. Goes through `/proc/self/fd`, because `fchmod`
/// rejects O_PATH handles and a path could be swapped for a symlink.
pub(crate) fn set_mode(handle: impl AsFd, mode: Mode) -> Result<()> {
    rustix::fs::chmod(entry_of(&handle), mode)
}

fn entry_of(handle: impl AsFd) -> String {
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

/// The kernel's path of an open directory.
pub(crate) fn real_path(handle: impl AsFd) -> Result<Vec<u8>> {
    Ok(rustix::fs::readlink(entry_of(handle), Vec::new())?.into_bytes())
}
