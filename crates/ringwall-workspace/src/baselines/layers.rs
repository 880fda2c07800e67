//! A user's own skills over the baselines: upload and deletion of skills that also exist as
//! baselines, and a list of all skills with their layers.
//!
//! An uploaded file hides the baseline's file of the same path; the baseline's other files stay
//! visible. A deletion hides the baseline from this user only.
//!
//! The layer of a skill follows from its content: one that equals its baseline is a baseline skill,
//! even if a user wrote it last. All files of the skill are read for this.

use ringwall_ids::AgentId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::baselines::checkout::add_missing_files;
use crate::baselines::index::{Index, IndexedFile, IndexedSkill, Presence, State};
use crate::baselines::snapshot::Version;
use crate::baselines::store::Baselines;
use crate::baselines::sync::{SyncState, is_as_copied};
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::durable::Batch;
use crate::skills::{SkillName, SkillSummary, StagedSkills};
use crate::tree::{AgentPath, Removed, Section, Tree};

/// The layer of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Shared by all users of the agent; unchanged
    Baseline,
    /// Shared by all users of the agent; changed by this user
    Overlaid,
    /// The user's own
    Overlay,
}

/// A pending change of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// A newer version waits until no command runs in the workspace
    Waiting,
}

/// A skill with its layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LayeredSkill {
    #[serde(flatten)]
    pub skill: SkillSummary,
    /// The skill's directory; its name may differ from the skill's name
    pub folder: String,
    pub layer: Layer,
    /// Absent if no update is pending
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<Update>,
}

impl Baselines {
    /// Lists all skills of a workspace with their layers, sorted by folder name. Heals skills like
    /// [`Tree::list_skills`].
    pub fn list_layered(&self, agent: &AgentId, tree: &Tree) -> Result<Vec<LayeredSkill>, Error> {
        let snapshot = self.snapshot(agent)?;
        let index = Index::load(tree.workspace())?;
        let is_waiting = matches!(self.sync_state(agent, tree.workspace())?, SyncState::Pending { .. });
        let listed = tree.list_skills_by_folder()?.into_iter().map(|(folder, skill)| {
            let name = folder.parse().ok();
            let indexed = name.as_ref().and_then(|name| index.skills.get(name));
            let newest = name.as_ref().and_then(|name| snapshot.skills.get(name)).map(|version| version.number);
            let is_outdated = newest.is_some_and(|newest| indexed.is_none_or(|own| own.version != newest));
            let is_kept_away = indexed.is_some_and(|own| own.presence == Presence::Deleted);
            let update = (is_waiting && is_outdated && !is_kept_away).then_some(Update::Waiting);
            let layer = indexed.map_or(Layer::Overlay, |own| layer(tree, &folder, own));
            LayeredSkill { skill, folder, layer, update }
        });
        Ok(listed.collect())
    }

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
    pub fn delete(&self, agent: &AgentId, tree: &Tree, skill: &SkillName) -> Result<Removed, Error> {
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

fn layer(tree: &Tree, folder: &str, indexed: &IndexedSkill) -> Layer {
    let brought = || indexed.files.iter().filter(|(_, file)| !file.known.is_empty());
    if indexed.presence == Presence::Deleted || brought().next().is_none() {
        return Layer::Overlay;
    }
    let Ok(directory) = beneath::open_directory(tree.section(Section::Skills), folder) else { return Layer::Overlay };
    let is_whole = indexed
        .files
        .iter()
        .all(|(path, file)| file.state == State::Settled && is_as_copied(&directory, path.as_str(), &file.known));
    let has_more = || {
        let own = AgentPath::skill(folder).ok().and_then(|path| tree.list(&path).ok());
        own.is_none_or(|own| own.relative().len() > indexed.files.len())
    };
    if is_whole && !has_more() { Layer::Baseline } else { Layer::Overlaid }
}

fn synced_entry(version: &Version) -> IndexedSkill {
    let settled = |blob| IndexedFile { known: vec![blob], state: State::Settled };
    let files = version.files.iter().map(|(path, file)| (path.clone(), settled(file.blob.clone())));
    IndexedSkill { version: version.number, presence: Presence::Wanted, files: files.collect() }
}
