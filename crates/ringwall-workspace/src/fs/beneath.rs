//! The few ways in which this room opens anything: beneath a handle, through no link, by inode once it is known.
//!
//! A file is located first without opening it (O_PATH), looked at, and only then opened through its handle's entry in
//! /proc, which leads to exactly that inode. So no FIFO, socket or device that a box left is ever opened, and a name
//! that is swapped in between changes nothing. Rights that an owner took from itself are given back the same way.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

pub(crate) const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
pub(crate) const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The kernel gives up a lookup when names move anywhere on the machine; trying again is what it asks for.
const MAX_LOOKUPS: u32 = 10_000;

/// Looks a path up beneath a directory. A link anywhere in it is ELOOP, unless the last name is only located.
pub(crate) fn look_up(directory: impl AsFd, path: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    resolve(directory, path, flags | OFlags::NOFOLLOW, mode, ResolveFlags::NO_SYMLINKS)
}

/// Finds what is at a path without opening it, through links that stay beneath. One that leaves is EXDEV.
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

/// Finds what is at a path without opening it.
pub(crate) fn locate(directory: impl AsFd, path: impl Arg + Copy) -> Result<(OwnedFd, Stat)> {
    let located = look_up(directory, path, OFlags::PATH, Mode::empty())?;
    let status = rustix::fs::fstat(&located)?;
    Ok((located, status))
}

/// Opens a directory of the server's own.
pub(crate) fn open_directory(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    look_up(parent, path, DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// Opens a directory of the server's own, making it if it is missing. Any number may try at once.
pub(crate) fn ensure_directory(parent: impl AsFd, name: &str, mode: Mode) -> Result<OwnedFd> {
    match open_directory(&parent, name) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    match rustix::fs::mkdirat(&parent, name, mode) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let made = open_directory(&parent, name)?;
    // The umask may have taken rights away. Whoever lost the race sets the same again.
    rustix::fs::fchmod(&made, mode)?;
    Ok(made)
}

/// A new file of the server's own, open for writing. A link or anything else of that name is EEXIST.
pub(crate) fn create_file(directory: impl AsFd, path: impl Arg + Copy) -> Result<File> {
    look_up(directory, path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, PRIVATE_FILE).map(File::from)
}

/// Opens the regular file at a path, or says that something else is there.
pub(crate) fn open_regular(directory: impl AsFd, path: impl Arg + Copy) -> Result<Option<(File, Stat)>> {
    let (located, status) = match locate(directory, path) {
        // A link on the way; nothing of ours lies behind one.
        Err(Errno::LOOP) => return Ok(None),
        outcome => outcome?,
    };
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    Ok(Some((open_located(&located)?, status)))
}

/// Opens a file that was located and is known to be regular, for reading.
pub(crate) fn open_located(located: &OwnedFd) -> Result<File> {
    match reopen_file(located) {
        // Only an owner without privileges gets here, and may read what is its own.
        Err(Errno::ACCESS) => set_mode(located, PRIVATE_FILE).and_then(|()| reopen_file(located)),
        outcome => outcome,
    }
}

/// The same without changing the mode of a file that its owner may not read.
pub(crate) fn open_readable(located: &OwnedFd) -> Result<File> {
    reopen_file(located)
}

fn reopen_file(located: &OwnedFd) -> Result<File> {
    // Non-blocking, because a lease that a box took out on its file would make an open wait for 45 s.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(entry_of(located), flags, Mode::empty()).map(File::from)
}

/// Opens a directory that a box may have made, to list and to change it, whatever its mode and owner are: afterwards
/// it is the server's. A box that was handed a descriptor of it can then add nothing more, unless it is the server's
/// own user.
pub(crate) fn seize_directory(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    let located = look_up(parent, path, DIRECTORY | OFlags::PATH, Mode::empty())?;
    let status = rustix::fs::fstat(&located)?;
    let server = rustix::process::geteuid();
    if status.st_uid != server.as_raw() {
        give(&located, server.as_raw(), rustix::process::getegid().as_raw())?;
    }
    if Mode::from_raw_mode(status.st_mode) != PRIVATE_DIRECTORY {
        set_mode(&located, PRIVATE_DIRECTORY)?;
    }
    rustix::fs::openat(&located, c".", DIRECTORY | OFlags::RDONLY, Mode::empty())
}

/// Changes the owner of what a handle holds, a located one too.
pub(crate) fn give(handle: impl AsFd, uid: u32, gid: u32) -> Result<()> {
    rustix::fs::chownat(handle, c"", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)
}

/// Changes the mode of what a handle holds, a located one too; such a handle cannot be changed itself, and the name
/// could be swapped for a link.
pub(crate) fn set_mode(handle: impl AsFd, mode: Mode) -> Result<()> {
    rustix::fs::chmod(entry_of(&handle), mode)
}

fn entry_of(handle: impl AsFd) -> String {
    format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd())
}

/// The kernel's own name for an open directory.
pub(crate) fn real_path(handle: impl AsFd) -> Result<Vec<u8>> {
    Ok(rustix::fs::readlink(entry_of(handle), Vec::new())?.into_bytes())
}
