//! The directory of all baselines: loads an agent's current versions, publishes uploads as new
//! versions, and removes versions that are no longer used. It belongs to the server, and no box has
//! access to it.
//!
//! All skills of an upload are published, or none, also after a crash: each becomes a directory with
//! a new version number, which nothing refers to yet; then one rename replaces the file that names
//! the current versions.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use ringwall_ids::AgentId;
use rustix::fs::{Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::baselines::snapshot::{BaselineFile, Blob, Current, Files, Snapshot, Version};
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::beneath::PRIVATE_DIRECTORY;
use crate::fs::durable::{create_unnamed_file, read_document, write_document};
use crate::fs::erase::erase;
use crate::fs::listing::Walk;
use crate::garbage::GcMode;
use crate::relative_path::RelativePath;
use crate::skills::{ArchiveLimits, CheckedZip, SkillName, StagingDir};
use crate::usage::{Usage, measure_name};
use crate::workspaces::{Owner, STAGING};

const CURRENT: &str = ".current";

/// The baselines of all agents.
#[derive(Debug)]
pub struct Baselines {
    root: OwnedFd,
    staging: OwnedFd,
    current: OwnedFd,
    agents: Mutex<HashMap<AgentId, Arc<Shared>>>,
    /// The sync state of each workspace, by path.
    pub(super) last_syncs: Mutex<HashMap<PathBuf, LastSync>>,
    retired: Mutex<Vec<Retired>>,
    unreadable: Vec<Error>,
}

/// The result of a workspace's last sync.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastSync {
    pub(crate) generation: u64,
    /// Set if the new skills of the generation were added but changes of existing skills are
    /// pending.
    pub(crate) pending_since: Option<Instant>,
}

/// State shared by all users of an agent.
#[derive(Debug)]
struct Shared {
    /// Serializes publications.
    publishing: Mutex<()>,
    snapshot: Mutex<Arc<Snapshot>>,
}

/// A version that was replaced by a newer one.
#[derive(Debug)]
struct Retired {
    skill_path: String,
    number: u64,
    version: Weak<Version>,
}

impl Baselines {
    /// Opens the directory, creates it if missing, and removes leftovers of a crash.
    pub fn open(root: &Path) -> Result<Self, Error> {
        let to_error = |source| Error::Baseline { operation: "open the directory of the baselines", source };
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY.as_raw_mode()).create(root).map_err(to_error)?;
        let to_error = |errno: Errno| to_error(errno.into());
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(root, flags, Mode::empty()).map_err(to_error)?;
        rustix::fs::fchmod(&handle, PRIVATE_DIRECTORY).map_err(to_error)?;
        let staging = beneath::ensure_directory(&handle, STAGING, PRIVATE_DIRECTORY).map_err(to_error)?;
        let current = beneath::ensure_directory(&handle, CURRENT, PRIVATE_DIRECTORY).map_err(to_error)?;
        let mut baselines = Self {
            root: handle,
            staging,
            current,
            agents: Mutex::default(),
            last_syncs: Mutex::default(),
            retired: Mutex::default(),
            unreadable: Vec::new(),
        };
        baselines.unreadable = baselines.sweep()?;
        Ok(baselines)
    }

    /// One error for each agent whose file of current versions could not be read by [`Self::open`].
    /// The baselines of such an agent are neither removed nor usable.
    pub fn unreadable(&self) -> &[Error] {
        &self.unreadable
    }

    /// Creates an empty file without a name for the body of an upload.
    pub fn upload_file(&self) -> Result<File, Error> {
        create_unnamed_file(&self.staging)
    }

    /// Checks and unpacks an uploaded ZIP and publishes its skills as the agent's baselines, all or
    /// none.
    pub fn upload(&self, agent: &AgentId, archive: File, limits: ArchiveLimits) -> Result<Vec<SkillName>, Error> {
        let staged = StagingDir::unpack(&self.staging, CheckedZip::read(archive, limits)?, Owner::server())?;
        self.publish(agent, &staged)?;
        Ok(staged.skills.iter().cloned().collect())
    }

    pub(crate) fn snapshot(&self, agent: &AgentId) -> Result<Arc<Snapshot>, Error> {
        Ok(Arc::clone(&self.shared(agent)?.snapshot.lock()))
    }

    fn shared(&self, agent: &AgentId) -> Result<Arc<Shared>, Error> {
        if let Some(shared) = self.agents.lock().get(agent) {
            return Ok(Arc::clone(shared));
        }
        // Loaded without holding the lock. If two threads load it, both use the result that was
        // inserted first.
        let snapshot = Mutex::new(Arc::new(self.load(agent)?));
        let read = Arc::new(Shared { publishing: Mutex::default(), snapshot });
        Ok(Arc::clone(self.agents.lock().entry(agent.clone()).or_insert(read)))
    }

    fn load(&self, agent: &AgentId) -> Result<Snapshot, Error> {
        let read = || -> std::io::Result<Snapshot> {
            let Some(current) = self.read_current(agent)? else { return Ok(Snapshot::default()) };
            let mut snapshot = Snapshot { generation: current.generation, ..Snapshot::default() };
            for (skill, number) in current.skills {
                let skill_dir = beneath::open_directory(&self.root, format!("{agent}/{skill}").as_str())?;
                let version = open_version(&skill_dir, number)?;
                snapshot.skills.insert(skill, Arc::new(version));
            }
            Ok(snapshot)
        };
        read().map_err(|source| Error::BaselinesUnreadable { agent: agent.clone(), source })
    }

    fn read_current(&self, agent: &AgentId) -> std::io::Result<Option<Current>> {
        match read_document(&self.current, &format!("{agent}.json")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    fn publish(&self, agent: &AgentId, staged: &StagingDir) -> Result<(), Error> {
        let to_error = |source| Error::Baseline { operation: "store an upload as baselines", source };
        let described = staged.skills.iter().map(|skill| Ok((skill, describe(&staged.new, skill)?)));
        let described = described.collect::<std::io::Result<Vec<_>>>().map_err(to_error)?;
        let shared = self.shared(agent)?;
        let publishing = shared.publishing.lock();
        let before = self.snapshot(agent)?;
        let mut after = Snapshot { generation: before.generation + 1, skills: before.skills.clone() };
        for (skill, files) in described {
            let number = before.skills.get(skill).map_or(1, |version| version.number + 1);
            let version = self.move_to_version(agent, skill, number, files, &staged.new).map_err(to_error)?;
            after.skills.insert(skill.clone(), Arc::new(version));
        }
        let skills = after.skills.iter().map(|(skill, version)| (skill.clone(), version.number)).collect();
        let current = Current { generation: after.generation, skills };
        write_document(&self.staging, &self.current, &format!("{agent}.json"), &current).map_err(to_error)?;
        *shared.snapshot.lock() = Arc::new(after);
        drop(publishing);
        for skill in &staged.skills {
            if let Some(version) = before.skills.get(skill) {
                self.retire(agent, skill, version);
            }
        }
        drop(before);
        self.remove_retired();
        Ok(())
    }

    /// Moves an unpacked skill to its version directory. A directory left there by a failed upload
    /// is deleted.
    fn move_to_version(
        &self,
        agent: &AgentId,
        skill: &SkillName,
        number: u64,
        files: Files,
        new: &OwnedFd,
    ) -> std::io::Result<Version> {
        let agent_dir = beneath::ensure_directory(&self.root, agent.as_str(), PRIVATE_DIRECTORY)?;
        let skill_dir = beneath::ensure_directory(&agent_dir, skill.as_str(), PRIVATE_DIRECTORY)?;
        let name = number.to_string();
        erase(&skill_dir, &name)?;
        write_document(&self.staging, &skill_dir, &format!("{name}.json"), &files)?;
        rustix::fs::renameat_with(new, skill.as_str(), &skill_dir, name.as_str(), RenameFlags::NOREPLACE)?;
        let directory = beneath::open_directory(&skill_dir, name.as_str())?;
        Ok(Version { number, directory, files })
    }

    fn retire(&self, agent: &AgentId, skill: &SkillName, version: &Arc<Version>) {
        let skill_path = format!("{agent}/{skill}");
        let retired = Retired { skill_path, number: version.number, version: Arc::downgrade(version) };
        self.retired.lock().push(retired);
    }

    /// Counts the unused versions and their disk usage, and removes them with [`GcMode::Remove`].
    pub fn collect_garbage(&self, mode: GcMode) -> (u64, Usage) {
        let mut found = (0, Usage::default());
        for retired in self.retired.lock().iter() {
            if retired.version.strong_count() == 0
                && let Ok(directory) = beneath::open_directory(&self.root, retired.skill_path.as_str())
                && let Ok(usage) = measure_name(&directory, &retired.number.to_string())
            {
                found = (found.0 + 1, found.1.plus(usage));
            }
        }
        if mode == GcMode::Remove {
            self.remove_retired();
        }
        found
    }

    /// Removes the unused versions. After an error the next start of the server removes them.
    pub(crate) fn remove_retired(&self) {
        let mut free = Vec::new();
        self.retired.lock().retain(|retired| {
            let is_held = retired.version.strong_count() > 0;
            if !is_held {
                free.push((retired.skill_path.clone(), retired.number));
            }
            is_held
        });
        for (skill_path, number) in free {
            if let Ok(directory) = beneath::open_directory(&self.root, skill_path.as_str()) {
                let _ = erase(&directory, &number.to_string());
                let _ = erase(&directory, &format!("{number}.json"));
            }
        }
    }

    /// Removes everything that is not named in an agent's file of current versions. Returns an
    /// error for each agent whose file cannot be read; nothing of such an agent is removed. For the
    /// start of the server, when no snapshot is in use.
    fn sweep(&self) -> Result<Vec<Error>, Error> {
        let mut unreadable = Vec::new();
        let mut sweep = || -> std::io::Result<()> {
            for name in names(&self.staging)? {
                erase(&self.staging, &name)?;
            }
            for agent in names(&self.root)? {
                // Other names that are no agent ids are left alone, too.
                if agent == STAGING || agent == CURRENT {
                    continue;
                }
                let Ok(agent) = agent.parse::<AgentId>() else { continue };
                match self.read_current(&agent) {
                    Ok(current) => self.sweep_agent(agent.as_str(), &current.unwrap_or_default())?,
                    Err(source) => unreadable.push(Error::BaselinesUnreadable { agent, source }),
                }
            }
            Ok(())
        };
        sweep().map_err(|source| Error::Baseline {
            operation: "remove leftovers of a crash from the baselines",
            source,
        })?;
        Ok(unreadable)
    }

    fn sweep_agent(&self, name: &str, current: &Current) -> std::io::Result<()> {
        let agent_dir = beneath::open_directory(&self.root, name)?;
        for folder in names(&agent_dir)? {
            let skill_dir = beneath::open_directory(&agent_dir, folder.as_str())?;
            let kept = kept(current, &folder);
            for stray in names(&skill_dir)?.iter().filter(|name| !kept.contains(name)) {
                erase(&skill_dir, stray)?;
            }
        }
        Ok(())
    }
}

fn open_version(skill_dir: &OwnedFd, number: u64) -> std::io::Result<Version> {
    let directory = beneath::open_directory(skill_dir, number.to_string().as_str())?;
    let files = read_document(skill_dir, &format!("{number}.json"))?;
    Ok(Version { number, directory, files })
}

/// Sizes and digests of an unpacked skill's files.
fn describe(new: &OwnedFd, skill: &SkillName) -> std::io::Result<Files> {
    let top = beneath::open_directory(new, skill.as_str())?;
    let mut files = Files::new();
    let mut walk = Walk::new(usize::MAX);
    walk.enter(&top, b"")?;
    while let Some(entry) = walk.next() {
        let path = RelativePath::from_listing(&entry.path).map_err(std::io::Error::other)?;
        match entry.kind {
            FileType::Directory => {
                walk.enter(beneath::open_directory(&top, path.as_str())?, &entry.path)?;
            }
            _ => {
                let opened = beneath::open_regular(&top, path.as_str())?;
                let (file, status) = opened.ok_or(std::io::ErrorKind::InvalidData)?;
                let blob = Blob::of(&file, u64::MAX)?;
                files.insert(path, BaselineFile { blob, mode: status.st_mode & 0o777 });
            }
        }
    }
    Ok(files)
}

fn kept(current: &Current, folder: &str) -> Vec<String> {
    let number = folder.parse::<SkillName>().ok().and_then(|skill| current.skills.get(&skill));
    number.map(|number| vec![number.to_string(), format!("{number}.json")]).unwrap_or_default()
}

fn names(directory: &std::os::fd::OwnedFd) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}
