//! Deletes a file, or a directory with everything in it: renames it into `.staging`, then deletes
//! it there.
//!
//! The parent is looked up without following symlinks, and a symlink itself is moved, not its
//! target. Deleting a large tree takes long, but after the rename it needs no lock.

use ringwall_ids::{quote, random_digits};
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::remove::REMOVED_PREFIX;
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::workspaces::Workspace;

use super::error::FilesError;
use super::find::files_error;
use super::open::Tree;
use super::path::AgentPath;

/// A file or directory in `.staging` that still takes disk space.
#[derive(Debug)]
#[must_use = "what is deleted takes up room until it is erased"]
pub struct Removed {
    workspace: Workspace,
    name: String,
    given: String,
}

impl Tree {
    /// Renames what is at a path into `.staging`. The sections themselves cannot be deleted.
    pub fn delete(&self, path: &AgentPath) -> Result<Removed, Error> {
        let Some(inner) = path.inner() else { return Err(FilesError::OutOfScope(path.given().to_owned()).into()) };
        let (parent, name) = inner.split();
        let staging = self.workspace().staging();
        let staging_name = format!("{REMOVED_PREFIX}{}", random_digits::<16>()?);
        let move_to_staging = || {
            let parent = beneath::look_up(
                self.section(path.section()),
                parent.unwrap_or("."),
                OFlags::PATH | OFlags::DIRECTORY,
                Mode::empty(),
            )?;
            rustix::fs::renameat_with(&parent, name, staging, staging_name.as_str(), RenameFlags::NOREPLACE)
        };
        let moved = match move_to_staging() {
            // The server is rootless and owns the directories, so it may restore their modes.
            // Moving a directory changes its `..` entry and needs write permission on it.
            Err(Errno::ACCESS) => {
                self.restore_path_access(path);
                move_to_staging()
            }
            Err(Errno::NOTDIR) if self.meets_link(path) => Err(Errno::LOOP),
            outcome => outcome,
        };
        moved.map_err(|errno| files_error(path, errno))?;
        Ok(Removed { workspace: self.workspace().clone(), name: staging_name, given: path.given().to_owned() })
    }
}

impl Removed {
    /// Frees the disk space. After an error the next start of the server does.
    pub fn erase(self) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: quote(&self.given), source: errno.into() };
        erase(self.workspace.staging(), &self.name).map_err(to_error)
    }
}
