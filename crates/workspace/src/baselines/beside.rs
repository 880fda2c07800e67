//! Bringing in what can come while boxes run: skills that a workspace never had, each whole and by one rename.
//!
//! Changes to skills that it has wait, because a box would see them half done. They cannot come by a rename as well: a box that
//! works in a skill's directory would go on writing into the one that was taken away, and its user would lose that.

use std::time::Instant;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::baselines::checkout::{Desk, complete};
use crate::baselines::index::Index;
use crate::baselines::rule::Act;
use crate::baselines::snapshot::{Snapshot, Version};
use crate::baselines::store::{Baselines, Caught};
use crate::baselines::sync::{Step, announce, settle};
use crate::beneath;
use crate::error::Error;
use crate::name::AgentId;
use crate::project::READABLE_DIRECTORY;
use crate::skills::SkillName;
use crate::tree::{Section, Tree};
use crate::workspaces::Owner;

impl Baselines {
    /// Brings new skills into a workspace. Nobody else may change it through the API meanwhile; boxes may.
    pub fn sync_new(&self, agent: &AgentId, tree: &Tree) -> Result<(), Error> {
        let snapshot = self.snapshot(agent)?;
        let mut index = Index::load(tree.workspace())?;
        if index.generation != snapshot.generation {
            bring_new(tree, &snapshot, &mut index)?;
        }
        let mut synced = self.synced();
        let caught = synced.get(tree.workspace().path());
        // Whoever publishes again and again does not put off for ever what was published first.
        let since = caught.and_then(|caught| caught.waiting_since).unwrap_or_else(Instant::now);
        let caught = Caught { generation: snapshot.generation, waiting_since: Some(since) };
        synced.insert(tree.workspace().path().to_owned(), caught);
        Ok(())
    }
}

fn bring_new(tree: &Tree, snapshot: &Snapshot, index: &mut Index) -> Result<(), Error> {
    let fail = |source| Error::Baseline { doing: "bring a workspace the new skills of its", source };
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
    announce(&new.iter().flat_map(|(skill, version)| steps(skill, version)).collect::<Vec<_>>(), snapshot, index);
    index.save(tree.workspace())?;
    let mut desk = Desk::new(tree.workspace())?;
    for (skill, version) in new {
        let made = make(&mut desk, version, tree.workspace().owner()).map_err(fail)?;
        match rustix::fs::renameat_with(&desk.place, made, skills, skill.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => {
                settle(&steps(skill, version), snapshot, index);
                index.skills.entry(skill.clone()).or_default().version = version.number;
            }
            // A box was quicker. What it made and what is shared come together when it is gone.
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(errno.into())),
        }
    }
    index.save(tree.workspace())
}

fn steps(skill: &SkillName, version: &Version) -> Vec<Step> {
    version.files.keys().map(|path| Step { skill: skill.clone(), path: path.clone(), act: Act::Add }).collect()
}

/// A whole skill on the desk, and its name there.
fn make(desk: &mut Desk, version: &Version, owner: Owner) -> std::io::Result<String> {
    let name = desk.free_name();
    let directory = beneath::ensure_directory(&desk.place, name.as_str(), READABLE_DIRECTORY)?;
    complete(version, &directory, owner)?;
    if owner != Owner::server() {
        beneath::give(&directory, owner.uid, owner.gid)?;
    }
    Ok(name)
}
