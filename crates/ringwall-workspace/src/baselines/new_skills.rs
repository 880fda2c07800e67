//! Adds new skills to a workspace while boxes run in it, each by one rename.
//!
//! New versions of skills that the workspace has must wait, because a box would see them half
//! updated. Exchanging the skill's directory by a rename is no solution: a box that works in it
//! would continue to write to the old directory, and these files would be lost.

use std::time::Instant;

use ringwall_ids::AgentId;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::baselines::checkout::CheckoutDir;
use crate::baselines::index::Index;
use crate::baselines::snapshot::{Snapshot, Version};
use crate::baselines::store::{Baselines, LastSync};
use crate::baselines::sync::{Action, Step, record_intent, record_result};
use crate::error::Error;
use crate::fs::beneath;
use crate::skills::SkillName;
use crate::tree::{Section, Tree};

impl Baselines {
    /// Adds skills that the workspace does not have yet. Boxes may run; the caller excludes other
    /// changes through the API.
    pub fn sync_new(&self, agent: &AgentId, tree: &Tree) -> Result<(), Error> {
        let snapshot = self.snapshot(agent)?;
        let mut index = Index::load(tree.workspace())?;
        if index.generation != snapshot.generation {
            add_new_skills(tree, &snapshot, &mut index)?;
        }
        let mut last_syncs = self.last_syncs.lock();
        let last_sync = last_syncs.get(tree.workspace().path());
        // The first of several publications determines when the wait began, so that frequent
        // publications do not extend it.
        let since = last_sync.and_then(|last_sync| last_sync.pending_since).unwrap_or_else(Instant::now);
        let last_sync = LastSync { generation: snapshot.generation, pending_since: Some(since) };
        last_syncs.insert(tree.workspace().path().to_owned(), last_sync);
        Ok(())
    }
}

fn add_new_skills(tree: &Tree, snapshot: &Snapshot, index: &mut Index) -> Result<(), Error> {
    let to_error = |source| Error::Baseline { operation: "add new baseline skills to a workspace", source };
    let skills = tree.section(Section::Skills);
    let is_new = |skill: &SkillName, index: &Index| {
        !index.skills.contains_key(skill) && matches!(beneath::locate(skills, skill.as_str()), Err(Errno::NOENT))
    };
    let new: Vec<(&SkillName, &Version)> = snapshot
        .skills
        .iter()
        .filter(|(skill, _)| is_new(skill, index))
        .map(|(skill, version)| (skill, version.as_ref()))
        .collect();
    for (skill, _) in &new {
        index.skills.entry((*skill).clone()).or_default();
    }
    record_intent(&new.iter().flat_map(|(skill, version)| steps(skill, version)).collect::<Vec<_>>(), snapshot, index);
    index.save(tree.workspace())?;
    let mut checkout_dir = CheckoutDir::new(tree.workspace())?;
    let mut copies = Vec::new();
    for (skill, version) in new {
        copies.push((skill, version, checkout_dir.copy_skill(version).map_err(to_error)?));
    }
    checkout_dir.sync().map_err(to_error)?;
    for (skill, version, copy) in copies {
        match rustix::fs::renameat_with(checkout_dir.handle(), copy, skills, skill.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => {
                record_result(&steps(skill, version), snapshot, index);
                index.skills.entry(skill.clone()).or_default().version = version.number;
            }
            // A box created an entry of that name. The skill is merged with it by a full sync.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(to_error(errno.into())),
        }
    }
    index.save(tree.workspace())
}

fn steps(skill: &SkillName, version: &Version) -> Vec<Step> {
    version.files.keys().map(|path| Step { skill: skill.clone(), path: path.clone(), action: Action::Add }).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use crate::baselines::sync::tests::fixture::{Fixture, agent, contents, list, owner, texts};
    use crate::baselines::{Layer, SyncState, Update};

    #[test]
    fn sync_new_adds_new_skills_and_defers_changes() {
        let fixture = Fixture::new();
        let tree = fixture.tree("one");
        fixture.publish(&[("old/SKILL.md", "1"), ("old/a", "1")]);
        fixture.sync(&tree);
        let skills = fixture.skills("one");
        fs::create_dir(skills.join("mine")).unwrap();
        fs::write(skills.join("mine/SKILL.md"), "own").unwrap();
        fixture.publish(&[
            ("old/SKILL.md", "2"),
            ("old/a", "2"),
            ("mine/SKILL.md", "2"),
            ("new/SKILL.md", "2"),
            ("new/d/run.sh", "2"),
        ]);
        fixture.baselines.sync_new(&agent(), &tree).unwrap();
        let SyncState::Pending { since } = fixture.sync_state(&tree) else { panic!("no update is pending") };
        let old = [("old/SKILL.md", "1"), ("old/a", "1"), ("mine/SKILL.md", "own")];
        let new = [("new/SKILL.md", "2"), ("new/d/run.sh", "2")];
        assert_eq!(contents(&skills), texts(&[&old[..], &new[..]].concat()));
        for (file, mode) in [("new", 0o755), ("new/d", 0o755), ("new/SKILL.md", 0o644), ("new/d/run.sh", 0o755)] {
            let status = fs::metadata(skills.join(file)).unwrap();
            assert_eq!((status.uid(), status.mode() & 0o7777), (owner().uid, mode), "{file}");
        }
        let waiting = Some(Update::Waiting);
        let layers =
            [("mine", Layer::Overlay, waiting), ("new", Layer::Baseline, None), ("old", Layer::Baseline, waiting)];
        assert_eq!(fixture.layers(&tree), layers.map(|(folder, layer, update)| (folder.to_owned(), layer, update)));
        // A new publication does not restart the wait.
        fixture.publish(&[("newer/SKILL.md", "3")]);
        assert_eq!(fixture.sync_state(&tree), SyncState::Outdated);
        fixture.baselines.sync_new(&agent(), &tree).unwrap();
        assert_eq!(fixture.sync_state(&tree), SyncState::Pending { since });
        // A file that a box deletes stays deleted; a full sync adds the others.
        fs::remove_file(skills.join("new/d/run.sh")).unwrap();
        fixture.sync(&tree);
        let twos = ["old/SKILL.md", "old/a", "new/SKILL.md"].map(|file| (file, "2"));
        let others = [("mine/SKILL.md", "own"), ("newer/SKILL.md", "3")];
        assert_eq!(contents(&skills), texts(&[&twos[..], &others[..]].concat()));
        fs::write(skills.join("old/more"), "").unwrap();
        let layers = [Layer::Overlaid, Layer::Overlaid, Layer::Baseline, Layer::Overlaid];
        assert_eq!(fixture.layers(&tree).into_iter().map(|(_, layer, _)| layer).collect::<Vec<_>>(), layers);
        assert_eq!(list(&fixture.directory.path().join("workspaces/one/agent/.staging")), [""; 0]);
    }
}
