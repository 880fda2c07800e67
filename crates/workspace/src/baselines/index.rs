//! What a workspace remembers of its baselines: which paths they brought, and with which content.
//!
//! One file of the server's, beside `skills/` and not in it, replaced whole. It is written before a sync changes anything
//! and again when it is done, so that a sync that was cut off is told from a user who deleted a file.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::baselines::blob::Blob;
use crate::beneath::{self, PRIVATE_DIRECTORY};
use crate::error::Error;
use crate::exec_id::random_digits;
use crate::relative_path::RelativePath;
use crate::skills::{SkillName, UNFINISHED};
use crate::workspaces::Workspace;

const DIRECTORY: &str = ".baseline";
const FILE: &str = "index.json";
/// A million files of a baseline would not be more.
const BYTES_MAX: u64 = 512 * 1024 * 1024;

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

    /// An empty one where there is none.
    pub(crate) fn load(workspace: &Workspace) -> Result<Self, Error> {
        let read = || -> std::io::Result<Self> {
            let directory = match beneath::open_directory(workspace.directory(), DIRECTORY) {
                Err(Errno::NOENT) => return Ok(Self::default()),
                outcome => outcome?,
            };
            let file = match beneath::open_regular(&directory, FILE) {
                Err(Errno::NOENT) => return Ok(Self::default()),
                outcome => outcome?.map(|(file, _)| file).ok_or(Errno::INVAL)?,
            };
            let mut text = Vec::new();
            file.take(BYTES_MAX).read_to_end(&mut text)?;
            Ok(serde_json::from_slice(&text)?)
        };
        read().map_err(|source| Error::Baseline { doing: "read the index of a workspace's", source })
    }

    pub(crate) fn save(&self, workspace: &Workspace) -> Result<(), Error> {
        let staged = format!("{UNFINISHED}{}", random_digits()?);
        let write = || -> std::io::Result<()> {
            let directory = beneath::ensure_directory(workspace.directory(), DIRECTORY, PRIVATE_DIRECTORY)?;
            let mut file = beneath::create_file(workspace.staging(), staged.as_str())?;
            file.write_all(&serde_json::to_vec(self)?)?;
            Ok(rustix::fs::renameat(workspace.staging(), staged.as_str(), &directory, FILE)?)
        };
        let written = write().map_err(|source| Error::Baseline { doing: "write the index of a workspace's", source });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(workspace.staging(), staged.as_str(), rustix::fs::AtFlags::empty());
        }
        written
    }
}
