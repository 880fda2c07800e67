//! The two directories of an agent's files, open.
//!
//! They are the workspace's own and made like a project's `work`: their names and the directory that holds them stay the
//! server's, so that no box can put something else in their places.

use std::sync::Arc;

use rustix::io::Errno;

use crate::error::Error;
use crate::project::{Directory, open_owned};
use crate::workspaces::Workspace;

use super::path::Section;

/// Handles of `files/` and `skills/`. Cheap to clone, and good until the workspace is removed.
#[derive(Debug, Clone)]
pub struct Tree {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    workspace: Workspace,
    files: Directory,
    skills: Directory,
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
        let held = Held { workspace: self.clone(), files: open(Section::Files)?, skills: open(Section::Skills)? };
        Ok(Tree { held: Arc::new(held) })
    }
}

impl Tree {
    /// What a box sees at `/workspace/files` or `/workspace/skills`. Located only (O_PATH): what is in it is the box's.
    pub fn section(&self, section: Section) -> &Directory {
        match section {
            Section::Files => &self.held.files,
            Section::Skills => &self.held.skills,
        }
    }

    pub fn workspace(&self) -> &Workspace {
        &self.held.workspace
    }
}
