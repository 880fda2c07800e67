//! Removing what is no longer wanted: the files of one exec, or a project with everything in it.
//!
//! First it is moved out of sight in one step, then taken apart there; whoever looks finds all of it or nothing. A
//! server that dies in between leaves it to the sweep.

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::begin;
use crate::exec_id::{ExecId, random_digits};
use crate::fs::erase::erase;
use crate::name::ProjectId;
use crate::project::Project;
use crate::workspaces::Workspace;

/// What names begin with that are on their way out and belong to no exec.
pub(crate) const REMOVED: &str = "removed-";

impl Project {
    /// Removes the files of an exec that is over. Files that are not there are removed.
    pub fn remove_artifacts(&self, exec: &ExecId) -> Result<(), Error> {
        let fail = |errno: Errno| Error::Remove { subject: format!("the files of {exec}"), source: errno.into() };
        let hidden = format!("{REMOVED}{}", random_digits()?);
        let moved = rustix::fs::renameat_with(
            self.artifacts_of_all(),
            exec.as_str(),
            self.staging(),
            hidden.as_str(),
            RenameFlags::NOREPLACE,
        );
        match moved {
            Ok(()) => erase(self.staging(), &hidden).map_err(fail)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(fail(errno)),
        }
        // What an exec left that was never collected, or never on record.
        erase(self.staging(), exec.as_str()).map_err(fail)?;
        erase(self.staging(), &begin::hidden(exec)).map_err(fail)
    }
}

impl Workspace {
    /// Removes a project, none of whose execs may run any more. Handles of it lead nowhere afterwards.
    pub fn remove_project(&self, id: &ProjectId) -> Result<(), Error> {
        let fail = |errno: Errno| Error::Remove { subject: format!("the project {id}"), source: errno.into() };
        let hidden = format!("{REMOVED}{}", random_digits()?);
        let moved = rustix::fs::renameat_with(
            self.projects(),
            id.as_str(),
            self.staging(),
            hidden.as_str(),
            RenameFlags::NOREPLACE,
        );
        match moved {
            Ok(()) => erase(self.staging(), &hidden).map_err(fail),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(fail(errno)),
        }
    }
}
