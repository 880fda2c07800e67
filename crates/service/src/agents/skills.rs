//! The skills of an agent: uploading, listing and deleting them, in a user's own layer or in the one that all share.
//!
//! An upload is received and unpacked before any lock is taken; the lock is held only while it is swapped in. What takes
//! long runs on a thread of its own, and goes on to its end when whoever asked is gone.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::time::Duration;

use workspace::{
    ArchiveLimits, ArchiveRefusal, LayeredSkill, Refusal, SkillName, SkillSummary, StagedSkills, Standing, Tree, Usage,
};

use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;

use super::files::detached;
use super::open::{Address, Agent};
use super::quota::Disk;

const MIB: u64 = 1024 * 1024;
/// How long boxes that follow each other without a gap may keep a new version of a skill away: twice the time of one command.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

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
                let (tree, disk) = (agent.tree.clone(), self.disk_of(&agent));
                let staged = detached(move || unpack(&tree, file, limits, &disk)).await?;
                let disk = self.disk_of(&agent);
                let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
                detached(move || {
                    baselines.install(&id, &staged)?;
                    drop(writing);
                    let names = staged.names().cloned().collect();
                    // The old ones go with it.
                    drop(staged);
                    disk.shrink();
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
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
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
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
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

    /// Brings what an agent shares with others into a workspace, if there is something that it does not have yet. While
    /// boxes run there, skills that it has stay as they are, though not for ever.
    pub(crate) async fn sync_agent(&self, agent: &Agent) -> Result<(), Error> {
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
        let standing = Self::blocking(|| Ok(self.inner.baselines.standing(&id, agent.tree.workspace())?)).await?;
        let alone = || self.inner.agent_boxes.try_write(&agent.user, &agent.agent);
        let is_due = match standing {
            Standing::InStep => return Ok(()),
            Standing::Waiting { since } if since.elapsed() < LONGEST_WAIT => {
                if alone().is_none() {
                    return Ok(());
                }
                false
            }
            Standing::Waiting { .. } => true,
            Standing::Behind => false,
        };
        let writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
        // Held until it is done: a box that comes meanwhile waits.
        let alone = alone();
        let (baselines, tree, disk) = (self.inner.baselines.clone(), agent.tree.clone(), self.disk_of(agent));
        detached(move || {
            let _writing = writing;
            let more = baselines.growth(&id, tree.workspace())?;
            let synced = if alone.is_some() || is_due {
                disk.adding(more, || Ok(baselines.sync(&id, &tree)?))
            } else {
                let synced = disk.require(more).and_then(|()| Ok(baselines.sync_new(&id, &tree)?));
                disk.measure_later();
                synced
            };
            drop(alone);
            match synced {
                // Reading and deleting must go on, or nobody could make room.
                Err(Error::DiskQuota { message }) => {
                    tracing::warn!(agent = %id, message, "baselines wait for room in a workspace");
                    Ok(())
                }
                outcome => outcome,
            }
        })
        .await
    }

    /// Says so where baselines wait for room.
    async fn require_sync(&self, agent: &Agent) -> Result<(), Error> {
        let id = agent.agent.as_str().parse::<workspace::AgentId>()?;
        let (baselines, disk) = (&self.inner.baselines, self.disk_of(agent));
        Self::blocking(|| {
            let workspace = agent.tree.workspace();
            match baselines.standing(&id, workspace)? {
                Standing::InStep => Ok(()),
                Standing::Waiting { .. } | Standing::Behind => disk.require(baselines.growth(&id, workspace)?),
            }
        })
        .await
    }
}

/// Unpacks as much as there is room for. Several uploads may have room while they come and not all of them in the end, so
/// each is counted when it is on the disk, and then judged before any of it takes its place.
fn unpack(tree: &Tree, archive: File, limits: ArchiveLimits, disk: &Disk) -> Result<StagedSkills, Error> {
    let left = disk.left()?;
    let room = ArchiveLimits { bytes: limits.bytes.min(left.bytes), entries: limits.entries.min(left.files) };
    let staged = match tree.unpack_skills(archive, room) {
        Err(workspace::Error::Refused(Refusal::Archive(ArchiveRefusal::Bytes(_)))) if room.bytes < limits.bytes => {
            let message = disk.refuse(Usage { bytes: room.bytes.saturating_add(1), files: 0 });
            return Err(Error::DiskQuota { message });
        }
        Err(workspace::Error::Refused(Refusal::Archive(ArchiveRefusal::Entries(_))))
            if room.entries < limits.entries =>
        {
            let message = disk.refuse(Usage { bytes: 0, files: room.entries.saturating_add(1) });
            return Err(Error::DiskQuota { message });
        }
        outcome => outcome?,
    };
    disk.add(staged.usage());
    match disk.require(Usage::default()) {
        Ok(()) => Ok(staged),
        Err(full) => {
            drop(staged);
            disk.shrink();
            Err(full)
        }
    }
}
