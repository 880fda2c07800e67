//! Estimates how much space an update to the baselines will take.

use ringwall_ids::AgentId;

use crate::baselines::index::{Index, Presence};
use crate::baselines::store::Baselines;
use crate::error::Error;
use crate::usage::Usage;
use crate::workspaces::Workspace;

impl Baselines {
    /// The size of the new versions less that of the workspace's versions. Ignores directories and
    /// the user's changes; meant for a quota check.
    pub fn growth(&self, agent: &AgentId, workspace: &Workspace) -> Result<Usage, Error> {
        let snapshot = self.snapshot(agent)?;
        let index = Index::load(workspace)?;
        let (mut new, mut old) = (Usage::default(), Usage::default());
        for (skill, version) in &snapshot.skills {
            let indexed = index.skills.get(skill);
            if indexed.is_some_and(|own| own.version == version.number || own.presence == Presence::Deleted) {
                continue;
            }
            new = version.files.values().fold(new, |sum, file| sum.plus(Usage::of_file(file.blob.size)));
            let known = indexed.into_iter().flat_map(|own| own.files.values()).filter_map(|file| file.known.last());
            old = known.fold(old, |sum, blob| sum.plus(Usage::of_file(blob.size)));
        }
        Ok(Usage { bytes: new.bytes.saturating_sub(old.bytes), files: new.files.saturating_sub(old.files) })
    }
}
