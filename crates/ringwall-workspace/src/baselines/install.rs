//! Uploads and deletions of a user's skills that also exist as baselines.
//!
//! An uploaded file hides the baseline's file of the same path; the baseline's other files stay
//! visible. A deletion hides the baseline from this user only.

use ringwall_ids::AgentId;

use crate::baselines::checkout::add_missing_files;
use crate::baselines::index::{Index, IndexedFile, IndexedSkill, Presence, State};
use crate::baselines::snapshot::Version;
use crate::baselines::store::Baselines;
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::durable::Batch;
use crate::skills::{DeletedSkill, SkillName, StagedSkills};
use crate::tree::Tree;

impl Baselines {
    /// Installs an upload, completed by the baselines' files that it does not contain. Earlier
    /// changes and deletions of the user in these skills are discarded.
    pub fn install(&self, agent: &AgentId, upload: &StagedSkills) -> Result<(), Error> {
        let snapshot = self.snapshot(agent)?;
        let workspace = upload.tree().workspace();
        let covered: Vec<(&SkillName, &Version)> =
            upload.names().filter_map(|skill| Some((skill, snapshot.skills.get(skill)?.as_ref()))).collect();
        let to_error = |source| Error::Baseline { operation: "add the files of baselines to an upload", source };
        let mut batch = Batch::default();
        for (skill, version) in &covered {
            let into = beneath::open_directory(&upload.staged.new, skill.as_str()).map_err(std::io::Error::from);
            into.and_then(|into| add_missing_files(version, &into, workspace.owner(), &mut batch)).map_err(to_error)?;
        }
        batch.sync(&upload.staged.new).map_err(to_error)?;
        upload.install()?;
        if covered.is_empty() {
            return Ok(());
        }
        let mut index = Index::load(workspace)?;
        index.skills.extend(covered.into_iter().map(|(skill, version)| (skill.clone(), synced_entry(version))));
        index.save(workspace)
    }

    /// Deletes a skill; new versions of its baseline do not restore it for this user.
    pub fn delete(&self, agent: &AgentId, tree: &Tree, skill: &SkillName) -> Result<DeletedSkill, Error> {
        let deleted = tree.delete_skill(skill)?;
        if self.snapshot(agent)?.generation > 0 {
            let mut index = Index::load(tree.workspace())?;
            if let Some(indexed) = index.skills.get_mut(skill) {
                indexed.presence = Presence::Deleted;
                index.save(tree.workspace())?;
            }
        }
        Ok(deleted)
    }
}

fn synced_entry(version: &Version) -> IndexedSkill {
    let settled = |blob| IndexedFile { known: vec![blob], state: State::Settled };
    let files = version.files.iter().map(|(path, file)| (path.clone(), settled(file.blob.clone())));
    IndexedSkill { version: version.number, presence: Presence::Wanted, files: files.collect() }
}
