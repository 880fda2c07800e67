//! The share of the disk that each workspace has, and each session within it: what it takes, as far as it is known, and what
//! is said when that is all.
//!
//! A figure is measured by looking at every file, and then kept in memory: what comes through the service is added to it,
//! and whatever else may have changed it has it measured again later. To let somebody go on, the figure is enough; nobody
//! is refused because of one that is not fresh. When much has run since and the file system has lost more than the
//! workspace had left, the figure is not believed either. Figures of workspaces that were not used for long are forgotten.
//! What is on its way has its room kept (`room`), so that several who had room for themselves do not take more together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringwall_record::{AgentId, Store, UserId};
use ringwall_workspace::{SessionId, Usage, Workspace};

use crate::error::Error;
use crate::service::Service;

use super::open::Agent;

const MIB: u64 = 1024 * 1024;
const MAX_KNOWN: usize = 4096;
/// Between two looks at least; a box that lives shorter is never looked at.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// Of the time that looking takes: so nobody spends more than a twentieth of a processor on it.
const RESTS: u32 = 20;
/// A box in a full workspace is let go so far: it has a directory of its own, and whoever makes room may note something.
const LEEWAY: Usage = Usage { bytes: MIB, files: 64 };
/// Times the share: full workspaces are not counted further than this.
const NAMES_COUNTED: u64 = 10;

type Key = (UserId, AgentId, Option<SessionId>);

/// What is known of all workspaces. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quotas {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    figures: HashMap<Key, Figure>,
    /// Room that is kept for what is on its way.
    coming: HashMap<Key, Usage>,
    /// Bytes of large commands on record, which count as the workspace's own.
    recorded: HashMap<(UserId, AgentId), u64>,
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
    /// What it took when a box was first let into it although it was full.
    full_from: Option<Usage>,
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
        MIN_INTERVAL.max(self.took.saturating_mul(RESTS))
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
    /// What a box in it is ended for exceeding: the share, or what there was when it began.
    pub(super) bearable: Usage,
}

impl Service {
    /// What a workspace takes at most.
    fn share(&self) -> Usage {
        let settings = self.settings_now().workspace;
        Usage { bytes: u64::from(settings.quota_mb.get()) * MIB, files: settings.quota_files.get().into() }
    }

    /// Refuses a large command if the workspace has no room for it on record. Requests that are decided at the same
    /// time see the same figure, so the share can be exceeded by as many commands as are on their way.
    pub(crate) async fn check_room_on_record(
        &self,
        user: &UserId,
        agent: &AgentId,
        words: &[String],
    ) -> Result<(), Error> {
        let size: usize = words.iter().map(String::len).sum();
        if size <= Store::UNCOUNTED {
            return Ok(());
        }
        let recorded = self.inner.store.recorded_bytes(user, agent).await?;
        self.inner.quotas.set_recorded(user, agent, recorded);
        self.inner.quotas.check_room_on_record(user, agent, size as u64, self.share())
    }

    /// Reads what all workspaces have on record: at the start, and after retention.
    pub(crate) async fn load_recorded(&self) -> Result<(), Error> {
        for (user, agent, bytes) in self.inner.store.all_recorded_bytes().await? {
            self.inner.quotas.set_recorded(&user, &agent, bytes);
        }
        Ok(())
    }

    pub(crate) fn disk(&self, user: &UserId, agent: &AgentId, workspace: &Workspace) -> Disk {
        let most = self.share();
        let (key, workspace) = ((user.clone(), agent.clone(), None), workspace.clone());
        Disk { quotas: self.inner.quotas.clone(), key, workspace, most, bearable: most }
    }

    /// The share of a session, beside that of its workspace.
    pub(crate) fn session_disk(&self, disk: &Disk, session: &SessionId) -> Disk {
        let bytes = u64::from(self.settings_now().sessions.max_mb.get()) * MIB;
        let (user, agent, _) = disk.key.clone();
        let (key, most) = ((user, agent, Some(session.clone())), Usage { bytes, files: disk.most.files });
        Disk { key, most, bearable: most, ..disk.clone() }
    }

    pub(super) fn disk_of(&self, agent: &Agent) -> Disk {
        self.disk(&agent.user, &agent.agent, agent.tree.workspace())
    }
}

impl Disk {
    #[cfg(test)]
    pub(super) fn for_test(quotas: Quotas, user: &UserId, agent: &AgentId, workspace: &Workspace, most: Usage) -> Self {
        let key = (user.clone(), agent.clone(), None);
        Self { quotas, key, workspace: workspace.clone(), most, bearable: most }
    }

    /// Keeps so much room, if it is there. Blocks where that has to be looked at.
    pub(super) fn keep(&self, more: Usage) -> Result<(), Error> {
        if let Some(figure) = self.figure() {
            if self.is_believed(&figure) && self.try_to_keep(figure.usage, more).is_ok() {
                return Ok(());
            }
            if figure.is_settled() && figure.begun.elapsed() < figure.rest() {
                return self.try_to_keep(figure.usage, more);
            }
        }
        let usage = self.measure(self.most.files)?.usage;
        self.try_to_keep(usage, more)
    }

    /// Looking and keeping in one step, so that nobody else keeps the same room in between.
    fn try_to_keep(&self, usage: Usage, more: Usage) -> Result<(), Error> {
        let mut known = self.quotas.lock();
        // It may have been added to since.
        let usage = known.figures.get(&self.key).map_or(usage, |figure| figure.usage);
        let coming = known.coming.get(&self.key).copied().unwrap_or_default();
        let taken = usage.plus(coming);
        if !taken.has_room(more, self.most) {
            return Err(self.refusal(taken, more));
        }
        known.coming.insert(self.key.clone(), coming.plus(more));
        Ok(())
    }

    /// Gives kept room back.
    pub(super) fn release(&self, kept: Usage) {
        let mut known = self.quotas.lock();
        if let Some(coming) = known.coming.get_mut(&self.key) {
            *coming = coming.minus(kept);
            if *coming == Usage::default() {
                known.coming.remove(&self.key);
            }
        }
    }

    /// The share of a box that begins now. Where there is too much already, it may take that much and make room; but only
    /// so often, or each would leave some more than the one before.
    pub(crate) fn for_box(&self) -> Result<Self, Error> {
        if let Some(figure) = self.figure()
            && self.is_believed(&figure)
            && figure.usage.fits(self.most)
        {
            return Ok(self.clone());
        }
        let counted = self.most.files.saturating_mul(NAMES_COUNTED);
        let figure = self.measure(counted)?;
        if figure.usage.fits(self.most) {
            return Ok(self.clone());
        }
        let from = figure.full_from.unwrap_or(figure.usage);
        if figure.usage.files > counted || !figure.usage.fits(from.plus(self.most)) {
            return Err(self.refusal(figure.usage, Usage::default()));
        }
        if let Some(known) = self.quotas.lock().figures.get_mut(&self.key) {
            known.full_from = Some(from);
        }
        Ok(Self { bearable: self.most.or_more(figure.usage.plus(LEEWAY)), ..self.clone() })
    }

    /// Whether a box that has not been let in for this look may go on: as much as there was when one was let into a full
    /// workspace is borne.
    pub(super) fn bears(&self, figure: &Figure) -> bool {
        let full = figure.full_from.map_or(self.most, |from| self.most.or_more(from.plus(LEEWAY)));
        figure.usage.fits(full)
    }

    fn is_believed(&self, figure: &Figure) -> bool {
        figure.is_settled() || !self.is_doubtful(figure)
    }

    /// So much was added.
    pub(crate) fn add(&self, more: Usage) {
        self.change(|figure| figure.usage = figure.usage.plus(more));
    }

    /// Something was taken away or replaced.
    pub(crate) fn shrink(&self) {
        self.change(|_| {});
    }

    /// Looks at everything, but no further than so many names. Blocks.
    pub(super) fn measure(&self, files_most: u64) -> Result<Figure, Error> {
        let (begun, changes) = (Instant::now(), self.figure().map_or(0, |figure| figure.changes));
        let free_bytes = self.workspace.free_bytes()?;
        let usage = match &self.key.2 {
            None => self.workspace.measure(files_most)?.plus(self.quotas.recorded(&self.key.0, &self.key.1)),
            Some(session) => self.workspace.measure_session(session, files_most)?,
        };
        let (took, next, full_from) = (begun.elapsed(), Next::Open, None);
        let mut figure = Figure { usage, free_bytes, begun, took, changes, measured_changes: changes, next, full_from };
        let mut known = self.quotas.lock();
        let figures = &mut known.figures;
        if let Some(known) = figures.get(&self.key) {
            (figure.changes, figure.next) = (known.changes, known.next);
            figure.full_from = known.full_from.filter(|_| !usage.fits(self.most));
        } else if figures.len() >= MAX_KNOWN {
            let oldest = figures.iter().min_by_key(|(_, figure)| figure.begun).map(|(key, _)| key.clone());
            oldest.and_then(|key| figures.remove(&key));
        }
        figures.insert(self.key.clone(), figure);
        Ok(figure)
    }

    pub(super) fn figure(&self) -> Option<Figure> {
        self.quotas.lock().figures.get(&self.key).copied()
    }

    pub(super) fn is_doubtful(&self, figure: &Figure) -> bool {
        self.workspace.free_bytes().is_ok_and(|free| figure.is_doubtful(free, self.bearable))
    }

    /// When to measure again, if that is not planned already; whoever asks has it planned.
    pub(super) fn plan(&self) -> Option<Duration> {
        let mut known = self.quotas.lock();
        let figure = known.figures.get_mut(&self.key)?;
        figure.changes += 1;
        let is_first = std::mem::replace(&mut figure.next, Next::Planned) == Next::Open;
        is_first.then(|| figure.rest())
    }

    pub(super) fn unplan(&self) {
        if let Some(figure) = self.quotas.lock().figures.get_mut(&self.key) {
            figure.next = Next::Open;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Figure)) {
        // Of what is not known there is nothing to correct: it is measured when it is asked for.
        if let Some(figure) = self.quotas.lock().figures.get_mut(&self.key) {
            figure.changes += 1;
            change(figure);
        }
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
    /// So much of a workspace's commands is on record.
    pub(crate) fn set_recorded(&self, user: &UserId, agent: &AgentId, bytes: u64) {
        let mut known = self.lock();
        let before = known.recorded.insert((user.clone(), agent.clone()), bytes).unwrap_or_default();
        if let Some(figure) = known.figures.get_mut(&(user.clone(), agent.clone(), None)) {
            figure.usage.bytes = figure.usage.bytes.saturating_add(bytes).saturating_sub(before);
        }
    }

    fn recorded(&self, user: &UserId, agent: &AgentId) -> Usage {
        let recorded = self.lock().recorded.get(&(user.clone(), agent.clone())).copied();
        Usage { bytes: recorded.unwrap_or_default(), files: 0 }
    }

    /// Files, as last measured, and commands on record.
    fn used(&self, user: &UserId, agent: &AgentId) -> Usage {
        let figure = self.lock().figures.get(&(user.clone(), agent.clone(), None)).map(|figure| figure.usage);
        figure.unwrap_or_else(|| self.recorded(user, agent))
    }

    /// Refuses a command for which the record has no room within the workspace's share.
    fn check_room_on_record(&self, user: &UserId, agent: &AgentId, size: u64, most: Usage) -> Result<(), Error> {
        let (used, more) = (self.used(user, agent), Usage { bytes: size, files: 0 });
        if used.plus(more).bytes <= most.bytes {
            return Ok(());
        }
        let message = format!(
            "{} Commands over 4 KiB stay on record and count; retention.execs_days removes them.",
            words(Place::Workspace, used, more, most)
        );
        Err(Error::DiskQuota { message })
    }

    /// Something was taken away from whoever it may be.
    pub(crate) fn shrink_all(&self) {
        self.lock().figures.values_mut().for_each(|figure| figure.changes += 1);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
    let wanted = usage.plus(more);
    // Whoever needs bytes alone is not told of names.
    if wanted.files > most.files && (more.files > 0 || more.bytes == 0) {
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
