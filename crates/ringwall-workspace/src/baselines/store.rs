//! The directory of all baselines. It belongs to the server, and no box has access to it.

use std::collections::HashMap;
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use parking_lot::MutexGuard;
use ringwall_ids::AgentId;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::baselines::retire::Retired;
use crate::baselines::snapshot::{Current, Snapshot, Version};
use crate::error::Error;
use crate::fs::durable::{create_unnamed_file, read_document};
use crate::fs::{beneath, beneath::PRIVATE_DIRECTORY};
use crate::skills::{ArchiveLimits, CheckedZip, SkillName, StagingDir};
use crate::workspaces::{Owner, STAGING};

pub(crate) const CURRENT: &str = ".current";

/// The baselines of all agents.
#[derive(Debug)]
pub struct Baselines {
    pub(crate) root: OwnedFd,
    pub(crate) staging: OwnedFd,
    pub(crate) current: OwnedFd,
    agents: Mutex<HashMap<AgentId, Arc<Shared>>>,
    /// The sync state of each workspace, by path.
    last_syncs: Mutex<HashMap<PathBuf, LastSync>>,
    pub(crate) retired: Mutex<Vec<Retired>>,
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
pub(crate) struct Shared {
    /// Serializes publications.
    pub(crate) publishing: Mutex<()>,
    pub(crate) snapshot: Mutex<Arc<Snapshot>>,
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

    pub(crate) fn shared(&self, agent: &AgentId) -> Result<Arc<Shared>, Error> {
        if let Some(shared) = self.agents().get(agent) {
            return Ok(Arc::clone(shared));
        }
        // Loaded without holding the lock. If two threads load it, both use the result that was
        // inserted first.
        let snapshot = Mutex::new(Arc::new(self.load(agent)?));
        let read = Arc::new(Shared { publishing: Mutex::default(), snapshot });
        Ok(Arc::clone(self.agents().entry(agent.clone()).or_insert(read)))
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<AgentId, Arc<Shared>>> {
        self.agents.lock()
    }

    pub(crate) fn last_syncs(&self) -> MutexGuard<'_, HashMap<PathBuf, LastSync>> {
        self.last_syncs.lock()
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

    pub(crate) fn read_current(&self, agent: &AgentId) -> std::io::Result<Option<Current>> {
        match read_document(&self.current, &format!("{agent}.json")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            outcome => outcome.map(Some),
        }
    }
}

fn open_version(skill_dir: &OwnedFd, number: u64) -> std::io::Result<Version> {
    let directory = beneath::open_directory(skill_dir, number.to_string().as_str())?;
    let files = read_document(skill_dir, &format!("{number}.json"))?;
    Ok(Version { number, directory, files })
}
