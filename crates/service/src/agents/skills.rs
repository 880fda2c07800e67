//! The skills of an agent: uploading, listing and deleting them, in a user's own layer or in the one that all share.
//!
//! An upload is received and unpacked before any lock is taken; the lock is held only while it is swapped in. What takes
//! long runs on a thread of its own, and goes on to its end when whoever asked is gone.

use std::fs::File;
use std::io::{self, Seek, Write};

use workspace::{ArchiveLimits, SkillName, SkillSummary};

use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;

use super::files::detached;
use super::open::{Address, Agent};

const MIB: u64 = 1024 * 1024;

/// Where an uploaded skill goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SkillLayer {
    /// The user's own.
    #[default]
    Overlay,
    /// Shared by all users of the agent, and read-only to them.
    Baseline,
}

/// An upload that is being received. What is written to it has no name anywhere, and is gone when it is dropped.
#[derive(Debug)]
pub struct SkillUpload {
    agent: Agent,
    file: File,
}

impl Write for SkillUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Service {
    /// How much an upload may hold, and any other body that concerns an agent's files.
    pub fn upload_max_bytes(&self) -> u64 {
        u64::from(self.settings_now().files.upload_max_mb.get()) * MIB
    }

    pub async fn begin_skill_upload(&self, by: &Principal, address: &Address) -> Result<SkillUpload, Error> {
        let agent = self.open_agent(by, address).await?;
        let file = Self::blocking(|| Ok(agent.tree.workspace().upload_file()?)).await?;
        Ok(SkillUpload { agent, file })
    }

    /// Unpacks what was received and swaps it in: all skills of the upload, or none. Their names.
    pub async fn finish_skill_upload(
        &self,
        by: &Principal,
        upload: SkillUpload,
        layer: SkillLayer,
    ) -> Result<Vec<SkillName>, Error> {
        let SkillUpload { agent, mut file } = upload;
        let limits = self.archive_limits();
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
        let baselines = self.inner.baselines.clone();
        let rewound = file.rewind();
        rewound.map_err(|error| Error::runtime("read an upload", &error))?;
        match layer {
            SkillLayer::Baseline => {
                by.require_operator("upload to the baseline")?;
                detached(move || Ok(baselines.upload(&id, file, limits)?)).await
            }
            SkillLayer::Overlay => {
                let tree = agent.tree.clone();
                let staged = detached(move || Ok(tree.unpack_skills(file, limits)?)).await?;
                let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
                detached(move || {
                    baselines.install(&id, &staged)?;
                    drop(writing);
                    Ok(staged.names().cloned().collect())
                })
                .await
            }
        }
    }

    /// What skills an agent has, shared ones too. Heals those whose `SKILL.md` is not where it should be: a single rename,
    /// which any number may try at once.
    pub async fn agent_skills(&self, by: &Principal, address: &Address) -> Result<Vec<SkillSummary>, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        detached(move || {
            let _reading = reading;
            Ok(agent.tree.list_skills()?)
        })
        .await
    }

    /// Deletes a skill for its user alone.
    pub async fn delete_skill(&self, by: &Principal, address: &Address, name: &str) -> Result<(), Error> {
        let skill: SkillName = name.parse()?;
        let (agent, writing) = self.change_agent(by, address).await?;
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
        let baselines = self.inner.baselines.clone();
        detached(move || {
            let deleted = baselines.delete(&id, &agent.tree, &skill)?;
            drop(writing);
            // Taking it apart needs no lock: nobody sees it any more.
            drop(deleted);
            Ok(())
        })
        .await
    }

    fn archive_limits(&self) -> ArchiveLimits {
        let skills = &self.settings_now().skills;
        ArchiveLimits { bytes: u64::from(skills.unpacked_max_mb.get()) * MIB, entries: skills.entries_max.get().into() }
    }

    /// Brings what an agent shares with others into a workspace, if there is something that it does not have yet.
    pub(crate) async fn sync_agent(&self, agent: &Agent) -> Result<(), Error> {
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
        if Self::blocking(|| Ok(self.inner.baselines.is_synced(&id, agent.tree.workspace())?)).await? {
            return Ok(());
        }
        let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
        let (baselines, tree) = (self.inner.baselines.clone(), agent.tree.clone());
        detached(move || {
            let _writing = writing;
            Ok(baselines.sync(&id, &tree)?)
        })
        .await
    }
}
