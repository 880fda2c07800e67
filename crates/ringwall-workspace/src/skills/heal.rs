//! Moves a skill's `SKILL.md` to the skill's root if a script left it in a subdirectory or in other
//! letter case.
//!
//! If there are several, the shallowest is moved, then the first by name. Boxes may run meanwhile:
//! directories are opened beneath the skill without following symlinks, and the rename has both
//! ends inside the skill, so a box that swaps names can only make it move another file of the same
//! skill.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};
use rustix::path::Arg;

use crate::error::Error;
use crate::fs::beneath::{self, restore_owner_access};
use crate::fs::listing::{MAX_NAMES, Walk};
use crate::skills::SkillName;
use crate::tree::{SKILL_FILE, Section, Tree, is_reserved};

/// Bounds the search; a box can nest directories without limit.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealOutcome {
    /// `SKILL.md` was at the root.
    Intact,
    /// `SKILL.md` was moved to the root.
    Moved,
    /// The skill does not exist or contains no `SKILL.md`.
    Missing,
}

impl Tree {
    pub fn heal_skill(&self, skill: &SkillName) -> std::result::Result<HealOutcome, Error> {
        let error = |errno: Errno| Error::ReadSkill { skill: skill.clone(), source: errno.into() };
        match self.open_skill(skill.as_str()).map_err(error)? {
            None => Ok(HealOutcome::Missing),
            Some(directory) => heal(&directory).map_err(error),
        }
    }

    /// Heals every skill and leaves out those that cannot be read. Called after an exec on the
    /// agent's files.
    pub fn heal_skills(&self) -> std::result::Result<(), Error> {
        for name in self.skill_folders()?.names {
            if let Ok(Some(directory)) = self.open_skill(&name) {
                let _ = heal(&directory);
            }
        }
        Ok(())
    }

    /// `None` if there is no directory of that name, or the server may not open it.
    pub(crate) fn open_skill(&self, name: &str) -> Result<Option<OwnedFd>> {
        match open_readable(self.section(Section::Skills), name) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Opens a directory and, if its mode forbids that, restores the owner's permissions first.
fn open_readable(parent: impl AsFd, path: impl Arg + Copy) -> Result<OwnedFd> {
    match beneath::open_directory(&parent, path) {
        Err(Errno::ACCESS) => {
            restore_owner_access(beneath::locate_directory(&parent, path)?);
            beneath::open_directory(&parent, path)
        }
        result => result,
    }
}

pub(crate) fn heal(skill: &OwnedFd) -> Result<HealOutcome> {
    match try_heal(skill) {
        Err(Errno::ACCESS) => {
            restore_owner_access(skill);
            match try_heal(skill) {
                Err(Errno::ACCESS) => Ok(HealOutcome::Missing),
                result => result,
            }
        }
        result => result,
    }
}

fn try_heal(skill: &OwnedFd) -> Result<HealOutcome> {
    match rustix::fs::statat(skill, SKILL_FILE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile => {
            return Ok(HealOutcome::Intact);
        }
        // A directory or symlink of the user has the name. It is not replaced.
        Ok(_) => return Ok(HealOutcome::Missing),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let Some(found) = nested_skill_files(skill, 1)?.pop() else { return Ok(HealOutcome::Missing) };
    let (parent, name) = match found.iter().rposition(|byte| *byte == b'/') {
        None => (None, found.as_slice()),
        Some(slash) => (Some(&found[..slash]), &found[slash + 1..]),
    };
    let opened = parent.map(|parent| beneath::open_directory(skill, parent)).transpose();
    let moved = opened.and_then(|parent| {
        let from = parent.as_ref().unwrap_or(skill);
        restore_owner_access(from);
        rustix::fs::renameat_with(from, name, skill, SKILL_FILE, RenameFlags::NOREPLACE)
    });
    match moved {
        Ok(()) => Ok(HealOutcome::Moved),
        // A box created the file, or removed the one that was found, since the search.
        Err(Errno::EXIST) => Ok(HealOutcome::Intact),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(HealOutcome::Missing),
        Err(errno) => Err(errno),
    }
}

/// Finds up to `max` files named `SKILL.md` in any letter case, other than the one at the root.
/// Shallowest first, then by path.
pub(crate) fn nested_skill_files(skill: &OwnedFd, max: usize) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let mut level = vec![Vec::new()];
    let mut remaining_names = MAX_NAMES;
    for _ in 0..MAX_DEPTH {
        let mut matches = Vec::new();
        let mut next_level = Vec::new();
        for path in level {
            let opened = match path.as_slice() {
                [] => rustix::fs::openat(skill, c".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()),
                path => open_readable(skill, path),
            };
            // A box may have replaced it since it was listed.
            let Ok(directory) = opened else { continue };
            let mut walk = Walk::new(remaining_names);
            if walk.enter(&directory, &path).is_err() {
                continue;
            }
            for entry in walk {
                remaining_names = remaining_names.saturating_sub(1);
                match entry.kind {
                    FileType::Directory => next_level.push(entry.path),
                    FileType::RegularFile if is_nested_skill_file(&entry.path) => matches.push(entry.path),
                    _ => {}
                }
            }
        }
        matches.sort();
        found.extend(matches);
        if found.len() >= max || next_level.is_empty() || remaining_names == 0 {
            break;
        }
        level = next_level;
    }
    found.truncate(max);
    Ok(found)
}

fn is_nested_skill_file(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    path != SKILL_FILE.as_bytes() && std::str::from_utf8(name).is_ok_and(is_reserved)
}
