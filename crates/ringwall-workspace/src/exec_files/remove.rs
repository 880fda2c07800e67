//! Removes the files of one exec, or a project with everything in it.
//!
//! The directory is renamed into `.staging` and deleted there, so a reader finds all of it or
//! nothing. If the server dies in between, a sweep finishes the deletion.

use ringwall_ids::{ExecId, ProjectId, random_digits};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::begin;
use crate::fs::erase::erase;
use crate::project::Project;
use crate::workspaces::Workspace;

/// Prefix of names in `.staging` that are being deleted and belong to no exec.
pub(crate) const REMOVED_PREFIX: &str = "removed-";

impl Project {
    /// Removes the files of an ended exec. Succeeds if there are none.
    pub fn remove_artifacts(&self, exec: &ExecId) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: format!("the files of {exec}"), source: errno.into() };
        let staging_name = format!("{REMOVED_PREFIX}{}", random_digits::<16>()?);
        let moved = rustix::fs::renameat_with(
            self.artifacts_root(),
            exec.as_str(),
            self.staging(),
            staging_name.as_str(),
            RenameFlags::NOREPLACE,
        );
        match moved {
            Ok(()) => erase(self.staging(), &staging_name).map_err(to_error)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(to_error(errno)),
        }
        // Files of an exec that was never collected or never recorded.
        erase(self.staging(), exec.as_str()).map_err(to_error)?;
        erase(self.staging(), &begin::output_name(exec)).map_err(to_error)
    }
}

impl Workspace {
    /// Removes a project. None of its execs may be running. Handles of the project lead nowhere
    /// afterwards.
    pub fn remove_project(&self, id: &ProjectId) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: format!("the project {id}"), source: errno.into() };
        let staging_name = format!("{REMOVED_PREFIX}{}", random_digits::<16>()?);
        let moved = rustix::fs::renameat_with(
            self.projects(),
            id.as_str(),
            self.staging(),
            staging_name.as_str(),
            RenameFlags::NOREPLACE,
        );
        match moved {
            Ok(()) => erase(self.staging(), &staging_name).map_err(to_error),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(to_error(errno)),
        }
    }
}
