//! The executable of jail processes: this program, started again.
//!
//! A box can name the file that its PID 1 runs from (`#!/proc/self/exe` in a script suffices) and
//! open it for writing once no process executes it. Landlock refuses both. Without Landlock, jail
//! processes run from a sealed copy in memory, which cannot be written. An agent runs from a
//! read-only mount, which cannot be written either.

use std::ffi::CString;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use ringwall_jail::plan::{FileIdentity, Privilege, Source};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use crate::error::Error;

const OWN: &str = "/proc/self/exe";

#[derive(Debug)]
pub(crate) enum Program {
    Own,
    Copy(OwnedFd),
}

impl Program {
    pub(crate) fn choose() -> Result<Self, Error> {
        match ringwall_jail::landlock_version() {
            Ok(_) => Ok(Program::Own),
            Err(_) => copy().map(Program::Copy).map_err(Error::CopyProgram),
        }
    }

    /// The path of the executable, valid in children of this process.
    pub(crate) fn path(&self) -> PathBuf {
        match self {
            Program::Own => OWN.into(),
            Program::Copy(file) => format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into(),
        }
    }
}

/// This program as the agent of a box. As root it is opened through `/proc/self/exe`, so a file
/// that replaced it on disk is not used. Rootless it is named by path, because PID 1 opens it
/// itself.
pub(crate) fn agent(privilege: Privilege) -> Result<Source, Error> {
    let find = || -> std::io::Result<Source> {
        let handle = rustix::fs::open(OWN, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let status = rustix::fs::fstat(&handle)?;
        let identity = FileIdentity { device: status.st_dev, inode: status.st_ino };
        let path = match privilege {
            Privilege::Root => CString::new(OWN)?,
            Privilege::Rootless => rustix::fs::readlink(OWN, Vec::new())?,
        };
        Ok(Source { path, identity: Some(identity), owner: None })
    };
    find().map_err(Error::CopyProgram)
}

/// The path of this program on disk, for backends that need a path.
pub(crate) fn path_on_disk() -> Result<PathBuf, Error> {
    let path = std::fs::read_link(OWN).map_err(Error::CopyProgram)?;
    match path.exists() {
        true => Ok(path),
        // The kernel appends ` (deleted)` to the name of a replaced file.
        false => Err(Error::ProgramReplaced(path)),
    }
}

fn copy() -> std::io::Result<OwnedFd> {
    let mut source = std::fs::File::open(OWN)?;
    let copy = rustix::fs::memfd_create(c"ringwall", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut buffer = vec![0; 1 << 16];
    let mut offset = 0;
    loop {
        let count = source.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let written = rustix::io::pwrite(&copy, rest, offset)?;
            offset += written as u64;
            rest = &rest[written..];
        }
    }
    rustix::fs::fcntl_add_seals(&copy, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_equals_this_program_and_cannot_be_written() {
        let copy = copy().unwrap();
        let own = std::fs::metadata(OWN).unwrap().len();
        assert_eq!(rustix::fs::fstat(&copy).unwrap().st_size as u64, own);
        assert_eq!(rustix::io::pwrite(&copy, b"x", 0), Err(rustix::io::Errno::PERM));
    }
}
