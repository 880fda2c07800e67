//! Skills on their way in: unpacked beside, where no box can reach, and then swapped in, all of an upload or none.
//!
//! A swap that fails takes the ones before it back. A server that is killed between two swaps leaves a journal of what was
//! to come, and the next start goes on with it: every skill is then new. Killed before, all are old. So it is after a power
//! cut: the skills are on the disk before the journal is, and that before the first swap. What is left over, the old skills
//! first of all, is removed with the staged, or swept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_id::random_digits;
use crate::fs::erase::erase;
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::skills::SkillName;
use crate::skills::archive::{Archive, ArchiveLimits};
use crate::skills::swap::{Swapped, swap, undo};
use crate::skills::unpack::unpack;
use crate::tree::{Section, Tree};
use crate::usage::Usage;
use crate::workspaces::{Owner, Workspace};

/// What names of uploads begin with.
pub(crate) const UNFINISHED: &str = "upload-";
const NEW: &str = "new";
const JOURNAL: &str = "journal";
/// No journal of ours is longer.
const MAX_JOURNAL: u64 = 64 * 1024 * 1024;

/// Unpacked skills somewhere among the staged, which go when this does.
#[derive(Debug)]
pub(crate) struct Staged {
    staging: OwnedFd,
    name: String,
    place: OwnedFd,
    pub(crate) new: OwnedFd,
    pub(crate) skills: BTreeSet<SkillName>,
}

/// An uploaded zip that was judged by what it says of itself, and is not unpacked yet.
#[derive(Debug)]
pub struct PackedSkills {
    archive: Archive,
    tree: Tree,
}

/// The skills of one upload, ready to be swapped in. Dropping it removes what is left, which may take a while.
#[derive(Debug)]
pub struct StagedSkills {
    pub(crate) staged: Staged,
    tree: Tree,
}

/// Which skills were to come, by the inodes of their directories: one that is in its place has left an older one behind.
type Journal = BTreeMap<SkillName, u64>;

impl Workspace {
    /// An empty file for an upload to be written to. It has no name, so that nothing of it stays.
    pub fn upload_file(&self) -> Result<File, Error> {
        unnamed_file(self.staging())
    }
}

impl Tree {
    /// Judges an uploaded zip. Nothing of the workspace is changed by this or by unpacking it, and no lock is needed.
    pub fn judge_skills(&self, archive: File, limits: ArchiveLimits) -> Result<PackedSkills, Error> {
        Ok(PackedSkills { archive: Archive::read(archive, limits)?, tree: self.clone() })
    }
}

impl PackedSkills {
    /// What they will take on the disk, about.
    pub fn usage(&self) -> Usage {
        self.archive.usage()
    }

    /// Unpacks them beside. What turns out to be more than was said is refused.
    pub fn unpack(self) -> Result<StagedSkills, Error> {
        let workspace = self.tree.workspace();
        let staged = Staged::unpack(workspace.staging(), self.archive, workspace.owner())?;
        Ok(StagedSkills { staged, tree: self.tree })
    }
}

impl StagedSkills {
    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// In the order of their names.
    pub fn names(&self) -> impl Iterator<Item = &SkillName> {
        self.staged.skills.iter()
    }

    /// Swaps all of them in. After an error none is.
    pub fn install(&self) -> Result<(), Error> {
        self.staged.write_journal()?;
        let swapped = swap_all(&self.staged.new, self.tree.section(Section::Skills), &self.staged.skills);
        // After a failure, too: what was taken back is not to be gone on with.
        let forgotten = self.staged.forget_journal();
        swapped.and(forgotten)
    }
}

/// Swaps all in, or none.
fn swap_all(new: &OwnedFd, skills: impl AsFd, names: &BTreeSet<SkillName>) -> Result<(), Error> {
    let mut done: Vec<(&SkillName, Swapped)> = Vec::new();
    for skill in names {
        match swap(new, &skills, skill.as_str()) {
            Ok(swapped) => done.push((skill, swapped)),
            Err(errno) => {
                for (skill, swapped) in done.into_iter().rev() {
                    undo(swapped, new, &skills, skill.as_str()).map_err(|errno| failed(skill, errno))?;
                }
                return Err(failed(skill, errno));
            }
        }
    }
    Ok(())
}

fn failed(skill: &SkillName, errno: Errno) -> Error {
    Error::InstallSkill { skill: skill.clone(), source: errno.into() }
}

impl Staged {
    pub(crate) fn unpack(staging: &OwnedFd, mut archive: Archive, owner: Owner) -> Result<Self, Error> {
        let name = format!("{UNFINISHED}{}", random_digits()?);
        let fail = |errno: Errno| Error::Stage(errno.into());
        rustix::fs::mkdirat(staging, name.as_str(), PRIVATE_DIRECTORY).map_err(fail)?;
        let place = beneath::open_directory(staging, name.as_str()).map_err(fail)?;
        let new = beneath::ensure_directory(&place, NEW, PRIVATE_DIRECTORY).map_err(fail)?;
        let staging = staging.try_clone().map_err(Error::Stage)?;
        let staged = Self { staging, name, place, new, skills: archive.skills.clone() };
        unpack(&mut archive, &staged.new, owner)?;
        Ok(staged)
    }

    fn write_journal(&self) -> Result<(), Error> {
        let inode = |skill: &SkillName| {
            let status = rustix::fs::statat(&self.new, skill.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((skill.clone(), status.st_ino))
        };
        let journal = self.skills.iter().map(inode).collect::<rustix::io::Result<Journal>>();
        let write = |journal: Journal| {
            let text = serde_json::to_vec(&journal)?;
            let mut file = beneath::create_file(&self.place, JOURNAL)?;
            file.write_all(&text)?;
            file.sync_data()
        };
        journal.map_err(std::io::Error::from).and_then(write).map_err(Error::Stage)
    }

    fn forget_journal(&self) -> Result<(), Error> {
        rustix::fs::unlinkat(&self.place, JOURNAL, AtFlags::empty()).map_err(|errno| Error::Stage(errno.into()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // What cannot be removed now is swept when the server starts again.
        let _ = erase(&self.staging, &self.name);
    }
}

/// Goes on with an upload whose server was killed while it was swapped in, before what is left of it is removed.
pub(crate) fn resume(staging: &OwnedFd, name: &str, skills: impl AsFd) -> rustix::io::Result<()> {
    let place = match beneath::open_directory(staging, name) {
        // A single file on its way.
        Err(Errno::NOTDIR) => return Ok(()),
        outcome => outcome?,
    };
    let journal = match beneath::open_regular(&place, JOURNAL) {
        Ok(Some((file, _))) => file,
        Ok(None) | Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let mut text = Vec::new();
    journal.take(MAX_JOURNAL).read_to_end(&mut text).map_err(|_| Errno::IO)?;
    // One that was cut off was cut off before the first swap.
    let Ok(journal) = serde_json::from_slice::<Journal>(&text) else { return Ok(()) };
    let new = beneath::open_directory(&place, NEW)?;
    for (skill, inode) in journal {
        match rustix::fs::statat(&new, skill.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if status.st_ino == inode => drop(swap(&new, &skills, skill.as_str())?),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A file among the staged that has no name any more.
pub(crate) fn unnamed_file(staging: &OwnedFd) -> Result<File, Error> {
    let name = format!("{UNFINISHED}{}", random_digits()?);
    let make = || {
        let file = beneath::create_file(staging, name.as_str())?;
        rustix::fs::unlinkat(staging, name.as_str(), AtFlags::empty())?;
        Ok(file)
    };
    make().map_err(|errno: Errno| Error::Stage(errno.into()))
}

#[cfg(test)]
#[path = "staged_tests.rs"]
mod tests;
