//! One project: the directories that are mounted into its boxes.
//!
//! The mounted directories lie in a directory of the server, so a box can neither rename nor
//! replace `work` itself. It can change the mode of `work` so that a rootless server cannot enter
//! it; opening the project restores the mode.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwall_ids::ProjectId;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::beneath::PRIVATE_DIRECTORY;
use crate::workspaces::{Owner, PROJECTS, SEARCHABLE_DIRECTORY, Workspace};

pub(crate) const INPUTS: &str = "inputs";
const WORK: &str = "work";
pub(crate) const ARTIFACTS: &str = "artifacts";
/// Lets a box's user list and enter a directory.
pub(crate) const READABLE_DIRECTORY: Mode = Mode::from_raw_mode(0o755);

/// An open directory with its path on the host, for mounting.
#[derive(Debug)]
pub struct Directory {
    pub(crate) path: PathBuf,
    pub(crate) handle: OwnedFd,
}

impl Directory {
    /// The path on the host, without symlinks.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Handles of one project. Cheap to clone; they lead nowhere after the project was removed.
#[derive(Debug, Clone)]
pub struct Project {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    workspace: Workspace,
    id: ProjectId,
    inputs: Directory,
    work: Directory,
    artifacts: OwnedFd,
}

impl Project {
    pub(crate) fn open(workspace: &Workspace, id: &ProjectId, directory: &OwnedFd) -> Result<Self, Error> {
        let to_error = |name: &str| {
            let path = format!("{PROJECTS}/{id}/{name}");
            move |errno: Errno| Error::OpenDirectory { path, source: errno.into() }
        };
        let path = workspace.path().join(PROJECTS).join(id.as_str());
        let inputs = beneath::ensure_directory(directory, INPUTS, READABLE_DIRECTORY).map_err(to_error(INPUTS))?;
        let artifacts =
            beneath::ensure_directory(directory, ARTIFACTS, SEARCHABLE_DIRECTORY).map_err(to_error(ARTIFACTS))?;
        let work = open_owned(directory, WORK, workspace.owner()).map_err(to_error(WORK))?;
        let inner = Inner {
            workspace: workspace.clone(),
            id: id.clone(),
            inputs: Directory { path: path.join(INPUTS), handle: inputs },
            work: Directory { path: path.join(WORK), handle: work },
            artifacts,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn id(&self) -> &ProjectId {
        &self.inner.id
    }

    /// Mounted read-only at `/workspace/inputs`.
    pub fn inputs(&self) -> &Directory {
        &self.inner.inputs
    }

    /// Mounted at `/workspace/work`. Opened with O_PATH, because a box controls its content.
    pub fn work(&self) -> &Directory {
        &self.inner.work
    }

    pub(crate) fn artifacts_root(&self) -> &OwnedFd {
        &self.inner.artifacts
    }

    pub(crate) fn workspace(&self) -> &Workspace {
        &self.inner.workspace
    }

    pub(crate) fn staging(&self) -> &OwnedFd {
        self.inner.workspace.staging()
    }
}

/// Opens a directory that belongs to the workspace's owner. Creates it if missing, and repairs
/// owner and mode, which another thread or a killed server may have left unset.
pub(crate) fn open_owned(directory: &OwnedFd, name: &str, owner: Owner) -> rustix::io::Result<OwnedFd> {
    let owned = match beneath::locate_directory(directory, name) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(directory, name, PRIVATE_DIRECTORY) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            beneath::locate_directory(directory, name)?
        }
        outcome => outcome?,
    };
    let status = rustix::fs::fstat(&owned)?;
    if (status.st_uid, status.st_gid) != (owner.uid, owner.gid) {
        beneath::change_owner(&owned, owner)?;
    }
    let mode = Mode::from_raw_mode(status.st_mode);
    if !mode.contains(PRIVATE_DIRECTORY) {
        beneath::set_mode(&owned, mode | PRIVATE_DIRECTORY)?;
    }
    Ok(owned)
}
