//! Removes unused sessions and leftovers in `.staging` while the server runs.
//!
//! A session was last used when its directory or the file `.used` in it was last modified; opening
//! a session touches `.used`, which no box can reach. A name in `.staging` is a stray if it belongs
//! to an exec that is not running, or to an upload, write or deletion, and was not touched for the
//! given time. Other names are left alone.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_ids::{ExecId, random_digits};
use rustix::fs::{AtFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::remove::REMOVED_PREFIX;
use crate::fs::beneath;
use crate::fs::durable::TEMP_PREFIX;
use crate::fs::erase::erase;
use crate::skills::resume_install;
use crate::sweep::{SweepResult, is_leftover};
use crate::tree::Section;
use crate::usage::{SESSIONS, Usage, measure_name};
use crate::workspaces::{SEARCHABLE_DIRECTORY, STAGING, Workspaces};

pub(crate) const USED_FILE: &str = ".used";

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
        names.each_name(&self.root, |names, user| {
            let Some(user_dir) = names.open(&self.root, user) else { return };
            names.each_name(&user_dir, |names, agent| {
                let Some(directory) = names.open(&user_dir, agent) else { return };
                let mut collecting = WorkspaceGc { directory: &directory, names, found: &mut found, mode };
                collecting.collect_sessions(seconds(limits.sessions_before));
                collecting.collect_strays(self, seconds(limits.strays_before), &limits.is_running);
            });
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
            let Some(session) = names.open(&sessions, id) else { return };
            let Some(used) = names.note(id, last_used(&session)) else { return };
            if used >= before {
                return;
            }
            drop(session);
            let Some(usage) = names.note(id, measure_name(&sessions, id)) else { return };
            let removed = match mode {
                GcMode::DryRun => Ok(()),
                GcMode::Remove => remove_session(directory, &sessions, id),
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
                workspaces.overlaps.enter(&staging)?;
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

/// Moves the session to `.staging` by one rename, then deletes it there.
pub(crate) fn remove_session(directory: &OwnedFd, sessions: &OwnedFd, id: &str) -> rustix::io::Result<()> {
    let staging = beneath::ensure_directory(directory, STAGING, SEARCHABLE_DIRECTORY)?;
    let staging_name = format!("{REMOVED_PREFIX}{}", random_digits::<16>().map_err(|_| Errno::AGAIN)?);
    match rustix::fs::renameat_with(sessions, id, &staging, staging_name.as_str(), RenameFlags::NOREPLACE) {
        Ok(()) => erase(&staging, &staging_name),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn last_used(session: &OwnedFd) -> rustix::io::Result<i64> {
    let created = rustix::fs::fstat(session)?.st_mtime;
    match rustix::fs::statat(session, USED_FILE, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(created.max(status.st_mtime)),
        Err(Errno::NOENT) => Ok(created),
        Err(errno) => Err(errno),
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
