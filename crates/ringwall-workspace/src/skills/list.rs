//! What skills there are, as they describe themselves.
//!
//! A skill is a first-level folder with a `SKILL.md` at its root, after healing. Whatever is wrong with one does not
//! keep the others from being listed; what is odd about one is said as warnings.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::Serialize;
use utoipa::ToSchema;

use crate::error::{Error, quote};
use crate::fs::beneath;
use crate::skills::front_matter::{self, About};
use crate::skills::heal::{Healing, NESTED_SHOWN, heal, misplaced};
use crate::skills::rules;
use crate::tree::{Refusal, SKILL_FILE, Section, Tree, is_reserved};

const NO_DESCRIPTION: &str = "No description available.";
/// Folders that are looked at; nobody reads a longer list, and a box could make them by the million.
const MAX_SKILLS: usize = 10_000;
/// Whoever plants more of them than this keeps the last.
const MAX_SET_ASIDE: u32 = 100;

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
        let folders = self.skill_folders()?;
        if folders.are_too_many {
            return Err(Refusal::TooManySkills { most: MAX_SKILLS }.into());
        }
        let mut listed = Vec::new();
        for folder in folders.names {
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

    /// The names of the first-level folders, in order. A file there that has the reserved name belongs to no skill: it
    /// gets another name.
    pub(crate) fn skill_folders(&self) -> Result<Folders, Error> {
        let (skills, mut found) = (self.section(Section::Skills), Found::default());
        let list = |found: &mut Found| -> rustix::io::Result<()> {
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(skills, c".", flags, Mode::empty())?;
            for entry in Dir::new(directory)? {
                let entry = entry?;
                // What is no UTF-8 cannot be asked for.
                if let Ok(name) = entry.file_name().to_str() {
                    found.take(name, kind_of(skills, &entry));
                }
            }
            Ok(())
        };
        list(&mut found).map_err(|errno| Error::ListSkills(errno.into()))?;
        for name in &found.strays {
            put_aside(skills, name);
        }
        found.folders.names.sort();
        Ok(found.folders)
    }
}

/// The first-level folders.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    pub(crate) names: Vec<String>,
    /// More than are looked at.
    pub(crate) are_too_many: bool,
}

#[derive(Debug, Default)]
struct Found {
    folders: Folders,
    strays: Vec<String>,
}

impl Found {
    fn take(&mut self, name: &str, kind: FileType) {
        match kind {
            FileType::Directory if matches!(name, "." | "..") => {}
            FileType::Directory if self.folders.names.len() == MAX_SKILLS => self.folders.are_too_many = true,
            FileType::Directory => self.folders.names.push(name.to_owned()),
            FileType::RegularFile if is_reserved(name) => self.strays.push(name.to_owned()),
            _ => {}
        }
    }
}

fn kind_of(directory: impl AsFd, entry: &DirEntry) -> FileType {
    match entry.file_type() {
        // Some file systems do not say it in the listing.
        FileType::Unknown => rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |status| FileType::from_raw_mode(status.st_mode)),
        kind => kind,
    }
}

/// Gives a file a name that is not reserved. What cannot be done now is done when somebody looks again.
fn put_aside(skills: impl AsFd, name: &str) {
    for number in 1..=MAX_SET_ASIDE {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let aside = format!("{name}.misplaced{number}");
        match rustix::fs::renameat_with(&skills, name, &skills, aside.as_str(), RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            _ => return,
        }
    }
}
