//! Open handles of an agent's files, or of a session's.
//!
//! The directories belong to the workspace's owner, but lie in a directory of the server, so no box
//! can rename or replace them. Trees are separate: a symlink from a session to the agent's files
//! leads out of the tree.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;
use crate::project::{Directory, open_owned};
use crate::workspaces::Workspace;

use super::path::Section;

/// Handles of `files/` and `skills/`, or of a session's `work/`. Cheap to clone; they lead nowhere
/// after the workspace was removed.
#[derive(Debug, Clone)]
pub struct Tree {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    workspace: Workspace,
    sections: Sections,
}

#[derive(Debug)]
enum Sections {
    Agent {
        files: Directory,
        skills: Directory,
    },
    /// `parent` is the server's directory that contains `work`.
    Session {
        parent: OwnedFd,
        work: Directory,
    },
}

impl Workspace {
    /// Opens the agent's files and creates their directories if missing. Safe to call concurrently.
    pub fn tree(&self) -> Result<Tree, Error> {
        let open = |section: Section| {
            let path = section.name();
            let to_error = |errno: Errno| Error::OpenDirectory { path: path.to_owned(), source: errno.into() };
            let handle = open_owned(self.directory(), path, self.owner()).map_err(to_error)?;
            Ok::<_, Error>(Directory { path: self.path().join(path), handle })
        };
        let sections = Sections::Agent { files: open(Section::Files)?, skills: open(Section::Skills)? };
        Ok(Tree { inner: Arc::new(Inner { workspace: self.clone(), sections }) })
    }

    pub(crate) fn session_tree(&self, parent: OwnedFd, work: Directory) -> Tree {
        Tree { inner: Arc::new(Inner { workspace: self.clone(), sections: Sections::Session { parent, work } }) }
    }
}

impl Tree {
    /// Mounted at `/workspace/files` or `/workspace/skills`, or in a session at `/workspace`.
    /// Opened with O_PATH, because a box controls its content. A session has one directory for all
    /// sections; an agent's tree returns `files/` for [`Section::Work`].
    pub fn section(&self, section: Section) -> &Directory {
        match (&self.inner.sections, section) {
            (Sections::Agent { files, .. }, Section::Files | Section::Work) => files,
            (Sections::Agent { skills, .. }, Section::Skills) => skills,
            (Sections::Session { work, .. }, _) => work,
        }
    }

    /// The directories of all sections.
    pub(super) fn sections(&self) -> Vec<&Directory> {
        match &self.inner.sections {
            Sections::Agent { files, skills } => vec![files, skills],
            Sections::Session { work, .. } => vec![work],
        }
    }

    /// The directory of the server that contains the sections; symlinks are resolved beneath it.
    pub(super) fn parent(&self) -> BorrowedFd<'_> {
        match &self.inner.sections {
            Sections::Agent { .. } => self.inner.workspace.directory().as_fd(),
            Sections::Session { parent, .. } => parent.as_fd(),
        }
    }

    pub fn workspace(&self) -> &Workspace {
        &self.inner.workspace
    }
}
