//! Writes and deletes files.
//!
//! New content goes to a file in `.staging`, which is renamed when it is complete and synced, so a
//! reader sees the old or the new content, also after a crash. Missing parent directories are
//! created, and symlinks in the path are not followed; a symlink with the name of the file is
//! replaced. A replaced file passes its permission bits on, so that a script stays executable.
//!
//! A file or directory is deleted by renaming it into `.staging`. Erasing a large tree there takes
//! long, but needs no lock. Of a symlink the link itself is deleted, not its target.

use std::fs::File;
use std::io::{self, Write};

use ringwall_ids::{quote, random_digits};
use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::erase::{erase, move_to_staging};
use crate::project::READABLE_DIRECTORY;
use crate::relative_path::RelativePath;
use crate::workspaces::Workspace;

use super::error::FilesError;
use super::find::{file_type, files_error};
use super::open::Tree;
use super::path::{AgentPath, Section};

/// Prefix of names in `.staging` that are being written and belong to no exec.
pub(crate) const WRITE_PREFIX: &str = "arriving-";
const NEW_FILE: Mode = Mode::from_raw_mode(0o644);
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
                created = beneath::ensure_directories(top, parent, READABLE_DIRECTORY, owner)?;
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
        beneath::set_owner_of_new(&staged.file, owner)?;
        rustix::fs::renameat(self.workspace().staging(), staged.name.as_str(), parent, name)
    }
}

/// Checks that a file may be written at this path.
pub(super) fn check_target(path: &AgentPath) -> Result<(), FilesError> {
    path.check_writable()?;
    path.file().map(drop)
}

/// A file or directory in `.staging` that still takes disk space.
#[derive(Debug)]
#[must_use = "what is deleted takes up room until it is erased"]
pub struct Removed {
    pub(crate) workspace: Workspace,
    pub(crate) name: String,
    pub(crate) given: String,
}

impl Tree {
    /// Renames what is at a path into `.staging`. The sections themselves cannot be deleted.
    pub fn delete(&self, path: &AgentPath) -> Result<Removed, Error> {
        let Some(inner) = path.inner() else { return Err(FilesError::OutOfScope(path.given().to_owned()).into()) };
        let (parent, name) = inner.split();
        let remove = || {
            let parent = beneath::locate_directory(self.section(path.section()), parent.unwrap_or("."))?;
            move_to_staging(parent, name, self.workspace().staging())
        };
        let moved = match remove() {
            // The server is rootless and owns the directories, so it may restore their modes.
            // Moving a directory changes its `..` entry and needs write permission on it.
            Err(Errno::ACCESS) => {
                self.restore_path_access(path);
                remove()
            }
            Err(Errno::NOTDIR) if self.meets_link(path) => Err(Errno::LOOP),
            outcome => outcome,
        };
        let name = moved.map_err(|errno| files_error(path, errno))?;
        Ok(Removed { workspace: self.workspace().clone(), name, given: path.given().to_owned() })
    }
}

impl Removed {
    /// Frees the disk space. After an error the next start of the server does.
    pub fn erase(self) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: quote(&self.given), source: errno.into() };
        erase(self.workspace.staging(), &self.name).map_err(to_error)
    }
}
