//! The files of an exec before it runs: a directory for the box, a directory for us, two files for its output.
//!
//! A dozen system calls, and nothing is forced to the disk. What the box writes and what we write are in different
//! directories until the box is dead, so that it can neither touch ours nor take their names.

use std::os::fd::OwnedFd;

use rustix::fs::Stat;
use rustix::io::Errno;

use crate::beneath::{self, PRIVATE_DIRECTORY};
use crate::company::Stay;
use crate::erase::erase;
use crate::error::Error;
use crate::exec_id::ExecId;
use crate::output::{OutputFile, Stream};
use crate::project::{Directory, Project};
use crate::spare;
use crate::workspaces::STAGING;

/// The files of an exec from its beginning until it is collected. Dropped without that (when the server dies, too) it
/// leaves them lying: what the box left is swept, what it printed stays for as long as the exec is on record.
#[derive(Debug)]
pub struct ExecFiles {
    pub(crate) project: Project,
    pub(crate) exec: ExecId,
    pub(crate) staged: Directory,
    /// How that directory looked when it was made.
    pub(crate) made: Stat,
    /// `artifacts/<exec_id>`, which no box ever has.
    pub(crate) kept: OwnedFd,
    pub(crate) stdout: OutputFile,
    pub(crate) stderr: OutputFile,
    pub(crate) stay: Stay,
}

impl Project {
    /// Makes the directories and output files of an exec. An id can be used once.
    ///
    /// The box's directory is the first, because a sweep finds it there: whoever dies before the exec is on record leaves
    /// nothing that nobody knows of.
    pub fn begin(&self, exec: &ExecId) -> Result<ExecFiles, Error> {
        let name = exec.as_str();
        let fail = |errno: Errno| Error::Begin { exec: exec.clone(), source: errno.into() };
        // A failed beginning leaves nothing that it can still remove, or the id would look used.
        let undo_staged = |errno| {
            let _ = erase(self.staging(), name);
            fail(errno)
        };
        let staged = match spare::make(self.staging(), name, self.workspace().owner()) {
            Err(Errno::EXIST) => return Err(Error::ExecExists(exec.clone())),
            outcome => outcome.map_err(undo_staged)?,
        };
        match rustix::fs::mkdirat(self.artifacts_of_all(), name, PRIVATE_DIRECTORY) {
            Err(Errno::EXIST) => {
                let _ = erase(self.staging(), name);
                return Err(Error::ExecExists(exec.clone()));
            }
            outcome => outcome.map_err(undo_staged)?,
        }
        self.fill(exec, staged).map_err(|errno| {
            let _ = erase(self.artifacts_of_all(), name);
            undo_staged(errno)
        })
    }

    fn fill(&self, exec: &ExecId, (handle, made): (OwnedFd, Stat)) -> rustix::io::Result<ExecFiles> {
        let kept = beneath::open_directory(self.artifacts_of_all(), exec.as_str())?;
        let path = self.workspace().path().join(STAGING).join(exec.as_str());
        Ok(ExecFiles {
            project: self.clone(),
            exec: exec.clone(),
            staged: Directory { path, handle },
            made,
            stdout: OutputFile::create(&kept, Stream::Stdout)?,
            stderr: OutputFile::create(&kept, Stream::Stderr)?,
            kept,
            // The last thing that can fail: a beginning that failed has no box.
            stay: self.workspace().enter()?,
        })
    }
}

impl ExecFiles {
    pub fn exec(&self) -> &ExecId {
        &self.exec
    }

    /// What the box sees at `/workspace/artifacts`.
    pub fn artifacts(&self) -> &Directory {
        &self.staged
    }

    pub fn output(&self, stream: Stream) -> &OutputFile {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}
