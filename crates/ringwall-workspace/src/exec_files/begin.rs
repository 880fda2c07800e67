//! Creates the files of an exec before it runs: an artifacts directory for the box if it gets one,
//! a directory of the server, and two output files in it.
//!
//! Nothing is synced to disk. Until the box is dead, its files and the server's are in different
//! directories, so that it can neither modify the server's files nor occupy their names.

use std::fs::File;
use std::os::fd::OwnedFd;

use ringwall_ids::ExecId;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::finish::{MANIFEST, META};
use crate::exec_files::output::{OutputFile, Stream};
use crate::exec_files::recycle::{self, ExecPresence};
use crate::fs::beneath;
use crate::fs::beneath::PRIVATE_DIRECTORY;
use crate::fs::erase::erase;
use crate::project::{Directory, Project};
use crate::workspaces::STAGING;

/// The files of an exec until they are collected. If dropped before, or if the server dies, the
/// artifacts directory is removed by a sweep and the output is kept as long as the exec is in the
/// record.
#[derive(Debug)]
pub struct ExecFiles {
    pub(crate) project: Project,
    pub(crate) exec: ExecId,
    pub(crate) artifacts_dir: ArtifactsDir,
    /// The server's directory of the exec, which no box can reach.
    pub(crate) exec_dir: OwnedFd,
    pub(crate) stdout: OutputFile,
    pub(crate) stderr: OutputFile,
    pub(crate) presence: ExecPresence,
}

/// The artifacts directory of the box.
#[derive(Debug)]
pub(crate) enum ArtifactsDir {
    /// The box has an artifacts directory in `.staging`; the `Stat` is from its creation. The
    /// output is in the project's artifacts.
    Provided(Directory, Box<Stat>),
    /// The box has no artifacts directory. The output is in `.staging` until
    /// [`Collected::finish`](crate::Collected::finish).
    Omitted(DescriptionFiles),
}

/// `meta.json` and `manifest.json`, created empty before the box runs, because creating a file
/// takes longer than writing a short one.
#[derive(Debug)]
pub(crate) struct DescriptionFiles {
    pub(crate) meta: File,
    pub(crate) manifest: File,
}

impl Project {
    /// Creates the directories and output files of an exec. Fails if the id was used before.
    ///
    /// The box's directory is created first: if the server dies before the exec is recorded, a
    /// sweep finds the exec by this directory in `.staging` and removes its other files too.
    pub fn begin(&self, exec: &ExecId) -> Result<ExecFiles, Error> {
        let name = exec.as_str();
        let to_error = |errno: Errno| Error::Begin { exec: exec.clone(), source: errno.into() };
        // Otherwise a retry with the same id would find leftovers and report that the exec exists.
        let undo_staged = |errno| {
            let _ = erase(self.staging(), name);
            to_error(errno)
        };
        let staged = match recycle::create(self.staging(), name, self.workspace().owner()) {
            Err(Errno::EXIST) => return Err(Error::ExecExists(exec.clone())),
            outcome => outcome.map_err(undo_staged)?,
        };
        match rustix::fs::mkdirat(self.artifacts_root(), name, PRIVATE_DIRECTORY) {
            Err(Errno::EXIST) => {
                let _ = erase(self.staging(), name);
                return Err(Error::ExecExists(exec.clone()));
            }
            outcome => outcome.map_err(undo_staged)?,
        }
        self.fill(exec, staged).map_err(|errno| {
            let _ = erase(self.artifacts_root(), name);
            undo_staged(errno)
        })
    }

    fn fill(&self, exec: &ExecId, (handle, created): (OwnedFd, Stat)) -> rustix::io::Result<ExecFiles> {
        let exec_dir = beneath::open_directory(self.artifacts_root(), exec.as_str())?;
        let path = self.workspace().path().join(STAGING).join(exec.as_str());
        self.open_output(exec, ArtifactsDir::Provided(Directory { path, handle }, Box::new(created)), exec_dir)
    }

    /// Like [`Project::begin`] for an exec whose box has no artifacts directory. The output is in
    /// `.staging` until [`Collected::finish`]. After a crash a sweep moves it to the project if the
    /// exec is in the record, and else removes it.
    ///
    /// [`Collected::finish`]: crate::Collected::finish
    pub fn begin_output(&self, exec: &ExecId) -> Result<ExecFiles, Error> {
        let name = output_name(exec);
        let to_error = |errno: Errno| Error::Begin { exec: exec.clone(), source: errno.into() };
        match rustix::fs::statat(self.artifacts_root(), exec.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => return Err(Error::ExecExists(exec.clone())),
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(to_error(errno)),
        }
        match rustix::fs::mkdirat(self.staging(), name.as_str(), PRIVATE_DIRECTORY) {
            Err(Errno::EXIST) => return Err(Error::ExecExists(exec.clone())),
            outcome => outcome.map_err(to_error)?,
        }
        let exec_dir = beneath::open_directory(self.staging(), name.as_str());
        let fill = |exec_dir| {
            let description_files = DescriptionFiles {
                meta: beneath::create_file(&exec_dir, META)?,
                manifest: beneath::create_file(&exec_dir, MANIFEST)?,
            };
            self.open_output(exec, ArtifactsDir::Omitted(description_files), exec_dir)
        };
        exec_dir.and_then(fill).map_err(|errno| {
            let _ = erase(self.staging(), &name);
            to_error(errno)
        })
    }

    fn open_output(
        &self,
        exec: &ExecId,
        artifacts_dir: ArtifactsDir,
        exec_dir: OwnedFd,
    ) -> rustix::io::Result<ExecFiles> {
        Ok(ExecFiles {
            project: self.clone(),
            exec: exec.clone(),
            artifacts_dir,
            stdout: OutputFile::create(&exec_dir, Stream::Stdout)?,
            stderr: OutputFile::create(&exec_dir, Stream::Stderr)?,
            exec_dir,
            // Last, because after a failure nothing would leave again.
            presence: self.workspace().enter()?,
        })
    }
}

const OUTPUT: &str = ".output";

/// The name of an exec's output in `.staging`.
pub(crate) fn output_name(exec: &ExecId) -> String {
    format!("{exec}{OUTPUT}")
}

/// The exec to which an output of this name in `.staging` belongs.
pub(crate) fn exec_of_output(name: &str) -> Option<ExecId> {
    name.strip_suffix(OUTPUT)?.parse().ok()
}

impl ExecFiles {
    pub fn exec(&self) -> &ExecId {
        &self.exec
    }

    /// Mounted at `/workspace/artifacts`, if the box has an artifacts directory.
    pub fn artifacts(&self) -> Option<&Directory> {
        match &self.artifacts_dir {
            ArtifactsDir::Provided(directory, _) => Some(directory),
            ArtifactsDir::Omitted(_) => None,
        }
    }

    pub fn output(&self, stream: Stream) -> &OutputFile {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }
}
