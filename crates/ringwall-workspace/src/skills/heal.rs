//! Putting a skill's `SKILL.md` where it belongs when a script left it deeper, or in other letters.
//!
//! Of several, the shallowest is taken, then the first by name, and nothing else moves. A box may change everything
//! meanwhile: directories are opened beneath the skill's own through no link, and a rename moves whatever has the name then,
//! from inside the skill to inside the skill.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::listing::{MAX_NAMES, Walk};
use crate::skills::SkillName;
use crate::tree::{SKILL_FILE, Section, Tree, is_reserved, restore};

/// No skill is deeper, and a hostile one could be without end.
const MAX_DEPTH: usize = 64;
/// What is reported of misplaced files; the rest says nothing new.
pub(crate) const NESTED_SHOWN: usize = 10;

/// How a skill was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Healing {
    /// `SKILL.md` is at its root.
    Whole,
    /// It was moved there.
    Healed,
    /// There is none anywhere in it, or no such skill.
    Missing,
}

impl Tree {
    /// Sees to it that a skill has its `SKILL.md` at its root, if it has one at all.
    pub fn heal_skill(&self, skill: &SkillName) -> std::result::Result<Healing, Error> {
        let fail = |errno: Errno| Error::ReadSkill { skill: skill.clone(), source: errno.into() };
        match self.open_skill(skill.as_str()).map_err(fail)? {
            None => Ok(Healing::Missing),
            Some(directory) => heal(&directory).map_err(fail),
        }
    }

    /// Heals every skill there is, as after an exec. What cannot be read is left as it is.
    pub fn heal_skills(&self) -> std::result::Result<(), Error> {
        for name in self.skill_folders()?.names {
            if let Ok(Some(directory)) = self.open_skill(&name) {
                let _ = heal(&directory);
            }
        }
        Ok(())
    }

    /// The directory of a skill; anything else of that name is none.
    pub(crate) fn open_skill(&self, name: &str) -> Result<Option<OwnedFd>> {
        let skills = self.section(Section::Skills);
        let opened = match beneath::open_directory(skills, name) {
            // A box may close its own directories, even to a server that is the same user and has no rights beyond.
            Err(Errno::ACCESS) => reopen(skills, name),
            outcome => outcome,
        };
        match opened {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// The same for a directory that its owner closed, after its rights are given back.
fn reopen(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    restore(beneath::look_up(&parent, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?);
    beneath::open_directory(&parent, path)
}

pub(crate) fn heal(skill: &OwnedFd) -> Result<Healing> {
    match try_to_heal(skill) {
        // Only an owner without privileges gets here, whose box took the rights from it.
        Err(Errno::ACCESS) => {
            restore(skill);
            match try_to_heal(skill) {
                Err(Errno::ACCESS) => Ok(Healing::Missing),
                outcome => outcome,
            }
        }
        outcome => outcome,
    }
}

fn try_to_heal(skill: &OwnedFd) -> Result<Healing> {
    match rustix::fs::statat(skill, SKILL_FILE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile => return Ok(Healing::Whole),
        // The place is taken by something that a script made; it is theirs to remove.
        Ok(_) => return Ok(Healing::Missing),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let Some(found) = misplaced(skill, 1)?.pop() else { return Ok(Healing::Missing) };
    let (parent, name) = match found.iter().rposition(|byte| *byte == b'/') {
        None => (None, found.as_slice()),
        Some(slash) => (Some(&found[..slash]), &found[slash + 1..]),
    };
    let opened = parent.map(|parent| beneath::open_directory(skill, parent)).transpose();
    let moved = opened.and_then(|parent| {
        let from = parent.as_ref().unwrap_or(skill);
        restore(from);
        rustix::fs::renameat_with(from, name, skill, SKILL_FILE, RenameFlags::NOREPLACE)
    });
    match moved {
        Ok(()) => Ok(Healing::Healed),
        // Whoever was quicker has put something there, or taken it away.
        Err(Errno::EXIST) => Ok(Healing::Whole),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(Healing::Missing),
        Err(errno) => Err(errno),
    }
}

/// The first `most` files that have the reserved name in some letter case and are not the skill's own, shallowest first.
pub(crate) fn misplaced(skill: &OwnedFd, most: usize) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut level = vec![Vec::new()];
    let mut room = MAX_NAMES;
    for _ in 0..MAX_DEPTH {
        let mut here = Vec::new();
        let mut deeper = Vec::new();
        for path in level {
            let opened = match path.as_slice() {
                [] => rustix::fs::openat(skill, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()),
                path => match beneath::open_directory(skill, path) {
                    Err(Errno::ACCESS) => reopen(skill, path),
                    outcome => outcome,
                },
            };
            // Swapped since it was listed.
            let Ok(directory) = opened else { continue };
            let mut walk = Walk::new(room);
            if walk.enter(&directory, &path).is_err() {
                continue;
            }
            for entry in walk {
                room = room.saturating_sub(1);
                match entry.kind {
                    FileType::Directory => deeper.push(entry.path),
                    FileType::RegularFile if is_misplaced(&entry.path) => here.push(entry.path),
                    _ => {}
                }
            }
        }
        here.sort();
        found.extend(here);
        if found.len() >= most || deeper.is_empty() || room == 0 {
            break;
        }
        level = deeper;
    }
    found.truncate(most);
    Ok(found)
}

fn is_misplaced(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    path != SKILL_FILE.as_bytes() && std::str::from_utf8(name).is_ok_and(is_reserved)
}
