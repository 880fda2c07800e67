//! The share of the disk that each workspace has, and each session within it: what it takes, as far as it is known, and what
//! is said when that is all.
//!
//! A figure is measured by looking at every file, and then kept in memory: what comes through the service is added to it,
//! and whatever else may have changed it has it measured again later. To let somebody go on, the figure is enough; nobody
//! is refused because of one that is not fresh. When much has run since and the file system has lost more than the
//! workspace had left, the figure is not believed either. Figures of workspaces that were not used for long are forgotten.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use record::{AgentId, UserId};
use workspace::{SessionId, Usage, Workspace};

use crate::error::Error;
use crate::service::Service;

use super::open::Agent;

const MIB: u64 = 1024 * 1024;
const KNOWN_MOST: usize = 4096;
/// Between two looks at least; a box that lives shorter is never looked at.
pub(super) const SHORTEST_REST: Duration = Duration::from_millis(250);
/// Of the time that looking takes: so nobody spends more than a twentieth of a processor on it.
const RESTS: u32 = 20;

type Key = (UserId, AgentId, Option<SessionId>);

/// What is known of all workspaces. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quotas {
    figures: Arc<Mutex<HashMap<Key, Figure>>>,
}

/// What one workspace took when it was measured, and what has happened since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub(super) usage: Usage,
    /// What the file system had left then.
    free_bytes: u64,
    pub(super) begun: Instant,
    pub(super) took: Duration,
    /// How often something happened to it, ever and when it was measured.
    changes: u64,
    measured_changes: u64,
    next: Next,
}

/// Whether somebody is going to measure it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Open,
    Planned,
}

impl Figure {
    fn is_settled(&self) -> bool {
        self.changes == self.measured_changes
    }

    pub(super) fn rest(&self) -> Duration {
        SHORTEST_REST.max(self.took.saturating_mul(RESTS))
    }

    /// Whether the file system has lost so much since that the workspace could have more than it may.
    pub(super) fn is_doubtful(&self, free_bytes: u64, most: Usage) -> bool {
        let left = most.bytes.saturating_sub(self.usage.bytes);
        self.free_bytes.saturating_sub(free_bytes) > left
    }
}

/// The share of one workspace, or of one session in it.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    quotas: Quotas,
    key: Key,
    pub(super) workspace: Workspace,
    pub(super) most: Usage,
}

impl Service {
    pub(crate) fn disk(&self, user: &UserId, agent: &AgentId, workspace: &Workspace) -> Disk {
        let settings = self.settings_now().workspace;
        let most = Usage { bytes: u64::from(settings.quota_mb.get()) * MIB, files: settings.quota_files.get().into() };
        let (key, workspace) = ((user.clone(), agent.clone(), None), workspace.clone());
        Disk { quotas: self.inner.quotas.clone(), key, workspace, most }
    }

    /// The share of a session, beside that of its workspace.
    pub(crate) fn session_disk(&self, disk: &Disk, session: &SessionId) -> Disk {
        let bytes = u64::from(self.settings_now().sessions.max_mb.get()) * MIB;
        let (user, agent, _) = disk.key.clone();
        let (key, most) = ((user, agent, Some(session.clone())), Usage { bytes, files: disk.most.files });
        Disk { key, most, ..disk.clone() }
    }

    pub(super) fn disk_of(&self, agent: &Agent) -> Disk {
        self.disk(&agent.user, &agent.agent, agent.tree.workspace())
    }
}

impl Disk {
    /// Does what adds so much, if there is room for it. Blocks as [`Self::require`] does.
    pub(crate) fn adding<T>(&self, more: Usage, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.require(more)?;
        let done = work()?;
        self.add(more);
        Ok(done)
    }

    /// Whether there is room for so much more. Blocks where that has to be looked at.
    pub(crate) fn require(&self, more: Usage) -> Result<(), Error> {
        if let Some(figure) = self.known() {
            let wanted = figure.usage.plus(more);
            if wanted.fits(self.most) && (figure.is_settled() || !self.is_doubtful(&figure)) {
                return Ok(());
            }
            if figure.is_settled() && !wanted.fits(self.most) && figure.begun.elapsed() < figure.rest() {
                return Err(self.refusal(figure.usage, more));
            }
        }
        let usage = self.measure()?.usage;
        if usage.plus(more).fits(self.most) { Ok(()) } else { Err(self.refusal(usage, more)) }
    }

    /// How much more there may be, if anything may. Blocks as [`Self::require`] does.
    pub(crate) fn left(&self) -> Result<Usage, Error> {
        self.require(Usage::default())?;
        let usage = self.known().map(|figure| figure.usage).unwrap_or_default();
        Ok(Usage {
            bytes: self.most.bytes.saturating_sub(usage.bytes),
            files: self.most.files.saturating_sub(usage.files),
        })
    }

    /// So much was added.
    pub(crate) fn add(&self, more: Usage) {
        self.change(|figure| figure.usage = figure.usage.plus(more));
    }

    /// Something was taken away or replaced.
    pub(crate) fn shrink(&self) {
        self.change(|_| {});
    }

    /// Looks at everything. Blocks.
    pub(super) fn measure(&self) -> Result<Figure, Error> {
        let (begun, changes) = (Instant::now(), self.known().map_or(0, |figure| figure.changes));
        let free_bytes = self.workspace.free_bytes()?;
        let usage = match &self.key.2 {
            None => self.workspace.measure(self.most.files)?,
            Some(session) => self.workspace.measure_session(session, self.most.files)?,
        };
        let took = begun.elapsed();
        let mut figure =
            Figure { usage, free_bytes, begun, took, changes, measured_changes: changes, next: Next::Open };
        let mut figures = self.quotas.lock();
        if let Some(known) = figures.get(&self.key) {
            (figure.changes, figure.next) = (known.changes, known.next);
        } else if figures.len() >= KNOWN_MOST {
            let oldest = figures.iter().min_by_key(|(_, figure)| figure.begun).map(|(key, _)| key.clone());
            oldest.and_then(|key| figures.remove(&key));
        }
        figures.insert(self.key.clone(), figure);
        Ok(figure)
    }

    pub(super) fn known(&self) -> Option<Figure> {
        self.quotas.lock().get(&self.key).copied()
    }

    pub(super) fn is_doubtful(&self, figure: &Figure) -> bool {
        self.workspace.free_bytes().is_ok_and(|free| figure.is_doubtful(free, self.most))
    }

    /// When to measure again, if that is not planned already; whoever asks has it planned.
    pub(super) fn plan(&self) -> Option<Duration> {
        let mut figures = self.quotas.lock();
        let figure = figures.get_mut(&self.key)?;
        figure.changes += 1;
        let is_first = std::mem::replace(&mut figure.next, Next::Planned) == Next::Open;
        is_first.then(|| figure.rest())
    }

    pub(super) fn unplan(&self) {
        if let Some(figure) = self.quotas.lock().get_mut(&self.key) {
            figure.next = Next::Open;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Figure)) {
        // Of what is not known there is nothing to correct: it is measured when it is asked for.
        if let Some(figure) = self.quotas.lock().get_mut(&self.key) {
            figure.changes += 1;
            change(figure);
        }
    }

    /// The words for whoever needs so much more than there is.
    pub(crate) fn refuse(&self, more: Usage) -> String {
        self.words(self.known().map(|figure| figure.usage).unwrap_or_default(), more)
    }

    pub(super) fn words(&self, usage: Usage, more: Usage) -> String {
        let place = if self.key.2.is_some() { Place::Session } else { Place::Workspace };
        words(place, usage, more, self.most)
    }

    fn refusal(&self, usage: Usage, more: Usage) -> Error {
        Error::DiskQuota { message: self.words(usage, more) }
    }
}

impl Quotas {
    /// Something was taken away from whoever it may be.
    pub(crate) fn shrink_all(&self) {
        self.lock().values_mut().for_each(|figure| figure.changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Figure>> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What has a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Workspace,
    Session,
}

/// How much there is, how much there may be, and what to do about it.
pub(super) fn words(place: Place, usage: Usage, more: Usage, most: Usage) -> String {
    let (name, setting) = match place {
        Place::Workspace => ("workspace", "workspace.quota_mb"),
        Place::Session => ("session", "sessions.max_mb"),
    };
    let needs =
        |needed: String| if more == Usage::default() { String::new() } else { format!(" This needs {needed} more.") };
    if usage.plus(more).files > most.files {
        let has = if usage.files > most.files { format!("more than {}", most.files) } else { usage.files.to_string() };
        let needs = needs(more.files.to_string());
        return format!(
            "The {name} is full: it has {has} of the {} files and directories that it may have.{needs} Delete what is \
             not needed, or have an operator raise workspace.quota_files.",
            most.files
        );
    }
    format!(
        "The {name} is full: it takes {} of the {} that it may take.{} Delete what is not needed, or have an operator \
         raise {setting}.",
        amount(usage.bytes),
        amount(most.bytes),
        needs(amount(more.bytes)),
    )
}

fn amount(bytes: u64) -> String {
    if bytes < MIB { format!("{} KiB", bytes.div_ceil(1024)) } else { format!("{:.1} MiB", bytes as f64 / MIB as f64) }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
