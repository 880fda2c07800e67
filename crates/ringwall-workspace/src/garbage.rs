//! Removes unused sessions and leftovers in `.staging` while the server runs.
//!
//! A session was last used when its directory or the file `.used` in it was last modified; opening
//! a session touches `.used`, which no box can reach. A name in `.staging` is a stray if it belongs
//! to an exec that is not running, or to an upload, write or deletion, and was not touched for the
//! given time. Other names are left alone.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_ids::ExecId;
use rustix::fs::{AtFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath;
use crate::fs::durable::TEMP_PREFIX;
use crate::fs::erase::{erase, erase_in_staging};
use crate::session::list::times_at;
use crate::skills::resume_install;
use crate::sweep::{SweepResult, is_leftover};
use crate::tree::Section;
use crate::usage::{SESSIONS, Usage, measure_name};
use crate::workspaces::{SEARCHABLE_DIRECTORY, STAGING, Workspaces};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GcMode {
    Remove,
    /// Only counts; changes nothing.
    DryRun,
}

/// Limits for the removal in one run.
#[derive(Debug, Clone, Copy)]
pub struct GcLimits<R> {
    /// Sessions that were last used before this time are removed.
    pub sessions_before: SystemTime,
    /// Names in `.staging` that were last touched before this time are removed.
    pub strays_before: SystemTime,
    pub is_running: R,
}

/// Result of a run: what it removed or, with [`GcMode::DryRun`], would remove.
#[derive(Debug, Default)]
pub struct GcResult {
    pub sessions: u64,
    pub strays: u64,
    pub usage: Usage,
    /// Entries that could not be removed. The run continues after a failure.
    pub failed: u64,
    pub first_failure: Option<Error>,
}

impl Workspaces {
    /// Visits all workspaces, which takes long if there are many.
    pub fn collect_garbage<R: Fn(&ExecId) -> bool>(&self, limits: &GcLimits<R>, mode: GcMode) -> GcResult {
        let mut found = GcResult::default();
        let mut names = SweepResult::default();
        names.each_workspace(&self.root, |names, directory| {
            let mut collecting = WorkspaceGc { directory, names, found: &mut found, mode };
            collecting.collect_sessions(seconds(limits.sessions_before));
            collecting.collect_strays(self, seconds(limits.strays_before), &limits.is_running);
        });
        found.failed = names.failed;
        found.first_failure = names.first_failure;
        found
    }
}

/// A run in one workspace.
struct WorkspaceGc<'a> {
    directory: &'a OwnedFd,
    names: &'a mut SweepResult,
    found: &'a mut GcResult,
    mode: GcMode,
}

impl WorkspaceGc<'_> {
    fn collect_sessions(&mut self, before: i64) {
        let Some(sessions) = self.names.open(self.directory, SESSIONS) else { return };
        let (found, mode, directory) = (&mut *self.found, self.mode, self.directory);
        self.names.each_name(&sessions, |names, id| {
            let times = match times_at(&sessions, id) {
                // Not a session, or removed meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR) => return,
                times => names.note(id, times),
            };
            if times.is_none_or(|times| seconds(times.last_used) >= before) {
                return;
            }
            let Some(usage) = names.note(id, measure_name(&sessions, id)) else { return };
            let removed = match mode {
                GcMode::DryRun => Ok(()),
                GcMode::Remove => beneath::ensure_directory(directory, STAGING, SEARCHABLE_DIRECTORY)
                    .and_then(|staging| erase_in_staging(&sessions, id, &staging)),
            };
            if names.note(id, removed).is_some() {
                found.sessions += 1;
                found.usage = found.usage.plus(usage);
            }
        });
    }

    fn collect_strays(&mut self, workspaces: &Workspaces, before: i64, is_running: impl Fn(&ExecId) -> bool) {
        let Some(staging) = self.names.open(self.directory, STAGING) else { return };
        let (found, mode, directory) = (&mut *self.found, self.mode, self.directory);
        self.names.each_name(&staging, |names, name| {
            let is_upload = name.starts_with(TEMP_PREFIX);
            if !is_upload && !is_leftover(name, &is_running) {
                return;
            }
            let status = match rustix::fs::statat(&staging, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Its operation completed meanwhile.
                Err(Errno::NOENT) => return,
                status => names.note(name, status),
            };
            // For leftovers of execs too: an exec that ends at this moment removes its directory
            // itself.
            if status.is_none_or(|status| touched(&status) >= before) {
                return;
            }
            let Some(usage) = names.note(name, measure_name(&staging, name)) else { return };
            let remove = || {
                if is_upload && let Ok(skills) = beneath::open_directory(directory, Section::Skills.name()) {
                    resume_install(&staging, name, skills)?;
                }
                // Processes of the exec may still be exiting. An enter without a leave disables
                // recycling in this workspace until the server ends.
                workspaces.shared.overlaps.enter(&staging)?;
                erase(&staging, name)
            };
            let removed = match mode {
                GcMode::DryRun => Ok(()),
                GcMode::Remove => remove(),
            };
            if names.note(name, removed).is_some() {
                found.strays += 1;
                found.usage = found.usage.plus(usage);
            }
        });
    }
}

fn touched(status: &Stat) -> i64 {
    // A rename updates only the change time.
    status.st_mtime.max(status.st_ctime)
}

pub(crate) fn seconds(moment: SystemTime) -> i64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
