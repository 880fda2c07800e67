//! What skills there are, as they describe themselves.
//!
//! A skill is a first-level folder with a `SKILL.md` at its root, after healing. Whatever is wrong with one does not
//! keep the others from being listed; what is odd about one is said as warnings.

use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{Dir, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use utoipa::ToSchema;

use crate::beneath;
use crate::error::{Error, quote};
use crate::skills::front_matter::{self, About};
use crate::skills::heal::{Healing, NESTED_SHOWN, heal, misplaced};
use crate::skills::rules;
use crate::tree::{SKILL_FILE, Section, Tree};

const NO_DESCRIPTION: &str = "No description available.";
/// Folders that are looked at; nobody reads a longer list, and a box could make them by the million.
const SKILLS_MAX: usize = 10_000;

/// One skill of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct SkillSummary {
    pub name: String,
    pub description: String,
    /// What the rules for skills do not like about it; absent where there is nothing
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Tree {
    /// All skills in the order of their folders' names. Heals what can be healed.
    pub fn list_skills(&self) -> Result<Vec<SkillSummary>, Error> {
        Ok(self.list_skills_by_folder()?.into_iter().map(|(_, skill)| skill).collect())
    }

    pub(crate) fn list_skills_by_folder(&self) -> Result<Vec<(String, SkillSummary)>, Error> {
        let mut listed = Vec::new();
        for folder in self.skill_folders()? {
            // What cannot be read is not listed: a folder may go, or be closed, at any moment.
            let skill = self.summarise(&folder).ok().flatten();
            listed.extend(skill.map(|skill| (folder, skill)));
        }
        Ok(listed)
    }

    fn summarise(&self, folder: &str) -> rustix::io::Result<Option<SkillSummary>> {
        let Some(skill) = self.open_skill(folder)? else { return Ok(None) };
        if heal(&skill)? == Healing::Missing {
            return Ok(None);
        }
        let Some(about) = self.read_about(&skill)? else { return Ok(None) };
        let mut warnings = rules::warnings(&about, folder);
        for path in misplaced(&skill, NESTED_SHOWN)? {
            let path = quote(&String::from_utf8_lossy(&path));
            warnings.push(format!("There is another SKILL.md deeper in the skill: {path}."));
        }
        let About { name, description, .. } = about;
        Ok(Some(SkillSummary {
            name: name.unwrap_or_else(|| folder.to_owned()),
            description: description.unwrap_or_else(|| NO_DESCRIPTION.to_owned()),
            warnings,
        }))
    }

    fn read_about(&self, skill: &OwnedFd) -> rustix::io::Result<Option<About>> {
        let Some((file, status)) = beneath::open_regular(skill, SKILL_FILE)? else { return Ok(None) };
        // As root, a file of somebody else's is not this workspace's to show.
        if ![self.workspace().owner().uid, rustix::process::geteuid().as_raw()].contains(&status.st_uid) {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(front_matter::BYTES_READ).read_to_end(&mut bytes).map_err(|_| Errno::IO)?;
        Ok(Some(front_matter::read(&String::from_utf8_lossy(&bytes))))
    }

    /// The names of the first-level folders, in order; what is no UTF-8 cannot be asked for.
    pub(crate) fn skill_folders(&self) -> Result<Vec<String>, Error> {
        let list = || -> rustix::io::Result<Vec<String>> {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(self.section(Section::Skills), c".", flags, Mode::empty())?;
            let mut names = Vec::new();
            for entry in Dir::new(directory)? {
                match entry?.file_name().to_str() {
                    Ok("." | "..") | Err(_) => {}
                    Ok(name) => names.push(name.to_owned()),
                }
                if names.len() == SKILLS_MAX {
                    break;
                }
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|errno| Error::ListSkills(errno.into()))
    }
}
