//! Updates a workspace to its agent's baselines, path by path, as decided by [`decide`].
//!
//! Boxes may run and change files at any time. Therefore an addition never replaces anything, and a
//! file that is to be replaced or removed is first moved to where no box can reach, checked again,
//! and moved back if it had changed. Additions are done first, so that a skill does not disappear
//! during an update. An interrupted sync is repeated from the beginning; the index contains what it
//! intended.
//!
//! A box that runs during a sync sees some files old and some new. Callers that can wait use
//! [`new_skills`](super::new_skills) while boxes run.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ringwall_ids::AgentId;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use crate::baselines::checkout::CheckoutDir;
use crate::baselines::index::{Index, IndexedFile, IndexedSkill, Presence, State};
use crate::baselines::snapshot::{BaselineFile, Blob, Snapshot, Version};
use crate::baselines::store::{Baselines, LastSync};
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::read::file_size;
use crate::project::READABLE_DIRECTORY;
use crate::relative_path::RelativePath;
use crate::skills::SkillName;
use crate::tree::{Section, Tree};
use crate::usage::Usage;
use crate::workspaces::Workspace;

/// The action for one path.
pub(crate) struct Step {
    pub(crate) skill: SkillName,
    pub(crate) path: RelativePath,
    pub(crate) action: Action,
}

/// How far a workspace is behind its agent's baselines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    UpToDate,
    /// The new skills were added; changes of existing skills are pending.
    Pending {
        since: Instant,
    },
    Outdated,
}

impl Baselines {
    /// Cheap: reads the baselines once per agent, and then only checks that the index exists.
    pub fn sync_state(&self, agent: &AgentId, workspace: &Workspace) -> Result<SyncState, Error> {
        let generation = self.snapshot(agent)?.generation;
        if generation == 0 {
            return Ok(SyncState::UpToDate);
        }
        let last_sync = self.last_syncs.lock().get(workspace.path()).copied();
        Ok(match last_sync.filter(|last_sync| last_sync.generation == generation) {
            // The workspace was removed and created again since its last sync.
            Some(_) if !Index::is_there(workspace) => SyncState::Outdated,
            Some(LastSync { pending_since: None, .. }) => SyncState::UpToDate,
            Some(LastSync { pending_since: Some(since), .. }) => SyncState::Pending { since },
            None => SyncState::Outdated,
        })
    }

    /// Updates the workspace to the current baselines. Boxes may run; the caller excludes other
    /// changes through the API.
    pub fn sync(&self, agent: &AgentId, tree: &Tree) -> Result<(), Error> {
        let snapshot = self.snapshot(agent)?;
        let mut index = Index::load(tree.workspace())?;
        if index.generation != snapshot.generation {
            update_workspace(tree, &snapshot, &mut index)?;
        }
        let last_sync = LastSync { generation: snapshot.generation, pending_since: None };
        self.last_syncs.lock().insert(tree.workspace().path().to_owned(), last_sync);
        drop(snapshot);
        self.remove_retired();
        Ok(())
    }

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

fn update_workspace(tree: &Tree, snapshot: &Snapshot, index: &mut Index) -> Result<(), Error> {
    let to_error = |source| Error::Baseline { operation: "update a workspace to its baselines", source };
    let mut steps = plan(tree, snapshot, index).map_err(to_error)?;
    steps.sort_by_key(|step| step.action != Action::Add);
    record_intent(&steps, snapshot, index);
    index.save(tree.workspace())?;
    let mut applier = Applier { tree, checkout_dir: CheckoutDir::new(tree.workspace())? };
    let copies = applier.copy(&steps, snapshot).map_err(to_error)?;
    for (step, copy) in steps.iter().zip(&copies) {
        let Some(indexed) = index.skills.get(&step.skill) else { continue };
        let known = indexed.files.get(&step.path).map(|file| file.known.as_slice()).unwrap_or_default();
        applier.apply(step, copy.as_deref(), known).map_err(to_error)?;
    }
    record_result(&steps, snapshot, index);
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
            Ok(directory) => SkillEntry::Directory(directory),
            Err(Errno::NOENT) => SkillEntry::Absent,
            Err(_) => SkillEntry::Other,
        };
        let was_there = indexed.files.values().any(|file| file.state == State::Settled);
        if matches!(directory, SkillEntry::Absent) && was_there {
            indexed.presence = Presence::Deleted;
        }
        if indexed.presence == Presence::Deleted {
            continue;
        }
        steps.extend(plan_skill(&skill, version, indexed, &directory)?);
    }
    Ok(steps)
}

/// The entry with the name of a skill.
enum SkillEntry {
    Directory(OwnedFd),
    Absent,
    /// A symlink or file of the user; nothing is written into it.
    Other,
}

fn plan_skill(
    skill: &SkillName,
    version: Option<&Version>,
    indexed: &IndexedSkill,
    entry: &SkillEntry,
) -> std::io::Result<Vec<Step>> {
    let wanted = version.into_iter().flat_map(|version| version.files.keys());
    let paths: BTreeSet<&RelativePath> = indexed.files.keys().chain(wanted).collect();
    let step = |path: &RelativePath| {
        let target = version.and_then(|version| version.files.get(path));
        let (known, blobs) = match indexed.files.get(path) {
            None => (IndexEntry::Unknown, [].as_slice()),
            Some(IndexedFile { state: State::Settled, known }) => (IndexEntry::Settled, known.as_slice()),
            Some(IndexedFile { state: State::Unsettled, known }) => (IndexEntry::Unsettled, known.as_slice()),
        };
        let here = match entry {
            SkillEntry::Directory(directory) => look(directory, path.as_str(), blobs, target)?,
            SkillEntry::Absent => LocalFile::Absent,
            SkillEntry::Other => LocalFile::Own,
        };
        let action = decide(known, here, target.map_or(NewVersion::Nothing, |_| NewVersion::File));
        Ok(Step { skill: skill.clone(), path: path.clone(), action })
    };
    paths.into_iter().map(step).collect()
}

/// Compares contents, because times can be set and are coarse.
fn look(directory: &OwnedFd, path: &str, known: &[Blob], target: Option<&BaselineFile>) -> std::io::Result<LocalFile> {
    let (file, size) = match beneath::open_regular(directory, path) {
        Ok(Some((file, status))) => (file, file_size(&status)),
        Err(Errno::NOENT) => return Ok(LocalFile::Absent),
        // A symlink, a directory, a file in place of a parent directory, or an unreadable file.
        Ok(None) | Err(Errno::NOTDIR | Errno::ACCESS | Errno::PERM) => return Ok(LocalFile::Own),
        Err(errno) => return Err(errno.into()),
    };
    let target = target.map(|file| &file.blob);
    if !known.iter().chain(target).any(|blob| blob.size == size) {
        return Ok(LocalFile::Own);
    }
    let blob = Blob::of(&file, size)?;
    Ok(match () {
        () if target == Some(&blob) => LocalFile::UpToDate,
        () if known.contains(&blob) => LocalFile::Copy,
        () => LocalFile::Own,
    })
}

/// True if the file at a path equals a recorded copy.
pub(crate) fn is_as_copied(directory: &OwnedFd, path: &str, known: &[Blob]) -> bool {
    look(directory, path, known, None).is_ok_and(|here| here == LocalFile::Copy)
}

/// Records the intended changes in the index.
pub(crate) fn record_intent(steps: &[Step], snapshot: &Snapshot, index: &mut Index) {
    for Step { skill, path, action } in steps {
        if !matches!(action, Action::Add | Action::Replace | Action::Remove) {
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

/// Records the completed changes in the index.
pub(crate) fn record_result(steps: &[Step], snapshot: &Snapshot, index: &mut Index) {
    for Step { skill, path, action } in steps {
        let Some(indexed) = index.skills.get_mut(skill) else { continue };
        let target = snapshot.skills.get(skill).and_then(|version| version.files.get(path));
        match (action, target) {
            (Action::Remove | Action::Forget, _) => drop(indexed.files.remove(path)),
            (Action::Add | Action::Replace | Action::Remember, Some(BaselineFile { blob, .. })) => {
                let file = IndexedFile { known: vec![blob.clone()], state: State::Settled };
                indexed.files.insert(path.clone(), file);
            }
            // The user deleted the file before the baseline did. No content counts as the
            // baseline's now: a file created there is the user's, even if it equals the former
            // baseline.
            (Action::Add | Action::Replace | Action::Remember, None) => {
                if let Some(file) = indexed.files.get_mut(path) {
                    file.known.clear();
                }
            }
        }
    }
}

struct Applier<'a> {
    tree: &'a Tree,
    checkout_dir: CheckoutDir,
}

impl Applier<'_> {
    /// Copies the files that the steps need and syncs them to disk. Returns the name of each copy.
    fn copy(&mut self, steps: &[Step], snapshot: &Snapshot) -> std::io::Result<Vec<Option<String>>> {
        let mut copies = Vec::new();
        for step in steps {
            let version =
                snapshot.skills.get(&step.skill).filter(|_| matches!(step.action, Action::Add | Action::Replace));
            let target = version.and_then(|version| Some((version, version.files.get(&step.path)?)));
            copies.push(target.map(|(version, file)| self.checkout_dir.copy(version, &step.path, file)).transpose()?);
        }
        self.checkout_dir.sync()?;
        Ok(copies)
    }

    /// Executes one step. A change that a box made meanwhile is kept.
    fn apply(&mut self, step: &Step, copy: Option<&str>, known: &[Blob]) -> std::io::Result<()> {
        let (parent, name) = step.path.split();
        let parent = parent.map_or_else(|| step.skill.to_string(), |parent| format!("{}/{parent}", step.skill));
        let done = match (step.action, copy) {
            (Action::Add, Some(copy)) => self.add(&parent, name, copy),
            (Action::Replace, Some(copy)) => self.replace(&parent, name, copy, known),
            (Action::Remove, _) => self.remove(&parent, name, known),
            (Action::Add | Action::Replace | Action::Remember | Action::Forget, _) => Ok(()),
        };
        match done {
            // A box created, removed or replaced the entry or a parent directory.
            Err(Errno::EXIST | Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP) => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    fn add(&mut self, parent: &str, name: &str, copy: &str) -> rustix::io::Result<()> {
        let skills = &self.tree.section(Section::Skills).handle;
        let owner = self.tree.workspace().owner();
        let parent = beneath::ensure_directories(skills, parent, READABLE_DIRECTORY, owner)?;
        rustix::fs::renameat_with(self.checkout_dir.handle(), copy, parent, name, RenameFlags::NOREPLACE)
    }

    fn replace(&mut self, parent: &str, name: &str, copy: &str, known: &[Blob]) -> rustix::io::Result<()> {
        let parent = beneath::open_directory(self.tree.section(Section::Skills), parent)?;
        let exchange =
            || rustix::fs::renameat_with(self.checkout_dir.handle(), copy, &parent, name, RenameFlags::EXCHANGE);
        exchange()?;
        if self.is_copy(copy, known) { Ok(()) } else { exchange() }
    }

    fn remove(&mut self, parent: &str, name: &str, known: &[Blob]) -> rustix::io::Result<()> {
        let skills = self.tree.section(Section::Skills);
        let directory = beneath::open_directory(skills, parent)?;
        let out = self.checkout_dir.unused_name();
        rustix::fs::renameat_with(&directory, name, self.checkout_dir.handle(), out.as_str(), RenameFlags::NOREPLACE)?;
        if !self.is_copy(&out, known) {
            return rustix::fs::renameat_with(
                self.checkout_dir.handle(),
                out,
                &directory,
                name,
                RenameFlags::NOREPLACE,
            );
        }
        remove_empty(skills, parent);
        Ok(())
    }

    /// Checks a file that was moved out of the boxes' reach.
    fn is_copy(&self, name: &str, known: &[Blob]) -> bool {
        is_as_copied(self.checkout_dir.handle(), name, known)
    }
}

/// Removes a directory within a skill, and its parents while they are empty. The skill's own
/// directory stays, because its absence means that the user deleted the skill.
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

/// The entry of a path in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexEntry {
    /// The baseline never had this path here.
    Unknown,
    /// The path was handled by a complete sync.
    Settled,
    /// A sync that intended to add, change or remove it was interrupted.
    Unsettled,
}

/// The file at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalFile {
    Absent,
    /// Equal to the new version.
    UpToDate,
    /// Equal to a copy of an earlier version.
    Copy,
    /// The user's own.
    Own,
}

/// The path in the new version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewVersion {
    File,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Add,
    Replace,
    Remove,
    /// Leave the file as it is and record the path as one of the baseline.
    Remember,
    /// Leave the file as it is and drop the path from the index.
    Forget,
}

/// Decides what a sync does with one path of a skill. A file that the user changed stays, and one that
/// the user deleted stays deleted. Everything else follows the baseline.
pub(crate) fn decide(recorded: IndexEntry, local: LocalFile, new: NewVersion) -> Action {
    match (new, local, recorded) {
        (NewVersion::File, LocalFile::Absent, IndexEntry::Unknown | IndexEntry::Unsettled) => Action::Add,
        (NewVersion::File, LocalFile::Copy, _) => Action::Replace,
        // Deleted by the user, up to date, or the user's own. It is recorded, so that the
        // baseline's file does not come back when the user deletes the own one.
        (NewVersion::File, LocalFile::Absent | LocalFile::UpToDate | LocalFile::Own, _) => Action::Remember,
        (NewVersion::Nothing, LocalFile::Copy | LocalFile::UpToDate, IndexEntry::Settled | IndexEntry::Unsettled) => {
            Action::Remove
        }
        // Stays recorded, so that the user's deletion still counts if a later version has the path
        // again.
        (NewVersion::Nothing, LocalFile::Absent, IndexEntry::Settled) => Action::Remember,
        (NewVersion::Nothing, _, _) => Action::Forget,
    }
}

#[cfg(test)]
pub(crate) mod tests;
