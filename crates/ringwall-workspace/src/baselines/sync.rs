//! Bringing a workspace in step with its agent's baselines, file by file, by the rule.
//!
//! Boxes may run meanwhile and change anything. So nothing is decided by a first look alone: what is added never replaces,
//! and what is replaced or removed comes out to where no box can reach, is looked at again there, and goes back if
//! somebody had changed it. Additions come first, so that a skill does not vanish on the way. A sync that is cut off is
//! done again from the beginning; the index says what it was about to do. A box that runs meanwhile would see some files
//! new and some old, so callers who can wait bring in beside boxes only what comes whole (`beside`).

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::baselines::blob::Blob;
use crate::baselines::checkout::{Desk, ensure_parents};
use crate::baselines::index::{Index, IndexedFile, IndexedSkill, Presence, State};
use crate::baselines::rule::{Act, Here, Known, Target, decide};
use crate::baselines::snapshot::{BaselineFile, Snapshot, Version};
use crate::baselines::store::{Baselines, Caught};
use crate::error::Error;
use crate::fs::beneath;
use crate::name::AgentId;
use crate::relative_path::RelativePath;
use crate::skills::SkillName;
use crate::tree::{Section, Tree};
use crate::workspaces::Workspace;

/// What is to be done with one path.
pub(crate) struct Step {
    pub(crate) skill: SkillName,
    pub(crate) path: RelativePath,
    pub(crate) act: Act,
}

/// How a workspace stands to its agent's baselines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    InStep,
    /// It has the skills that are new, and waits for the changes to those that it had.
    Waiting {
        since: Instant,
    },
    Behind,
}

impl Baselines {
    /// Cheap: nothing is read but, once for an agent, its baselines.
    pub fn standing(&self, agent: &AgentId, workspace: &Workspace) -> Result<Standing, Error> {
        let generation = self.snapshot(agent)?.generation;
        if generation == 0 {
            return Ok(Standing::InStep);
        }
        let caught = self.synced().get(workspace.path()).copied();
        Ok(match caught.filter(|caught| caught.generation == generation) {
            // A workspace that was removed and made again has nothing, whatever is remembered of the one before it.
            Some(_) if !Index::is_there(workspace) => Standing::Behind,
            Some(Caught { waiting_since: None, .. }) => Standing::InStep,
            Some(Caught { waiting_since: Some(since), .. }) => Standing::Waiting { since },
            None => Standing::Behind,
        })
    }

    /// Brings a workspace in step. Nobody else may change it through the API meanwhile; boxes may.
    pub fn sync(&self, agent: &AgentId, tree: &Tree) -> Result<(), Error> {
        let snapshot = self.snapshot(agent)?;
        let mut index = Index::load(tree.workspace())?;
        if index.generation != snapshot.generation {
            bring_in_step(tree, &snapshot, &mut index)?;
        }
        let caught = Caught { generation: snapshot.generation, waiting_since: None };
        self.synced().insert(tree.workspace().path().to_owned(), caught);
        drop(snapshot);
        self.remove_retired();
        Ok(())
    }
}

fn bring_in_step(tree: &Tree, snapshot: &Snapshot, index: &mut Index) -> Result<(), Error> {
    let fail = |source| Error::Baseline { doing: "update a workspace to its baselines", source };
    let mut steps = plan(tree, snapshot, index).map_err(fail)?;
    steps.sort_by_key(|step| step.act != Act::Add);
    announce(&steps, snapshot, index);
    index.save(tree.workspace())?;
    let mut applying = Applying { tree, desk: Desk::new(tree.workspace())? };
    let copies = applying.copy(&steps, snapshot).map_err(fail)?;
    for (step, copy) in steps.iter().zip(&copies) {
        let Some(indexed) = index.skills.get(&step.skill) else { continue };
        let known = indexed.files.get(&step.path).map(|file| file.known.as_slice()).unwrap_or_default();
        applying.apply(step, copy.as_deref(), known).map_err(fail)?;
    }
    settle(&steps, snapshot, index);
    for (skill, version) in &snapshot.skills {
        index.skills.entry(skill.clone()).or_default().version = version.number;
    }
    index.generation = snapshot.generation;
    index.save(tree.workspace())
}

fn plan(tree: &Tree, snapshot: &Snapshot, index: &mut Index) -> std::io::Result<Vec<Step>> {
    let skills: BTreeSet<SkillName> = index.skills.keys().chain(snapshot.skills.keys()).cloned().collect();
    let mut steps = Vec::new();
    for skill in skills {
        let version = snapshot.skills.get(&skill).map(AsRef::as_ref);
        let indexed = index.skills.entry(skill.clone()).or_default();
        if version.is_some_and(|version| version.number == indexed.version) {
            continue;
        }
        let directory = match beneath::open_directory(tree.section(Section::Skills), skill.as_str()) {
            Ok(directory) => Place::Directory(directory),
            Err(Errno::NOENT) => Place::Absent,
            Err(_) => Place::Other,
        };
        let was_there = indexed.files.values().any(|file| file.state == State::Settled);
        if matches!(directory, Place::Absent) && was_there {
            indexed.presence = Presence::Deleted;
        }
        if indexed.presence == Presence::Deleted {
            continue;
        }
        steps.extend(plan_skill(&skill, version, indexed, &directory)?);
    }
    Ok(steps)
}

/// What has a skill's name.
enum Place {
    Directory(OwnedFd),
    Absent,
    /// A link or a file of somebody's, into which nothing is put.
    Other,
}

fn plan_skill(
    skill: &SkillName,
    version: Option<&Version>,
    indexed: &IndexedSkill,
    place: &Place,
) -> std::io::Result<Vec<Step>> {
    let wanted = version.into_iter().flat_map(|version| version.files.keys());
    let paths: BTreeSet<&RelativePath> = indexed.files.keys().chain(wanted).collect();
    let step = |path: &RelativePath| {
        let target = version.and_then(|version| version.files.get(path));
        let (known, blobs) = match indexed.files.get(path) {
            None => (Known::Unknown, [].as_slice()),
            Some(IndexedFile { state: State::Settled, known }) => (Known::Settled, known.as_slice()),
            Some(IndexedFile { state: State::Unsettled, known }) => (Known::Unsettled, known.as_slice()),
        };
        let here = match place {
            Place::Directory(directory) => look(directory, path.as_str(), blobs, target)?,
            Place::Absent => Here::Absent,
            Place::Other => Here::Own,
        };
        let act = decide(known, here, target.map_or(Target::Nothing, |_| Target::File));
        Ok(Step { skill: skill.clone(), path: path.clone(), act })
    };
    paths.into_iter().map(step).collect()
}

/// What is at a path, by its content: times can be set and are coarse.
fn look(directory: &OwnedFd, path: &str, known: &[Blob], target: Option<&BaselineFile>) -> std::io::Result<Here> {
    let (file, size) = match beneath::open_regular(directory, path) {
        Ok(Some((file, status))) => (file, u64::try_from(status.st_size).unwrap_or(u64::MAX)),
        Err(Errno::NOENT) => return Ok(Here::Absent),
        // A link, a directory or a file in the way, or something that its owner closed.
        Ok(None) | Err(Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => return Ok(Here::Own),
        Err(errno) => return Err(errno.into()),
    };
    let target = target.map(|file| &file.blob);
    if !known.iter().chain(target).any(|blob| blob.size == size) {
        return Ok(Here::Own);
    }
    let blob = Blob::of(&file, size)?;
    Ok(match () {
        () if target == Some(&blob) => Here::Wanted,
        () if known.contains(&blob) => Here::Copy,
        () => Here::Own,
    })
}

/// Whether what is at a path is what was brought there.
pub(crate) fn is_as_copied(directory: &OwnedFd, path: &str, known: &[Blob]) -> bool {
    look(directory, path, known, None).is_ok_and(|here| here == Here::Copy)
}

/// Writes into the index what is about to be done.
pub(crate) fn announce(steps: &[Step], snapshot: &Snapshot, index: &mut Index) {
    for Step { skill, path, act } in steps {
        if !matches!(act, Act::Add | Act::Replace | Act::Remove) {
            continue;
        }
        let Some(indexed) = index.skills.get_mut(skill) else { continue };
        let new = || IndexedFile { known: Vec::new(), state: State::Unsettled };
        let file = indexed.files.entry(path.clone()).or_insert_with(new);
        file.state = State::Unsettled;
        let target = snapshot.skills.get(skill).and_then(|version| version.files.get(path));
        if let Some(BaselineFile { blob, .. }) = target
            && !file.known.contains(blob)
        {
            file.known.push(blob.clone());
        }
    }
}

/// Writes into the index what is now so.
pub(crate) fn settle(steps: &[Step], snapshot: &Snapshot, index: &mut Index) {
    for Step { skill, path, act } in steps {
        let Some(indexed) = index.skills.get_mut(skill) else { continue };
        let target = snapshot.skills.get(skill).and_then(|version| version.files.get(path));
        match (act, target) {
            (Act::Remove | Act::Forget, _) => drop(indexed.files.remove(path)),
            (Act::Add | Act::Replace | Act::Remember, Some(BaselineFile { blob, .. })) => {
                let file = IndexedFile { known: vec![blob.clone()], state: State::Settled };
                indexed.files.insert(path.clone(), file);
            }
            // Deleted by the user before the baseline did: whatever comes there is the user's, also if it was the baseline's once.
            (Act::Add | Act::Replace | Act::Remember, None) => {
                if let Some(file) = indexed.files.get_mut(path) {
                    file.known.clear();
                }
            }
        }
    }
}

struct Applying<'a> {
    tree: &'a Tree,
    desk: Desk,
}

impl Applying<'_> {
    /// Copies what the steps bring, and says the name of each copy. All are on the disk before the first is seen.
    fn copy(&mut self, steps: &[Step], snapshot: &Snapshot) -> std::io::Result<Vec<Option<String>>> {
        let mut copies = Vec::new();
        for step in steps {
            let version = snapshot.skills.get(&step.skill).filter(|_| matches!(step.act, Act::Add | Act::Replace));
            let target = version.and_then(|version| Some((version, version.files.get(&step.path)?)));
            copies.push(target.map(|(version, file)| self.desk.copy(version, &step.path, file)).transpose()?);
        }
        self.desk.force()?;
        Ok(copies)
    }

    /// Does one step, unless somebody was quicker: then what they did stays.
    fn apply(&mut self, step: &Step, copy: Option<&str>, known: &[Blob]) -> std::io::Result<()> {
        let (parent, name) = step.path.split();
        let parent = parent.map_or_else(|| step.skill.to_string(), |parent| format!("{}/{parent}", step.skill));
        let done = match (step.act, copy) {
            (Act::Add, Some(copy)) => self.add(&parent, name, copy),
            (Act::Replace, Some(copy)) => self.replace(&parent, name, copy, known),
            (Act::Remove, _) => self.remove(&parent, name, known),
            (Act::Add | Act::Replace | Act::Remember | Act::Forget, _) => Ok(()),
        };
        match done {
            // Somebody made, removed or swapped the name or a directory on the way.
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn add(&mut self, parent: &str, name: &str, copy: &str) -> rustix::io::Result<()> {
        let skills = &self.tree.section(Section::Skills).handle;
        let parent = ensure_parents(skills, parent, self.tree.workspace().owner())?;
        rustix::fs::renameat_with(&self.desk.place, copy, parent, name, RenameFlags::NOREPLACE)
    }

    fn replace(&mut self, parent: &str, name: &str, copy: &str, known: &[Blob]) -> rustix::io::Result<()> {
        let parent = beneath::open_directory(self.tree.section(Section::Skills), parent)?;
        let exchange = || rustix::fs::renameat_with(&self.desk.place, copy, &parent, name, RenameFlags::EXCHANGE);
        exchange()?;
        if self.is_copy(copy, known) { Ok(()) } else { exchange() }
    }

    fn remove(&mut self, parent: &str, name: &str, known: &[Blob]) -> rustix::io::Result<()> {
        let skills = self.tree.section(Section::Skills);
        let directory = beneath::open_directory(skills, parent)?;
        let out = self.desk.free_name();
        rustix::fs::renameat_with(&directory, name, &self.desk.place, out.as_str(), RenameFlags::NOREPLACE)?;
        if !self.is_copy(&out, known) {
            return rustix::fs::renameat_with(&self.desk.place, out, &directory, name, RenameFlags::NOREPLACE);
        }
        remove_empty(skills, parent);
        Ok(())
    }

    /// The second look: what came out is what the baseline had brought.
    fn is_copy(&self, name: &str, known: &[Blob]) -> bool {
        is_as_copied(&self.desk.place, name, known)
    }
}

/// Removes a directory inside a skill and those that hold it, as long as they are empty. The skill's own stays: its
/// absence would mean that the user deleted it.
fn remove_empty(skills: impl AsFd, path: &str) {
    let mut path = path;
    while let Some((parent, name)) = path.rsplit_once('/') {
        let removed = beneath::open_directory(&skills, parent)
            .and_then(|parent| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR));
        if removed.is_err() {
            return;
        }
        path = parent;
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
