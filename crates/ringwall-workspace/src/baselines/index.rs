//! The index of a workspace: which paths in `skills/` come from baselines, with which content.
//!
//! It is a file of the server outside of `skills/`, written as a whole before a sync changes
//! anything and again at its end. So a path that an interrupted sync did not create yet is not
//! taken for a file that the user deleted.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::baselines::snapshot::Blob;
use crate::error::Error;
use crate::fs::durable::{read_document, write_document};
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::relative_path::RelativePath;
use crate::skills::SkillName;
use crate::workspaces::Workspace;

const DIRECTORY: &str = ".baseline";
const FILE: &str = "index.json";
const UNREADABLE: &str = "unreadable.json";

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// The generation of the agent's baselines at the last complete sync.
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, IndexedSkill>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedSkill {
    /// The version of the last sync; 0 before the first.
    pub(crate) version: u64,
    pub(crate) presence: Presence,
    pub(crate) files: BTreeMap<RelativePath, IndexedFile>,
}

/// Records a deletion of the skill by the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Presence {
    Wanted,
    /// The user deleted the skill; new versions do not restore it.
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedFile {
    /// Contents that count as the baseline's. Usually one; several while a sync is in progress;
    /// none if the user deleted the file before the baseline did.
    pub(crate) known: Vec<Blob>,
    pub(crate) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Settled,
    Unsettled,
}

impl Default for IndexedSkill {
    fn default() -> Self {
        Self { version: 0, presence: Presence::Wanted, files: BTreeMap::new() }
    }
}

impl Index {
    pub(crate) fn is_there(workspace: &Workspace) -> bool {
        beneath::locate(workspace.directory(), format!("{DIRECTORY}/{FILE}").as_str()).is_ok()
    }

    /// Loads the index, or an empty one if there is none.
    ///
    /// An index that cannot be parsed is renamed and replaced by an empty one. Files equal to the
    /// baseline then count as the baseline's, others as the user's, and files that the user deleted
    /// come back.
    pub(crate) fn load(workspace: &Workspace) -> Result<Self, Error> {
        let read = || -> std::io::Result<Self> {
            let directory = match beneath::open_directory(workspace.directory(), DIRECTORY) {
                Err(Errno::NOENT) => return Ok(Self::default()),
                outcome => outcome?,
            };
            match read_document(&directory, FILE) {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    rustix::fs::renameat(&directory, FILE, &directory, UNREADABLE)?;
                    Ok(Self::default())
                }
                outcome => outcome,
            }
        };
        read().map_err(|source| Error::Baseline { operation: "read the workspace's index of baselines", source })
    }

    pub(crate) fn save(&self, workspace: &Workspace) -> Result<(), Error> {
        beneath::ensure_directory(workspace.directory(), DIRECTORY, PRIVATE_DIRECTORY)
            .map_err(std::io::Error::from)
            .and_then(|directory| write_document(workspace.staging(), &directory, FILE, self))
            .map_err(|source| Error::Baseline { operation: "write the workspace's index of baselines", source })
    }
}
