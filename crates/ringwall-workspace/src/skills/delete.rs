//! Deleting a skill: out of sight in one step, then taken apart where no box can reach it.

use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::remove::REMOVED;
use crate::exec_id::random_digits;
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::skills::SkillName;
use crate::tree::{Refusal, Section, Tree};
use crate::workspaces::Workspace;

/// A skill that nobody sees any more. Its files go when this does, which may take a while.
#[derive(Debug)]
pub struct DeletedSkill {
    workspace: Workspace,
    hidden: String,
}

impl Drop for DeletedSkill {
    fn drop(&mut self) {
        // What cannot be removed now is swept when the server starts again.
        let _ = erase(self.workspace.staging(), &self.hidden);
    }
}

impl Tree {
    /// Takes a skill away with everything in it.
    pub fn delete_skill(&self, skill: &SkillName) -> Result<DeletedSkill, Error> {
        let fail = |errno: Errno| Error::Remove { subject: format!("the skill {skill}"), source: errno.into() };
        let skills = self.section(Section::Skills);
        let missing = || Error::Refused(Refusal::SkillMissing(skill.to_string()));
        match beneath::locate(skills, skill.as_str()) {
            Ok((_, status)) if FileType::from_raw_mode(status.st_mode) == FileType::Directory => {}
            Ok(_) | Err(Errno::NOENT | Errno::LOOP) => return Err(missing()),
            Err(errno) => return Err(fail(errno)),
        }
        let hidden = format!("{REMOVED}{}", random_digits()?);
        let staging = self.workspace().staging();
        let hide =
            || rustix::fs::renameat_with(skills, skill.as_str(), staging, hidden.as_str(), RenameFlags::NOREPLACE);
        let outcome = match hide() {
            // A directory that moves must be writable itself, and a box may have closed its own.
            Err(Errno::ACCESS) => beneath::seize_directory(skills, skill.as_str()).and_then(|_| hide()),
            outcome => outcome,
        };
        match outcome {
            Ok(()) => Ok(DeletedSkill { workspace: self.workspace().clone(), hidden }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(missing()),
            Err(errno) => Err(fail(errno)),
        }
    }
}
