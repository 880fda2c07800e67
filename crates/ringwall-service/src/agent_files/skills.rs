//! Uploads, lists and deletes skills of an agent, in a user's overlay or in the baseline that all
//! users share.
//!
//! An upload is received and unpacked before a lock is taken; the lock covers only the swap. Long
//! work runs on its own thread and finishes also if the caller disconnects.

use std::fs::File;
use std::io::{self, Seek, Write};

use ringwall_workspace::{ArchiveLimits, LayeredSkill, SkillName, SkillSummary, SyncState, Usage};

use crate::auth::principal::Principal;
use crate::blocking::{self, detached};
use crate::disk::{DiskReservation, MIB};
use crate::error::{Error, causes};
use crate::service::Service;

use super::open::{Address, Agent};
use super::upload::keep_for;

const TO_BASELINE: &str = "upload to the baseline";

/// The layer that an upload changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SkillLayer {
    /// The user's own.
    #[default]
    Overlay,
    /// Shared by all users of the agent, and read-only to them.
    Baseline,
}

/// An upload in progress. Its file has no name and vanishes when this is dropped.
#[derive(Debug)]
pub struct SkillUpload {
    agent: Agent,
    file: File,
    written: u64,
    /// The reservation in the workspace: the larger of archive and contents. A baseline needs none
    /// there.
    room: Option<DiskReservation>,
}

impl Write for SkillUpload {
    /// Fails with `QuotaExceeded` and a message for the user if the quota has no room.
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
    /// The size limit of an upload and of other bodies for an agent's files.
    pub fn upload_max_bytes(&self) -> u64 {
        u64::from(self.settings_now().files.upload_max_mb.get()) * MIB
    }

    /// Begins an upload; the layer may still be unknown.
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
        blocking::in_place(|| {
            let (file, room) = match layer {
                SkillLayer::Overlay => (agent.tree.workspace().upload_file()?, Some(disk.reserve(Usage::default())?)),
                SkillLayer::Baseline => (baselines.upload_file()?, None),
            };
            Ok(SkillUpload { agent, file, written: 0, room })
        })
        .await
    }

    /// Unpacks the upload and swaps all its skills in, or none. Returns their names.
    pub async fn finish_skill_upload(
        &self,
        by: &Principal,
        upload: SkillUpload,
        layer: SkillLayer,
    ) -> Result<Vec<SkillName>, Error> {
        let SkillUpload { agent, mut file, room, .. } = upload;
        let limits = self.archive_limits();
        let id = agent.agent.clone();
        let baselines = self.inner.baselines.clone();
        file.rewind().map_err(|error| Error::runtime("read an upload", &error))?;
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
                    // This also deletes the old versions.
                    drop(staged);
                    room.settle(usage);
                    Ok(names)
                })
                .await
            }
        }
    }

    /// Lists the skills of an agent, shared ones included. Moves a misplaced `SKILL.md` to its
    /// place, which is a single rename and safe for concurrent requests.
    pub async fn agent_skills(&self, by: &Principal, address: &Address) -> Result<Vec<SkillSummary>, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        // If the baselines could not be checked out for lack of room, the list would be incomplete.
        self.require_sync(&agent).await?;
        detached(move || {
            let _reading = reading;
            Ok(agent.tree.list_skills()?)
        })
        .await
    }

    /// The same with the layer of each skill.
    pub async fn layered_skills(&self, by: &Principal, address: &Address) -> Result<Vec<LayeredSkill>, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        self.require_sync(&agent).await?;
        let id = agent.agent.clone();
        let baselines = self.inner.baselines.clone();
        detached(move || {
            let _reading = reading;
            Ok(baselines.list_layered(&id, &agent.tree)?)
        })
        .await
    }

    /// Deletes a skill of this user only.
    pub async fn delete_skill(&self, by: &Principal, address: &Address, name: &str) -> Result<(), Error> {
        let skill: SkillName = name.parse()?;
        let (agent, writing) = self.change_agent(by, address).await?;
        let id = agent.agent.clone();
        let (baselines, disk) = (self.inner.baselines.clone(), self.disk_of(&agent));
        detached(move || {
            let removed = baselines.delete(&id, &agent.tree, &skill)?;
            drop(writing);
            // Erasing needs no lock, because no path leads to it any more.
            if let Err(error) = removed.erase() {
                tracing::warn!(error = %causes(&error), "could not erase a deleted skill");
            }
            disk.shrink();
            Ok(())
        })
        .await
    }

    fn archive_limits(&self) -> ArchiveLimits {
        let skills = &self.settings_now().skills;
        ArchiveLimits { bytes: u64::from(skills.unpacked_max_mb.get()) * MIB, entries: skills.entries_max.get().into() }
    }

    /// Fails if baselines wait for room in the quota.
    async fn require_sync(&self, agent: &Agent) -> Result<(), Error> {
        let id = agent.agent.clone();
        let (baselines, disk) = (&self.inner.baselines, self.disk_of(agent));
        blocking::in_place(|| {
            let workspace = agent.tree.workspace();
            match baselines.sync_state(&id, workspace)? {
                SyncState::UpToDate => Ok(()),
                SyncState::Pending { .. } | SyncState::Outdated => {
                    disk.reserve(baselines.growth(&id, workspace)?).map(drop)
                }
            }
        })
        .await
    }
}
