//! Lists the skills of an agent with name, description and warnings.
//!
//! A skill is a first-level folder that has a `SKILL.md` at its root after healing. A skill that
//! cannot be read is left out, and the others are listed.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use ringwall_ids::quote;
use rustix::fs::{Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::Error;
use crate::fs::beneath::{self, entry_type};
use crate::skills::heal::{HealOutcome, heal, nested_skill_files};
use crate::skills::metadata::{self, SkillMetadata};
use crate::tree::{FilesError, SKILL_FILE, Section, Tree, is_reserved};

const DEFAULT_DESCRIPTION: &str = "No description available.";
/// Bounds the work for a box that creates folders without limit.
const MAX_SKILLS: usize = 10_000;
const MAX_NESTED_WARNINGS: usize = 10;
const MAX_RENAME_ATTEMPTS: u32 = 100;

/// One skill in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SkillSummary {
    pub name: String,
    pub description: String,
    /// Agentskills rules that the skill breaks, and other SKILL.md files in it; absent if there are none
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// First-level folders of `skills/`, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct SkillFolders {
    /// At most [`MAX_SKILLS`].
    pub(crate) names: Vec<String>,
    pub(crate) has_more: bool,
}

impl Tree {
    /// Heals and lists all skills, sorted by folder name.
    pub fn list_skills(&self) -> Result<Vec<SkillSummary>, Error> {
        Ok(self.list_skills_by_folder()?.into_iter().map(|(_, skill)| skill).collect())
    }

    pub(crate) fn list_skills_by_folder(&self) -> Result<Vec<(String, SkillSummary)>, Error> {
        let folders = self.skill_folders()?;
        if folders.has_more {
            return Err(FilesError::TooManySkills { max: MAX_SKILLS }.into());
        }
        let mut listed = Vec::new();
        for folder in folders.names {
            // A box may remove or lock the folder at any time, so an error is no reason to fail.
            let skill = self.summarize(&folder).ok().flatten();
            listed.extend(skill.map(|skill| (folder, skill)));
        }
        Ok(listed)
    }

    fn summarize(&self, folder: &str) -> rustix::io::Result<Option<SkillSummary>> {
        let Some(skill) = self.open_skill(folder)? else { return Ok(None) };
        if heal(&skill)? == HealOutcome::Missing {
            return Ok(None);
        }
        let Some(metadata) = self.read_metadata(&skill)? else { return Ok(None) };
        let mut warnings = metadata.warnings(folder);
        for path in nested_skill_files(&skill, MAX_NESTED_WARNINGS)? {
            let path = quote(&String::from_utf8_lossy(&path));
            warnings.push(format!("The skill contains another SKILL.md, which is ignored: {path}."));
        }
        Ok(Some(SkillSummary {
            name: metadata.name.unwrap_or_else(|| folder.to_owned()),
            description: metadata.description.unwrap_or_else(|| DEFAULT_DESCRIPTION.to_owned()),
            warnings,
        }))
    }

    /// `None` if `SKILL.md` is not a regular file, or if it belongs to neither the workspace's
    /// owner nor the server: a server that runs as root can read it, but the owner may not be
    /// allowed to.
    fn read_metadata(&self, skill: &OwnedFd) -> rustix::io::Result<Option<SkillMetadata>> {
        let Some((file, status)) = beneath::open_regular(skill, SKILL_FILE)? else { return Ok(None) };
        if ![self.workspace().owner().uid, rustix::process::geteuid().as_raw()].contains(&status.st_uid) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(metadata::MAX_READ_BYTES).read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
        Ok(Some(SkillMetadata::parse(&String::from_utf8_lossy(&bytes))))
    }

    /// Lists the folders. Renames files called `SKILL.md` beside them, which no API could write
    /// there.
    pub(crate) fn skill_folders(&self) -> Result<SkillFolders, Error> {
        let skills = self.section(Section::Skills);
        let (mut folders, strays) = scan(skills).map_err(|errno| Error::ListSkills(errno.into()))?;
        for name in &strays {
            rename_stray(skills, name);
        }
        folders.names.sort();
        Ok(folders)
    }
}

/// Returns the folders, unsorted, and the names of files that have the reserved name.
fn scan(skills: impl AsFd) -> rustix::io::Result<(SkillFolders, Vec<String>)> {
    let (mut folders, mut strays) = (SkillFolders::default(), Vec::new());
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(&skills, c".", flags, Mode::empty())?)? {
        let entry = entry?;
        // Requests are UTF-8, so no request can name the others.
        let Ok(name) = entry.file_name().to_str() else { continue };
        match entry_type(&skills, entry.file_name(), entry.file_type()).unwrap_or(FileType::Unknown) {
            FileType::Directory if matches!(name, "." | "..") => {}
            FileType::Directory if folders.names.len() == MAX_SKILLS => folders.has_more = true,
            FileType::Directory => folders.names.push(name.to_owned()),
            FileType::RegularFile if is_reserved(name) => strays.push(name.to_owned()),
            _ => {}
        }
    }
    Ok((folders, strays))
}

/// Appends `.misplaced` to the name, or `.misplaced-2` and so on if that exists. After an error the
/// next listing tries again.
fn rename_stray(skills: impl AsFd, name: &str) {
    for number in 1..=MAX_RENAME_ATTEMPTS {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let renamed = format!("{name}.misplaced{number}");
        match rustix::fs::renameat_with(&skills, name, &skills, renamed.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            _ => return,
        }
    }
}
