//! The files of an exec before it runs: a directory for the box where it gets one, a directory for us, two files for its
//! output.
//!
//! A dozen system calls, and nothing is forced to the disk. What the box writes and what we write are in different
//! directories until the box is dead, so that it can neither touch ours nor take their names.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::finish::{MANIFEST, META};
use crate::exec_files::output::{OutputFile, Stream};
use crate::exec_files::overlap::Stay;
use crate::exec_files::recycle;
use crate::exec_id::ExecId;
use crate::fs::erase::erase;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::project::{Directory, Project};
use crate::workspaces::STAGING;

/// The files of an exec from its beginning until it is collected. Dropped without that (when the server dies, too) it
/// leaves them lying: what the box left is swept, what it printed stays for as long as the exec is on record.
#[derive(Debug)]
pub struct ExecFiles {
    pub(crate) project: Project,
    pub(crate) exec: ExecId,
    pub(crate) place: Place,
    /// `artifacts/<exec_id>`, which no box ever has.
    pub(crate) kept: OwnedFd,
    pub(crate) stdout: OutputFile,
    pub(crate) stderr: OutputFile,
    pub(crate) stay: Stay,
}

/// What there is beside the output.
#[derive(Debug)]
pub(crate) enum Place {
    /// A directory for the box, and how it looked when it was made.
    Boxed(Directory, Box<Stat>),
    /// Nothing, and the output itself is among the staged until all is there that is to be told of the exec.
    Hidden(Papers),
}

/// The two files that say what an exec was, empty until that is known: to make a file takes longer than to write a short
/// one, and before a box runs there is time for it.
#[derive(Debug)]
pub(crate) struct Papers {
    pub(crate) meta: File,
    pub(crate) manifest: File,
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
        let staged = match recycle::make(self.staging(), name, self.workspace().owner()) {
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
        self.open_output(exec, Place::Boxed(Directory { path, handle }, Box::new(made)), kept)
    }

    /// The same for an exec whose box gets no directory. Its output is among the staged until [`Collected::finish`], where
    /// a sweep finds it: one that is on record gets its place then, and the rest goes.
    ///
    /// [`Collected::finish`]: crate::Collected::finish
    pub fn begin_output(&self, exec: &ExecId) -> Result<ExecFiles, Error> {
        let name = hidden(exec);
        let fail = |errno: Errno| Error::Begin { exec: exec.clone(), source: errno.into() };
        match rustix::fs::statat(self.artifacts_of_all(), exec.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(Error::ExecExists(exec.clone())),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(fail(errno)),
        }
        match rustix::fs::mkdirat(self.staging(), name.as_str(), PRIVATE_DIRECTORY) {
            Err(Errno::EXIST) => return Err(Error::ExecExists(exec.clone())),
            outcome => outcome.map_err(fail)?,
        }
        let kept = beneath::open_directory(self.staging(), name.as_str());
        let fill = |kept| {
            let papers =
                Papers { meta: beneath::create_file(&kept, META)?, manifest: beneath::create_file(&kept, MANIFEST)? };
            self.open_output(exec, Place::Hidden(papers), kept)
        };
        kept.and_then(fill).map_err(|errno| {
            let _ = erase(self.staging(), &name);
            fail(errno)
        })
    }

    fn open_output(&self, exec: &ExecId, place: Place, kept: OwnedFd) -> rustix::io::Result<ExecFiles> {
        Ok(ExecFiles {
            project: self.clone(),
            exec: exec.clone(),
            place,
            stdout: OutputFile::create(&kept, Stream::Stdout)?,
            stderr: OutputFile::create(&kept, Stream::Stderr)?,
            kept,
            // The last thing that can fail: a beginning that failed has no box.
            stay: self.workspace().enter()?,
        })
    }
}

const OUTPUT: &str = ".output";

/// The name of output that is among the staged.
pub(crate) fn hidden(exec: &ExecId) -> String {
    format!("{exec}{OUTPUT}")
}

/// Whose output has this name there, if any.
pub(crate) fn whose_output(name: &str) -> Option<ExecId> {
    name.strip_suffix(OUTPUT)?.parse().ok()
}

impl ExecFiles {
    pub fn exec(&self) -> &ExecId {
        &self.exec
    }

    /// What the box sees at `/workspace/artifacts`, where it sees anything there.
    pub fn artifacts(&self) -> Option<&Directory> {
        match &self.place {
            Place::Boxed(directory, _) => Some(directory),
            Place::Hidden(_) => None,
        }
    }

    pub fn output(&self, stream: Stream) -> &OutputFile {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}
