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
/// leaves them lying: what the box left is swept, what it printed stays.
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
    pub fn begin(&self, exec: &ExecId) -> Result<ExecFiles, Error> {
        let name = exec.as_str();
        let fail = |errno: Errno| Error::Begin { exec: exec.clone(), source: errno.into() };
        match rustix::fs::mkdirat(self.artifacts_of_all(), name, PRIVATE_DIRECTORY) {
            Err(Errno::EXIST) => return Err(Error::ExecExists(exec.clone())),
            outcome => outcome.map_err(fail)?,
        }
        self.fill(exec).map_err(|errno| {
            // A failed beginning leaves nothing that it can still remove, or the id would look used.
            let _ = erase(self.staging(), name);
            let _ = erase(self.artifacts_of_all(), name);
            fail(errno)
        })
    }

    fn fill(&self, exec: &ExecId) -> rustix::io::Result<ExecFiles> {
        let kept = beneath::open_directory(self.artifacts_of_all(), exec.as_str())?;
        let (handle, made) = spare::make(self.staging(), exec.as_str(), self.workspace().owner())?;
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
