//! Writes a file: the content goes to a file in `.staging`, which is renamed when it is complete
//! and synced.
//!
//! A reader sees the old or the new content, also after a crash. Missing parent directories are
//! created, and symlinks in the path are not followed; a symlink with the name of the file is
//! replaced. A replaced file passes its permission bits on, so that a script stays executable.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use ringwall_ids::random_digits;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::relative_path::RelativePath;
use crate::workspaces::{Owner, Workspace};

use super::error::FilesError;
use super::find::{file_type, files_error};
use super::open::Tree;
use super::path::{AgentPath, Section};

/// Prefix of names in `.staging` that are being written and belong to no exec.
pub(crate) const WRITE_PREFIX: &str = "arriving-";
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);
const NEW_DIRECTORY: Mode = Mode::from_raw_mode(0o755);
const RIGHTS: Mode = Mode::from_raw_mode(0o777);
/// Attempts, because a box may remove directories as fast as they are created.
const MAX_ATTEMPTS: u32 = 16;

/// A file in `.staging`. Dropping it deletes the file unless it was placed.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    name: String,
    workspace: Workspace,
}

impl Workspace {
    /// Creates a file in `.staging`, which belongs to the server until it is placed.
    pub fn stage(&self) -> Result<StagedFile, Error> {
        let name = format!("{WRITE_PREFIX}{}", random_digits::<16>()?);
        let file = beneath::create_file(self.staging(), name.as_str()).map_err(|errno| Error::UseTree(errno.into()))?;
        Ok(StagedFile { file, name, workspace: self.clone() })
    }
}

impl StagedFile {
    /// The file, for reading the content back.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // After the file was placed, the name no longer exists. If the removal fails, a sweep does
        // it.
        let _ = rustix::fs::unlinkat(self.workspace.staging(), self.name.as_str(), AtFlags::empty());
    }
}

impl Tree {
    /// Writes or replaces a file and creates missing parent directories.
    pub fn write(&self, path: &AgentPath, content: &[u8]) -> Result<(), Error> {
        check_target(path)?;
        let mut staged = self.workspace().stage()?;
        staged.write_all(content).map_err(Error::UseTree)?;
        self.persist(staged, path)
    }

    /// Syncs a staged file and renames it to `path`. Without the sync a power cut could leave the
    /// name without its bytes.
    pub fn persist(&self, staged: StagedFile, path: &AgentPath) -> Result<(), Error> {
        check_target(path)?;
        let inner = path.file()?;
        staged.file.sync_data().map_err(Error::UseTree)?;
        let mut left = MAX_ATTEMPTS;
        loop {
            match self.try_persist(&staged, path.section(), inner) {
                // A parent directory was removed between its creation and the rename.
                Err(Errno::NOENT) if left > 0 => left -= 1,
                // The server is rootless and owns the directories, so it may restore their modes.
                Err(Errno::ACCESS) if left == MAX_ATTEMPTS => {
                    self.restore_path_access(path);
                    left -= 1;
                }
                Err(Errno::NOTDIR) if self.meets_link(path) => return Err(files_error(path, Errno::LOOP)),
                Err(Errno::NOTDIR) => return Err(FilesError::BelowFile(path.given().to_owned()).into()),
                outcome => return outcome.map_err(|errno| files_error(path, errno)),
            }
        }
    }

    fn try_persist(&self, staged: &StagedFile, section: Section, path: &RelativePath) -> rustix::io::Result<()> {
        let owner = self.workspace().owner();
        let (parent, name) = path.split();
        let top = &self.section(section).handle;
        let created;
        let parent = match parent {
            None => top,
            Some(parent) => {
                created = ensure_parent(top, parent, owner)?;
                &created
            }
        };
        let mode = match beneath::locate(parent, name) {
            Ok((_, status)) => match file_type(&status) {
                FileType::RegularFile => Mode::from_raw_mode(status.st_mode) & RIGHTS,
                FileType::Directory => return Err(Errno::ISDIR),
                _ => NEW_FILE,
            },
            Err(Errno::NOENT) => NEW_FILE,
            Err(errno) => return Err(errno),
        };
        // No box can open the file before the rename, so the order of `fchmod` and `chown` does not
        // matter.
        rustix::fs::fchmod(&staged.file, mode)?;
        if owner != Owner::server() {
            beneath::set_owner(&staged.file, owner.uid, owner.gid)?;
        }
        rustix::fs::renameat(self.workspace().staging(), staged.name.as_str(), parent, name)
    }
}

/// Checks that a file may be written at this path.
pub(super) fn check_target(path: &AgentPath) -> Result<(), FilesError> {
    path.check_writable()?;
    path.file().map(drop)
}

/// Opens a directory beneath a section and creates its missing parts. A symlink in the path is
/// ELOOP.
fn ensure_parent(top: &OwnedFd, path: &str, owner: Owner) -> rustix::io::Result<OwnedFd> {
    match beneath::look_up(top, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    let mut components = path.split('/');
    let mut handle = ensure_directory(top, components.next().unwrap_or(path), owner)?;
    for name in components {
        handle = ensure_directory(&handle, name, owner)?;
    }
    Ok(handle)
}

pub(crate) fn ensure_directory(parent: &OwnedFd, name: &str, owner: Owner) -> rustix::io::Result<OwnedFd> {
    let locate = || beneath::look_up(parent, name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
    match locate() {
        Err(Errno::NOENT) => {}
        outcome => return outcome,
    }
    match rustix::fs::mkdirat(parent, name, NEW_DIRECTORY) {
        Ok(()) => {}
        Err(Errno::EXIST) => return locate(),
        Err(errno) => return Err(errno),
    }
    let created = locate()?;
    // If a box replaced the directory meanwhile, this changes another directory of the box's own.
    beneath::set_mode(&created, NEW_DIRECTORY)?;
    if owner != Owner::server() {
        beneath::set_owner(&created, owner.uid, owner.gid)?;
    }
    Ok(created)
}
