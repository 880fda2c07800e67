//! The root directory of all workspaces, and one workspace: the files of one agent of one user.
//!
//! The root has mode 0700, so other users of the host cannot reach anything in it, independent of
//! the modes further down. If the server runs as root, each workspace has a host user of its own;
//! otherwise the server's user owns everything. Only directories that boxes write to belong to the
//! workspace's user; their parents belong to the server.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringwall_ids::{AgentId, ProjectId, UserId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::recycle::{ExecPresence, OverlapTracker};
use crate::fs::beneath::{self, PRIVATE_DIRECTORY};
use crate::fs::erase::erase_in_staging;
use crate::project::Project;
use crate::tree::{LineIndexCache, NamesCache, TextMemory};

/// Lets a box's user pass through a directory without listing it.
pub(crate) const SEARCHABLE_DIRECTORY: Mode = Mode::from_raw_mode(0o711);
pub(crate) const STAGING: &str = ".staging";
pub(crate) const PROJECTS: &str = "projects";

/// A uid and gid of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// The server's own uid and gid. Every workspace of a rootless server has this owner.
    pub fn server() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

/// The root directory of all workspaces.
#[derive(Debug)]
pub struct Workspaces {
    pub(crate) root: OwnedFd,
    path: PathBuf,
    pub(crate) shared: Arc<Shared>,
}

/// State that all workspaces share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) overlaps: OverlapTracker,
    pub(crate) line_indexes: LineIndexCache,
    pub(crate) text_memory: TextMemory,
    pub(crate) names: NamesCache,
}

/// The files of one (user, agent). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    owner: Owner,
    path: PathBuf,
    directory: OwnedFd,
    projects: OwnedFd,
    staging: OwnedFd,
    shared: Arc<Shared>,
}

impl Workspaces {
    /// Opens the root and creates it if missing. A symlink that the operator put there is followed.
    ///
    /// Open each root only once: this value tracks which execs overlap in a workspace.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let to_error = |source| Error::OpenRoot { path: root.to_owned(), source };
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY.as_raw_mode()).create(root).map_err(to_error)?;
        let to_error = |errno: Errno| to_error(errno.into());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(root, flags, Mode::empty()).map_err(to_error)?;
        let status = rustix::fs::fstat(&handle).map_err(to_error)?;
        if status.st_uid != Owner::server().uid {
            return Err(Error::RootForeign { path: root.to_owned(), owner: status.st_uid });
        }
        if Mode::from_raw_mode(status.st_mode) != PRIVATE_DIRECTORY {
            rustix::fs::fchmod(&handle, PRIVATE_DIRECTORY).map_err(to_error)?;
        }
        let path = OsString::from_vec(beneath::real_path(&handle).map_err(to_error)?).into();
        Ok(Self { root: handle, path, shared: Arc::default() })
    }

    /// Opens a workspace and creates it if missing.
    pub fn workspace(&self, user: &UserId, agent: &AgentId, owner: Owner) -> Result<Workspace, Error> {
        let to_error = |path: String| move |errno: Errno| Error::OpenDirectory { path, source: errno.into() };
        let user_dir = beneath::ensure_directory(&self.root, user.as_str(), SEARCHABLE_DIRECTORY)
            .map_err(to_error(user.to_string()))?;
        let relative_path = || format!("{user}/{agent}");
        let directory = beneath::ensure_directory(&user_dir, agent.as_str(), SEARCHABLE_DIRECTORY)
            .map_err(to_error(relative_path()))?;
        let projects =
            beneath::ensure_directory(&directory, PROJECTS, SEARCHABLE_DIRECTORY).map_err(to_error(PROJECTS.into()))?;
        let staging =
            beneath::ensure_directory(&directory, STAGING, SEARCHABLE_DIRECTORY).map_err(to_error(STAGING.into()))?;
        let path = self.path.join(user.as_str()).join(agent.as_str());
        let inner = Inner { owner, path, directory, projects, staging, shared: Arc::clone(&self.shared) };
        Ok(Workspace { inner: Arc::new(inner) })
    }
}

impl Workspace {
    /// Opens a project and creates it if missing. Safe to call concurrently.
    pub fn project(&self, id: &ProjectId) -> Result<Project, Error> {
        let to_error = |errno: Errno| Error::OpenDirectory { path: format!("{PROJECTS}/{id}"), source: errno.into() };
        let directory =
            beneath::ensure_directory(self.projects(), id.as_str(), SEARCHABLE_DIRECTORY).map_err(to_error)?;
        Project::open(self, id, &directory)
    }

    /// Opens an existing project.
    pub fn find_project(&self, id: &ProjectId) -> Result<Project, Error> {
        match beneath::open_directory(self.projects(), id.as_str()) {
            Ok(directory) => Project::open(self, id, &directory),
            Err(Errno::NOENT) => Err(Error::ProjectMissing(id.clone())),
            Err(errno) => Err(Error::OpenDirectory { path: format!("{PROJECTS}/{id}"), source: errno.into() }),
        }
    }

    /// Removes a project with everything in it. None of its execs may be running. Handles of the
    /// project lead nowhere afterwards.
    pub fn remove_project(&self, id: &ProjectId) -> Result<(), Error> {
        let to_error = |errno: Errno| Error::Remove { subject: format!("the project {id}"), source: errno.into() };
        erase_in_staging(self.projects(), id.as_str(), self.staging()).map_err(to_error)
    }

    pub fn owner(&self) -> Owner {
        self.inner.owner
    }

    pub(crate) fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The workspace's own directory, which no box can reach.
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.inner.directory
    }

    pub(crate) fn projects(&self) -> &OwnedFd {
        &self.inner.projects
    }

    /// `.staging`: artifacts directories of running execs, files that are not complete yet, and
    /// files that are being deleted. A sweep removes leftovers, but not the directory `spare`.
    pub(crate) fn staging(&self) -> &OwnedFd {
        &self.inner.staging
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Registers one more exec that runs in this workspace.
    pub(crate) fn enter(&self) -> rustix::io::Result<ExecPresence> {
        self.inner.shared.overlaps.enter(self.staging())
    }
}
