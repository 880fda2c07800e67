//! What a workspace remembers of its baselines: which paths they brought, and with which content.
//!
//! One file of the server's, beside `skills/` and not in it, replaced whole. It is written before a sync changes anything
//! and again when it is done, so that a sync that was cut off is told from a user who deleted a file.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::baselines::blob::Blob;
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
    /// Of the agent's baselines when this workspace was last in step with them.
    pub(crate) generation: u64,
    pub(crate) skills: BTreeMap<SkillName, IndexedSkill>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedSkill {
    /// The version that was last brought in; zero before the first is.
    pub(crate) version: u64,
    pub(crate) presence: Presence,
    pub(crate) files: BTreeMap<RelativePath, IndexedFile>,
}

/// Whether the user has a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Presence {
    Wanted,
    /// The user deleted it whole; no version brings it back.
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IndexedFile {
    /// Contents that are the baseline's: mostly one, or none where the user has a file of their own.
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

    /// An empty one where there is none. One that cannot be read is put aside, and everything is looked at as if for the
    /// first time: what is as the baselines have it is theirs again, the rest is the user's, and what they had deleted of it
    /// comes back.
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
        read().map_err(|source| Error::Baseline { doing: "read the workspace's index of baselines", source })
    }

    pub(crate) fn save(&self, workspace: &Workspace) -> Result<(), Error> {
        beneath::ensure_directory(workspace.directory(), DIRECTORY, PRIVATE_DIRECTORY)
            .map_err(std::io::Error::from)
            .and_then(|directory| write_document(workspace.staging(), &directory, FILE, self))
            .map_err(|source| Error::Baseline { doing: "write the workspace's index of baselines", source })
    }
}
