//! The skills of an agent: uploading, listing and deleting them, in a user's own layer or in the one that all share.
//!
//! An upload is received and unpacked before any lock is taken; the lock is held only while it is swapped in. What takes
//! long runs on a thread of its own, and goes on to its end when whoever asked is gone.

use std::fs::File;
use std::io::{self, Seek, Write};

use ringwall_workspace::{ArchiveLimits, LayeredSkill, SkillName, SkillSummary, Standing, Usage};

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

use super::files::detached;
use super::open::{Address, Agent};
use super::room::Room;
use super::upload::keep_for;

const MIB: u64 = 1024 * 1024;
const TO_BASELINE: &str = "upload to the baseline";
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
    written: u64,
    /// In the workspace, for the archive and then for what is in it, whichever is more. What all share takes none there.
    room: Option<Room>,
}

impl Write for SkillUpload {
    /// What there is no room for is an error of the kind `QuotaExceeded`, in words for whoever sends it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(room) = &mut self.room {
            keep_for(room, self.written.saturating_add(bytes.len() as u64))?;
        }
        let count = self.file.write(bytes)?;
        self.written += count as u64;
        Ok(count)
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

    /// Begins an upload to a layer, as far as that is known already.
    pub async fn begin_skill_upload(
        &self,
        by: &Principal,
        address: &Address,
        layer: SkillLayer,
    ) -> Result<SkillUpload, Error> {
        let agent = self.open_agent(by, address).await?;
        let (disk, baselines) = (self.disk_of(&agent), &self.inner.baselines);
        if layer == SkillLayer::Baseline {
            by.require_operator(TO_BASELINE)?;
        }
        Self::blocking(|| {
            let (file, room) = match layer {
                SkillLayer::Overlay => (agent.tree.workspace().upload_file()?, Some(disk.reserve(Usage::default())?)),
                SkillLayer::Baseline => (baselines.upload_file()?, None),
            };
            Ok(SkillUpload { agent, file, written: 0, room })
        })
        .await
    }

    /// Unpacks what was received and swaps it in: all skills of the upload, or none. Their names.
    pub async fn finish_skill_upload(
        &self,
        by: &Principal,
        upload: SkillUpload,
        layer: SkillLayer,
    ) -> Result<Vec<SkillName>, Error> {
        let SkillUpload { agent, mut file, room, .. } = upload;
        let limits = self.archive_limits();
        let id = agent.agent.as_str().parse::<ringwall_workspace::AgentId>()?;
        let baselines = self.inner.baselines.clone();
        let rewound = file.rewind();
        rewound.map_err(|error| Error::runtime("read an upload", &error))?;
        match layer {
            SkillLayer::Baseline => {
                by.require_operator(TO_BASELINE)?;
                detached(move || Ok(baselines.upload(&id, file, limits)?)).await
            }
            SkillLayer::Overlay => {
                let (tree, disk) = (agent.tree.clone(), self.disk_of(&agent));
                let (staged, room, usage) = detached(move || {
                    let packed = tree.check_skill_archive(file, limits)?;
                    let usage = packed.usage();
                    let mut room = room.map_or_else(|| disk.reserve(usage), Ok)?;
                    room.reach(usage)?;
                    Ok((packed.unpack()?, room, usage))
                })
                .await?;
                let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
                detached(move || {
                    baselines.install(&id, &staged)?;
                    drop(writing);
                    let names = staged.names().cloned().collect();
                    // The old ones go with it.
                    drop(staged);
                    room.settle(usage);
                    Ok(names)
                })
                .await
            }
        }
    }

    /// What skills an agent has, shared ones too. Heals those whose `SKILL.md` is not where it should be: a single rename,
    /// which any number may try at once.
    pub async fn agent_skills(&self, by: &Principal, address: &Address) -> Result<Vec<SkillSummary>, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        // Without room for what the agent shares with others, this would not be the list.
        self.require_sync(&agent).await?;
        detached(move || {
            let _reading = reading;
            Ok(agent.tree.list_skills()?)
        })
        .await
    }

    /// The same, with the layer that each comes from.
    pub async fn layered_skills(&self, by: &Principal, address: &Address) -> Result<Vec<LayeredSkill>, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        self.require_sync(&agent).await?;
        let id = agent.agent.as_str().parse::<ringwall_workspace::AgentId>()?;
        let baselines = self.inner.baselines.clone();
        detached(move || {
            let _reading = reading;
            Ok(baselines.list_layered(&id, &agent.tree)?)
        })
        .await
    }

    /// Deletes a skill for its user alone.
    pub async fn delete_skill(&self, by: &Principal, address: &Address, name: &str) -> Result<(), Error> {
        let skill: SkillName = name.parse()?;
        let (agent, writing) = self.change_agent(by, address).await?;
        let id = agent.agent.as_str().parse::<ringwall_workspace::AgentId>()?;
        let (baselines, disk) = (self.inner.baselines.clone(), self.disk_of(&agent));
        detached(move || {
            let deleted = baselines.delete(&id, &agent.tree, &skill)?;
            drop(writing);
            // Taking it apart needs no lock: nobody sees it any more.
            drop(deleted);
            disk.shrink();
            Ok(())
        })
        .await
    }

    fn archive_limits(&self) -> ArchiveLimits {
        let skills = &self.settings_now().skills;
        ArchiveLimits { bytes: u64::from(skills.unpacked_max_mb.get()) * MIB, entries: skills.entries_max.get().into() }
    }

    /// Says so where baselines wait for room.
    async fn require_sync(&self, agent: &Agent) -> Result<(), Error> {
        let id = agent.agent.as_str().parse::<ringwall_workspace::AgentId>()?;
        let (baselines, disk) = (&self.inner.baselines, self.disk_of(agent));
        Self::blocking(|| {
            let workspace = agent.tree.workspace();
            match baselines.standing(&id, workspace)? {
                Standing::InStep => Ok(()),
                Standing::Waiting { .. } | Standing::Behind => {
                    disk.reserve(baselines.growth(&id, workspace)?).map(drop)
                }
            }
        })
        .await
    }
}
