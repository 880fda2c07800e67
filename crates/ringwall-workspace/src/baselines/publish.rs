//! Publishes uploaded skills as an agent's baselines: all skills of an upload or none, also after a
//! crash.
//!
//! Each skill becomes a directory with a new version number, which nothing refers to yet. Then one
//! rename replaces the file that names the current versions.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_ids::AgentId;
use rustix::fs::{FileType, RenameFlags};

use crate::baselines::blob::Blob;
use crate::baselines::snapshot::{BaselineFile, Current, Files, Snapshot, Version};
use crate::baselines::store::Baselines;
use crate::error::Error;
use crate::fs::durable::write_document;
use crate::fs::erase::erase;
use crate::fs::listing::Walk;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::relative_path::RelativePath;
use crate::skills::{SkillName, StagingDir};

impl Baselines {
    pub(crate) fn publish(&self, agent: &AgentId, staged: &StagingDir) -> Result<(), Error> {
        let to_error = |source| Error::Baseline { operation: "store an upload as baselines", source };
        let described = staged.skills.iter().map(|skill| Ok((skill, describe(&staged.new, skill)?)));
        let described = described.collect::<std::io::Result<Vec<_>>>().map_err(to_error)?;
        let shared = self.shared(agent)?;
        let publishing = shared.publishing.lock();
        let before = self.snapshot(agent)?;
        let mut after = Snapshot { generation: before.generation + 1, skills: before.skills.clone() };
        for (skill, files) in described {
            let number = before.skills.get(skill).map_or(1, |version| version.number + 1);
            let version = self.move_to_version(agent, skill, number, files, &staged.new).map_err(to_error)?;
            after.skills.insert(skill.clone(), Arc::new(version));
        }
        let skills = after.skills.iter().map(|(skill, version)| (skill.clone(), version.number)).collect();
        let current = Current { generation: after.generation, skills };
        write_document(&self.staging, &self.current, &format!("{agent}.json"), &current).map_err(to_error)?;
        *shared.snapshot.lock() = Arc::new(after);
        drop(publishing);
        for skill in &staged.skills {
            if let Some(version) = before.skills.get(skill) {
                self.retire(agent, skill, version);
            }
        }
        drop(before);
        self.remove_retired();
        Ok(())
    }

    /// Moves an unpacked skill to its version directory. A directory left there by a failed upload
    /// is deleted.
    fn move_to_version(
        &self,
        agent: &AgentId,
        skill: &SkillName,
        number: u64,
        files: Files,
        new: &OwnedFd,
    ) -> std::io::Result<Version> {
        let agent_dir = beneath::ensure_directory(&self.root, agent.as_str(), PRIVATE_DIRECTORY)?;
        let skill_dir = beneath::ensure_directory(&agent_dir, skill.as_str(), PRIVATE_DIRECTORY)?;
        let name = number.to_string();
        erase(&skill_dir, &name)?;
        write_document(&self.staging, &skill_dir, &format!("{name}.json"), &files)?;
        rustix::fs::renameat_with(new, skill.as_str(), &skill_dir, name.as_str(), RenameFlags::NOREPLACE)?;
        let directory = beneath::open_directory(&skill_dir, name.as_str())?;
        Ok(Version { number, directory, files })
    }
}

/// Sizes and digests of an unpacked skill's files.
fn describe(new: &OwnedFd, skill: &SkillName) -> std::io::Result<Files> {
    let top = beneath::open_directory(new, skill.as_str())?;
    let mut files = Files::new();
    let mut walk = Walk::new(usize::MAX);
    walk.enter(&top, b"")?;
    while let Some(entry) = walk.next() {
        let path = RelativePath::from_listing(&entry.path).map_err(std::io::Error::other)?;
        match entry.kind {
            FileType::Directory => {
                walk.enter(beneath::open_directory(&top, path.as_str())?, &entry.path)?;
            }
            _ => {
                let opened = beneath::open_regular(&top, path.as_str())?;
                let (file, status) = opened.ok_or(std::io::ErrorKind::InvalidData)?;
                let blob = Blob::of(&file, u64::MAX)?;
                files.insert(path, BaselineFile { blob, mode: status.st_mode & 0o777 });
            }
        }
    }
    Ok(files)
}
