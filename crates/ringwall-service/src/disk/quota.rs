//! Disk quotas of workspaces and of sessions inside them.
//!
//! A figure is measured by walking all files and then kept in memory. Changes through the service
//! are added to it; other changes cause a new measurement later. A request that fits the figure
//! proceeds at once. A request is refused only after a new measurement, or by a
//! recent one without later changes. A figure is also measured again if the free space of the file system has since shrunk by more than the workspace
//! had left. The oldest figures are dropped.
//!
//! Data that no measurement sees yet (an upload, the replacement of a file, many writes at once)
//! reserves its room first, so that parallel writers cannot exceed the quota together. A change that
//! needs no more than it frees needs no reservation, also when the quota is exceeded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringwall_ids::{AgentId, SessionId, UserId};
use ringwall_workspace::{Usage, Workspace};

use crate::error::Error;

pub(crate) const MIB: u64 = 1024 * 1024;
const MAX_KNOWN: usize = 4096;
/// Minimum interval of measurements; a box that runs shorter is not measured.
pub(super) const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a measurement is this multiple of its duration, so measuring takes at most a
/// twentieth of a CPU.
const PAUSE_FACTOR: u32 = 20;
/// The amount that a box may add to a full workspace: its own directory, and small files that its
/// user writes while making room.
const CLEANUP_ALLOWANCE: Usage = Usage { bytes: MIB, files: 64 };
/// Files are counted up to this multiple of the quota.
const MAX_COUNTED_FACTOR: u64 = 10;

type Key = (UserId, AgentId, Option<SessionId>);

/// The figures of all workspaces. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quotas {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    figures: HashMap<Key, Figure>,
    /// Reservations for data being written.
    reserved: HashMap<Key, Usage>,
    /// Bytes of large commands on record, which count against the workspace's quota.
    recorded: HashMap<(UserId, AgentId), u64>,
}

/// A measurement of one workspace and the changes since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    pub(super) usage: Usage,
    /// Free bytes of the file system at that time.
    free_bytes: u64,
    pub(super) begun: Instant,
    pub(super) took: Duration,
    /// Number of changes, in total and at the time of the measurement.
    changes: u64,
    measured_changes: u64,
    next: Next,
    /// The usage when the first box was admitted although the quota was exceeded.
    full_from: Option<Usage>,
}

/// State of the next measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    NotScheduled,
    Scheduled,
}

impl Figure {
    fn is_settled(&self) -> bool {
        self.changes == self.measured_changes
    }

    pub(super) fn pause(&self) -> Duration {
        MIN_INTERVAL.max(self.took.saturating_mul(PAUSE_FACTOR))
    }

    /// True if the free space has shrunk so much since the measurement that the quota may be exceeded.
    pub(super) fn is_doubtful(&self, free_bytes: u64, quota: Usage) -> bool {
        let left = quota.bytes.saturating_sub(self.usage.bytes);
        self.free_bytes.saturating_sub(free_bytes) > left
    }
}

/// The quota of one workspace, or of one session in it.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    quotas: Quotas,
    key: Key,
    pub(super) workspace: Workspace,
    pub(super) quota: Usage,
    /// A box that exceeds this is ended: the quota, or the usage when the box started if that was more.
    pub(super) box_limit: Usage,
}

impl Disk {
    /// The quota of a workspace.
    pub(crate) fn of_workspace(
        quotas: &Quotas,
        user: &UserId,
        agent: &AgentId,
        workspace: &Workspace,
        quota: Usage,
    ) -> Self {
        let key = (user.clone(), agent.clone(), None);
        Self { quotas: quotas.clone(), key, workspace: workspace.clone(), quota, box_limit: quota }
    }

    /// The quota of a session of this workspace: its own limit of bytes and the workspace's limit of files.
    pub(crate) fn of_session(&self, session: &SessionId, max_bytes: u64) -> Self {
        let (user, agent, _) = self.key.clone();
        let quota = Usage { bytes: max_bytes, files: self.quota.files };
        Self { key: (user, agent, Some(session.clone())), quota, box_limit: quota, ..self.clone() }
    }

    /// Reserves `more` if there is room. May measure, which blocks.
    pub(super) fn reserve_more(&self, more: Usage) -> Result<(), Error> {
        if let Some(figure) = self.figure() {
            if self.is_believed(&figure) && self.try_reserve(figure.usage, more).is_ok() {
                return Ok(());
            }
            if figure.is_settled() && figure.begun.elapsed() < figure.pause() {
                return self.try_reserve(figure.usage, more);
            }
        }
        let usage = self.measure(self.quota.files)?.usage;
        self.try_reserve(usage, more)
    }

    /// Checks and reserves in one step under the lock.
    fn try_reserve(&self, usage: Usage, more: Usage) -> Result<(), Error> {
        let mut known = self.quotas.known.lock();
        // The figure may have grown since.
        let usage = known.figures.get(&self.key).map_or(usage, |figure| figure.usage);
        let reserved = known.reserved.get(&self.key).copied().unwrap_or_default();
        let taken = usage.plus(reserved);
        if !taken.has_room(more, self.quota) {
            return Err(self.refusal(taken, more));
        }
        known.reserved.insert(self.key.clone(), reserved.plus(more));
        Ok(())
    }

    /// Releases a reservation.
    pub(super) fn release(&self, amount: Usage) {
        let mut known = self.quotas.known.lock();
        if let Some(reserved) = known.reserved.get_mut(&self.key) {
            *reserved = reserved.minus(amount);
            if *reserved == Usage::default() {
                known.reserved.remove(&self.key);
            }
        }
    }

    /// The quota of a box that starts now. A full workspace still admits a box, so that its user
    /// can make room, with the limit of the first such box: otherwise each box would leave a little
    /// more.
    pub(crate) fn for_box(&self) -> Result<Self, Error> {
        if let Some(figure) = self.figure()
            && self.is_believed(&figure)
            && figure.usage.fits(self.quota)
        {
            return Ok(self.clone());
        }
        let counted = self.quota.files.saturating_mul(MAX_COUNTED_FACTOR);
        let figure = self.measure(counted)?;
        if figure.usage.fits(self.quota) {
            return Ok(self.clone());
        }
        let from = figure.full_from.unwrap_or(figure.usage);
        if figure.usage.files > counted || !figure.usage.fits(from.plus(self.quota)) {
            return Err(self.refusal(figure.usage, Usage::default()));
        }
        if let Some(known) = self.quotas.known.lock().figures.get_mut(&self.key) {
            known.full_from = Some(from);
        }
        Ok(Self { box_limit: self.quota.or_more(figure.usage.plus(CLEANUP_ALLOWANCE)), ..self.clone() })
    }

    /// True if a running box may continue, given the limit of the first box that was admitted into
    /// the full workspace.
    pub(super) fn allows(&self, figure: &Figure) -> bool {
        let full = figure.full_from.map_or(self.quota, |from| self.quota.or_more(from.plus(CLEANUP_ALLOWANCE)));
        figure.usage.fits(full)
    }

    fn is_believed(&self, figure: &Figure) -> bool {
        figure.is_settled() || !self.is_doubtful(figure)
    }

    /// Adds to the figure.
    pub(crate) fn add(&self, more: Usage) {
        self.change(|figure| figure.usage = figure.usage.plus(more));
    }

    /// Marks the figure as changed, because data was removed or replaced.
    pub(crate) fn shrink(&self) {
        self.change(|_| {});
    }

    /// Measures the workspace and stops counting at `max_files` files. Blocks.
    pub(super) fn measure(&self, max_files: u64) -> Result<Figure, Error> {
        let (begun, changes) = (Instant::now(), self.figure().map_or(0, |figure| figure.changes));
        let free_bytes = self.workspace.free_bytes()?;
        let usage = match &self.key.2 {
            None => self.workspace.measure(max_files)?.plus(self.quotas.recorded(&self.key.0, &self.key.1)),
            Some(session) => self.workspace.measure_session(session, max_files)?,
        };
        let (took, next, full_from) = (begun.elapsed(), Next::NotScheduled, None);
        let mut figure = Figure { usage, free_bytes, begun, took, changes, measured_changes: changes, next, full_from };
        let mut known = self.quotas.known.lock();
        let figures = &mut known.figures;
        if let Some(known) = figures.get(&self.key) {
            (figure.changes, figure.next) = (known.changes, known.next);
            figure.full_from = known.full_from.filter(|_| !usage.fits(self.quota));
        } else if figures.len() >= MAX_KNOWN {
            let oldest = figures.iter().min_by_key(|(_, figure)| figure.begun).map(|(key, _)| key.clone());
            oldest.and_then(|key| figures.remove(&key));
        }
        figures.insert(self.key.clone(), figure);
        Ok(figure)
    }

    pub(super) fn figure(&self) -> Option<Figure> {
        self.quotas.known.lock().figures.get(&self.key).copied()
    }

    pub(super) fn is_doubtful(&self, figure: &Figure) -> bool {
        self.workspace.free_bytes().is_ok_and(|free| figure.is_doubtful(free, self.box_limit))
    }

    /// Plans the next measurement and returns the delay, unless one is planned already.
    pub(super) fn schedule(&self) -> Option<Duration> {
        let mut known = self.quotas.known.lock();
        let figure = known.figures.get_mut(&self.key)?;
        figure.changes += 1;
        let is_first = std::mem::replace(&mut figure.next, Next::Scheduled) == Next::NotScheduled;
        is_first.then(|| figure.pause())
    }

    pub(super) fn unschedule(&self) {
        if let Some(figure) = self.quotas.known.lock().figures.get_mut(&self.key) {
            figure.next = Next::NotScheduled;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Figure)) {
        // An unknown workspace needs no correction: it is measured when its figure is needed.
        if let Some(figure) = self.quotas.known.lock().figures.get_mut(&self.key) {
            figure.changes += 1;
            change(figure);
        }
    }

    pub(super) fn message(&self, usage: Usage, more: Usage) -> String {
        let scope = if self.key.2.is_some() { QuotaScope::Session } else { QuotaScope::Workspace };
        full_message(scope, usage, more, self.quota)
    }

    fn refusal(&self, usage: Usage, more: Usage) -> Error {
        Error::DiskQuota { message: self.message(usage, more) }
    }
}

impl Quotas {
    /// Sets the bytes of a workspace's commands on record.
    pub(crate) fn set_recorded(&self, user: &UserId, agent: &AgentId, bytes: u64) {
        let mut known = self.known.lock();
        let before = known.recorded.insert((user.clone(), agent.clone()), bytes).unwrap_or_default();
        if let Some(figure) = known.figures.get_mut(&(user.clone(), agent.clone(), None)) {
            figure.usage.bytes = figure.usage.bytes.saturating_add(bytes).saturating_sub(before);
        }
    }

    fn recorded(&self, user: &UserId, agent: &AgentId) -> Usage {
        let recorded = self.known.lock().recorded.get(&(user.clone(), agent.clone())).copied();
        Usage { bytes: recorded.unwrap_or_default(), files: 0 }
    }

    /// Usage: files as last measured plus commands on record.
    fn used(&self, user: &UserId, agent: &AgentId) -> Usage {
        let figure = self.known.lock().figures.get(&(user.clone(), agent.clone(), None)).map(|figure| figure.usage);
        figure.unwrap_or_else(|| self.recorded(user, agent))
    }

    /// Refuses a command that does not fit into the workspace's quota.
    pub(crate) fn check_room_on_record(
        &self,
        user: &UserId,
        agent: &AgentId,
        size: u64,
        quota: Usage,
    ) -> Result<(), Error> {
        let (used, more) = (self.used(user, agent), Usage { bytes: size, files: 0 });
        if used.plus(more).bytes <= quota.bytes {
            return Ok(());
        }
        let message = format!(
            "{} Commands over 4 KiB stay on record and count; retention.execs_days removes them.",
            full_message(QuotaScope::Workspace, used, more, quota)
        );
        Err(Error::DiskQuota { message })
    }

    /// Marks all figures as changed.
    pub(crate) fn shrink_all(&self) {
        self.known.lock().figures.values_mut().for_each(|figure| figure.changes += 1);
    }
}

/// A reservation, released when dropped.
#[derive(Debug)]
pub(crate) struct DiskReservation {
    disk: Disk,
    amount: Usage,
}

impl Disk {
    /// Reserves room for `more`. May measure the workspace, which blocks.
    pub(crate) fn reserve(&self, more: Usage) -> Result<DiskReservation, Error> {
        let mut room = DiskReservation { disk: self.clone(), amount: Usage::default() };
        room.reach(more)?;
        Ok(room)
    }

    /// Runs `work`, which adds `more`, if there is room.
    pub(crate) fn adding<T>(&self, more: Usage, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let room = self.reserve(more)?;
        let done = work()?;
        room.settle(more);
        Ok(done)
    }
}

impl DiskReservation {
    /// Extends the reservation to `wanted`. After an error it is unchanged.
    pub(crate) fn reach(&mut self, wanted: Usage) -> Result<(), Error> {
        let more = wanted.minus(self.amount);
        if more != Usage::default() {
            self.disk.reserve_more(more)?;
            self.amount = self.amount.plus(more);
        }
        Ok(())
    }

    /// The data is written and added `grown` to the usage.
    pub(crate) fn settle(self, grown: Usage) {
        self.disk.add(grown);
    }
}

impl Drop for DiskReservation {
    fn drop(&mut self) {
        self.disk.release(self.amount);
    }
}

/// The object of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuotaScope {
    Workspace,
    Session,
}

/// The error message: usage, limit and remedy.
fn full_message(scope: QuotaScope, usage: Usage, more: Usage, quota: Usage) -> String {
    let (name, setting) = match scope {
        QuotaScope::Workspace => ("workspace", "workspace.quota_mb"),
        QuotaScope::Session => ("session", "sessions.max_mb"),
    };
    let needs =
        |needed: String| if more == Usage::default() { String::new() } else { format!(" This needs {needed} more.") };
    let wanted = usage.plus(more);
    // A request that adds no files is not refused for their number.
    if wanted.files > quota.files && (more.files > 0 || more.bytes == 0) {
        let has =
            if usage.files > quota.files { format!("more than {}", quota.files) } else { usage.files.to_string() };
        let needs = needs(more.files.to_string());
        return format!(
            "The {name} is full: it has {has} of the {} files and directories that it may have.{needs} Delete what is \
             not needed, or have an operator raise workspace.quota_files.",
            quota.files
        );
    }
    format!(
        "The {name} is full: it takes {} of the {} that it may take.{} Delete what is not needed, or have an operator \
         raise {setting}.",
        amount(usage.bytes),
        amount(quota.bytes),
        needs(amount(more.bytes)),
    )
}

fn amount(bytes: u64) -> String {
    if bytes < MIB { format!("{} KiB", bytes.div_ceil(1024)) } else { format!("{:.1} MiB", bytes as f64 / MIB as f64) }
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
