//! The directories of an agent's files, or the one of a session's, open.
//!
//! They are the workspace's own and made like a project's `work`: their names and the directory that holds them stay the
//! server's, so that no box can put something else in their places. Two trees have nothing in common: a link that leads from a
//! session to the agent's files leads out.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;
use crate::project::{Directory, open_owned};
use crate::workspaces::Workspace;

use super::path::Section;

/// Handles of `files/` and `skills/`, or of a session's `work/`. Cheap to clone, and good until the workspace is removed.
#[derive(Debug, Clone)]
pub struct Tree {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    workspace: Workspace,
    tops: Tops,
}

#[derive(Debug)]
enum Tops {
    Agent {
        files: Directory,
        skills: Directory,
    },
    /// With the directory of the server's that holds it.
    Session {
        holder: OwnedFd,
        work: Directory,
    },
}

impl Workspace {
    /// Opens the agent's files, making their directories if they are missing. Any number may ask at once.
    pub fn tree(&self) -> Result<Tree, Error> {
        let open = |section: Section| {
            let place = section.name();
            let fail = |errno: Errno| Error::OpenDirectory { place: place.to_owned(), source: errno.into() };
            let handle = open_owned(self.directory(), place, self.owner()).map_err(fail)?;
            Ok::<_, Error>(Directory { path: self.path().join(place), handle })
        };
        let tops = Tops::Agent { files: open(Section::Files)?, skills: open(Section::Skills)? };
        Ok(Tree { held: Arc::new(Held { workspace: self.clone(), tops }) })
    }

    /// The files of a session that was opened.
    pub(crate) fn session_tree(&self, holder: OwnedFd, work: Directory) -> Tree {
        Tree { held: Arc::new(Held { workspace: self.clone(), tops: Tops::Session { holder, work } }) }
    }
}

impl Tree {
    /// What a box sees at `/workspace/files` or `/workspace/skills`, or in a session at `/workspace`. Located only (O_PATH):
    /// what is in it is the box's. What a session does not have is its one directory.
    pub fn section(&self, section: Section) -> &Directory {
        match (&self.held.tops, section) {
            (Tops::Agent { files, .. }, Section::Files | Section::Work) => files,
            (Tops::Agent { skills, .. }, Section::Skills) => skills,
            (Tops::Session { work, .. }, _) => work,
        }
    }

    /// All that there are.
    pub(super) fn tops(&self) -> Vec<&Directory> {
        match &self.held.tops {
            Tops::Agent { files, skills } => vec![files, skills],
            Tops::Session { work, .. } => vec![work],
        }
    }

    /// The directory that holds them, beneath which links may lead.
    pub(super) fn holder(&self) -> BorrowedFd<'_> {
        match &self.held.tops {
            Tops::Agent { .. } => self.held.workspace.directory().as_fd(),
            Tops::Session { holder, .. } => holder.as_fd(),
        }
    }

    pub fn workspace(&self) -> &Workspace {
        &self.held.workspace
    }
}
