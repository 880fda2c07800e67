//! Reads and changes an agent's files under the workspace's lock.
//!
//! Long blocking work runs on its own thread and keeps its lock, so it finishes under the lock even
//! if the caller disconnects. A deleted tree is erased after the lock is released, because no path
//! leads to it any more.

use ringwall_workspace::{AgentPath, Change, Download, FilesError, Lines, Listing, SkillName, Text};

use crate::auth::principal::Principal;
use crate::blocking::{self, detached};
use crate::error::{Error, causes};
use crate::service::Service;

use super::open::{Address, Agent};
use crate::disk::{Disk, DiskReservation};

/// A requested replacement of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub old: String,
    pub new: String,
    pub expected: u64,
}

impl Service {
    /// Lists every regular file beneath a directory.
    pub async fn list_files(&self, by: &Principal, address: &Address, path: AgentPath) -> Result<Listing, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        detached(move || {
            let listed = agent.tree.list(&path);
            drop(reading);
            Ok(listed?)
        })
        .await
    }

    /// Reads lines of a file. A `SKILL.md` that lies too deep is moved to its place first.
    pub async fn read_file(
        &self,
        by: &Principal,
        address: &Address,
        path: &AgentPath,
        lines: Lines,
    ) -> Result<Text, Error> {
        let (agent, _reading) = self.read_agent(by, address).await?;
        blocking::in_place(|| {
            let missing = match agent.tree.read(path, lines) {
                Err(missing @ ringwall_workspace::Error::Files(FilesError::Missing(_))) => missing,
                read => return Ok(read?),
            };
            let Some(Ok(skill)) = path.skill_file_of().map(str::parse::<SkillName>) else { return Err(missing.into()) };
            // A single rename, safe for concurrent readers.
            agent.tree.heal_skill(&skill)?;
            Ok(agent.tree.read(path, lines)?)
        })
        .await
    }

    pub async fn edit_file(
        &self,
        by: &Principal,
        address: &Address,
        path: &AgentPath,
        edit: &Edit,
    ) -> Result<(), Error> {
        let (agent, _writing) = self.change_agent(by, address).await?;
        let disk = self.disk_of(&agent);
        blocking::in_place(|| make(agent.tree.edit(path, &edit.old, &edit.new, edit.expected)?, &[&disk])).await
    }

    /// Replaces lines of a file, or the whole file, which is created if missing.
    pub async fn replace_lines(
        &self,
        by: &Principal,
        address: &Address,
        path: &AgentPath,
        lines: Option<Lines>,
        body: &str,
    ) -> Result<(), Error> {
        let (agent, _writing) = self.change_agent(by, address).await?;
        let disk = self.disk_of(&agent);
        blocking::in_place(|| make(agent.tree.replace_lines(path, lines, body.as_bytes())?, &[&disk])).await
    }

    /// The same in an existing skill; writing a file creates no skill.
    pub async fn replace_skill_lines(
        &self,
        by: &Principal,
        address: &Address,
        skill: &str,
        path: &AgentPath,
        lines: Option<Lines>,
        body: &str,
    ) -> Result<(), Error> {
        let directory = AgentPath::skill(skill)?;
        let (agent, _writing) = self.change_agent(by, address).await?;
        let disk = self.disk_of(&agent);
        blocking::in_place(|| {
            require_skill(&agent, &directory)?;
            make(agent.tree.replace_lines(path, lines, body.as_bytes())?, &[&disk])
        })
        .await
    }

    /// Lists every file of an existing skill.
    pub async fn list_skill_files(&self, by: &Principal, address: &Address, skill: &str) -> Result<Listing, Error> {
        let directory = AgentPath::skill(skill)?;
        let (agent, reading) = self.read_agent(by, address).await?;
        detached(move || {
            let _reading = reading;
            require_skill(&agent, &directory)?;
            Ok(agent.tree.list(&directory)?)
        })
        .await
    }

    /// Deletes a file, or a directory with its contents.
    pub async fn delete_path(&self, by: &Principal, address: &Address, path: &AgentPath) -> Result<(), Error> {
        let (agent, writing) = self.change_agent(by, address).await?;
        let removed = blocking::in_place(|| Ok(agent.tree.delete(path)?)).await?;
        drop(writing);
        let disk = self.disk_of(&agent);
        let erased = detached(move || Ok(removed.erase()?)).await;
        if let Err(error) = erased {
            // The path is gone; its space is freed at the next start.
            tracing::warn!(error = %causes(&error), "could not erase deleted files");
        }
        disk.shrink();
        Ok(())
    }

    /// Opens a file, or lists a directory, for download.
    pub async fn download(&self, by: &Principal, address: &Address, path: AgentPath) -> Result<Download, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        detached(move || {
            let download = agent.tree.download(&path);
            drop(reading);
            Ok(download?)
        })
        .await
    }
}

/// Makes a change if these quotas have room for its growth.
pub(crate) fn make(change: Change<'_>, disks: &[&Disk]) -> Result<(), Error> {
    let growth = change.growth();
    let rooms = disks.iter().map(|disk| disk.reserve(growth)).collect::<Result<Vec<DiskReservation>, _>>()?;
    change.apply()?;
    rooms.into_iter().for_each(|room| room.settle(growth));
    Ok(())
}

pub(super) fn require_skill(agent: &Agent, directory: &AgentPath) -> Result<(), Error> {
    if agent.tree.has_directory(directory)? {
        return Ok(());
    }
    Err(FilesError::SkillMissing(directory.given().to_owned()).into())
}
