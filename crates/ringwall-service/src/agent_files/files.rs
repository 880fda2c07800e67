//! Reading and changing an agent's files, each under its workspace's lock.
//!
//! What blocks for long goes to a thread of its own and takes its lock along: whoever asked may go away, and nobody else
//! is let in before the work is done. A deleted tree is taken apart after the lock is given back, because nobody can see
//! it any more.

use ringwall_workspace::{AgentPath, Change, Download, Lines, Listing, Refusal, SkillName, Text};

use crate::auth::principal::Principal;
use crate::error::{Error, causes};
use crate::service::Service;

use super::open::{Address, Agent};
use super::quota::Disk;
use super::room::Room;

/// A replacement that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub old: String,
    pub new: String,
    pub expected: u64,
}

impl Service {
    /// Every regular file beneath a directory.
    pub async fn list_files(&self, by: &Principal, address: &Address, path: AgentPath) -> Result<Listing, Error> {
        let (agent, reading) = self.read_agent(by, address).await?;
        detached(move || {
            let listed = agent.tree.list(&path);
            drop(reading);
            Ok(listed?)
        })
        .await
    }

    /// Lines of a file. A skill's own file that lies too deep is put into its place first.
    pub async fn read_file(
        &self,
        by: &Principal,
        address: &Address,
        path: &AgentPath,
        lines: Lines,
    ) -> Result<Text, Error> {
        let (agent, _reading) = self.read_agent(by, address).await?;
        Self::blocking(|| {
            let missing = match agent.tree.read(path, lines) {
                Err(missing @ ringwall_workspace::Error::Refused(Refusal::Missing(_))) => missing,
                read => return Ok(read?),
            };
            let Some(Ok(skill)) = path.skill_file_of().map(str::parse::<SkillName>) else { return Err(missing.into()) };
            // A single rename, which any number may try at once.
            agent.tree.heal_skill(&skill)?;
            Ok(agent.tree.read(path, lines)?)
        })
        .await
    }

    pub async fn write_file(
        &self,
        by: &Principal,
        address: &Address,
        path: &AgentPath,
        content: &str,
    ) -> Result<(), Error> {
        let (agent, _writing) = self.change_agent(by, address).await?;
        let disk = self.disk_of(&agent);
        Self::blocking(|| make(agent.tree.replace_lines(path, None, content.as_bytes())?, &[&disk])).await
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
        Self::blocking(|| make(agent.tree.edit(path, &edit.old, &edit.new, edit.expected)?, &[&disk])).await
    }

    /// Replaces lines of a file, or all of it, which makes it if it is missing.
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
        Self::blocking(|| make(agent.tree.replace_lines(path, lines, body.as_bytes())?, &[&disk])).await
    }

    /// The same in a skill that is there; a file does not make one.
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
        Self::blocking(|| {
            require_skill(&agent, &directory)?;
            make(agent.tree.replace_lines(path, lines, body.as_bytes())?, &[&disk])
        })
        .await
    }

    /// Every file of a skill that is there.
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

    /// Deletes a file, or a directory with everything in it.
    pub async fn delete_path(&self, by: &Principal, address: &Address, path: &AgentPath) -> Result<(), Error> {
        let (agent, writing) = self.change_agent(by, address).await?;
        let removed = Self::blocking(|| Ok(agent.tree.delete(path)?)).await?;
        drop(writing);
        let disk = self.disk_of(&agent);
        let erased = detached(move || Ok(removed.erase()?)).await;
        if let Err(error) = erased {
            // It is deleted all the same; the room that it takes is given back at the next start.
            tracing::warn!(error = %causes(&error), "could not erase what was deleted");
        }
        disk.shrink();
        Ok(())
    }

    /// Opens a file, or finds what is in a directory, to be sent.
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

/// Makes a change, if there is room on these disks for what it adds.
pub(crate) fn make(change: Change<'_>, disks: &[&Disk]) -> Result<(), Error> {
    let growth = change.growth();
    let rooms = disks.iter().map(|disk| disk.reserve(growth)).collect::<Result<Vec<Room>, _>>()?;
    change.make()?;
    rooms.into_iter().for_each(|room| room.settle(growth));
    Ok(())
}

pub(super) fn require_skill(agent: &Agent, directory: &AgentPath) -> Result<(), Error> {
    if agent.tree.has_directory(directory)? {
        return Ok(());
    }
    Err(Refusal::SkillMissing(directory.given().to_owned()).into())
}

/// Does what may take long on a thread of its own, to its end, whoever still waits for it.
pub(crate) async fn detached<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::runtime("finish what was begun", &error)),
    }
}
