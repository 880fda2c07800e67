//! What nobody needs any more, found and removed while the server runs: files of sessions that are over, and what was
//! left among the staged.
//!
//! A session's files lie in `sessions/<id>/` of its workspace, a directory of the server's. It was last used when that
//! directory or the file `.used` in it was last changed; whoever runs a session touches that file, which no box can reach.
//! Among the staged, what carries the id of an exec that does not run is a stray, and what was on its way in or out for so
//! long that nobody can still be at it. Everything else is somebody's.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::error::Error;
use crate::exec_files::remove::REMOVED;
use crate::exec_id::{ExecId, random_digits};
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::skills::{UNFINISHED, resume};
use crate::sweep::{Swept, is_leftover};
use crate::tree::Section;
use crate::usage::{SESSIONS, Usage, measure_name};
use crate::workspaces::{PASSABLE, STAGING, Workspaces};

pub(crate) const USED: &str = ".used";

/// Whether what is found is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Removing,
    /// Nothing is changed.
    Looking,
}

/// What counts as garbage.
#[derive(Debug, Clone, Copy)]
pub struct Garbage<R> {
    /// Sessions that were last used before this are over.
    pub sessions_before: SystemTime,
    /// What was last touched before this is on nobody's way any more.
    pub strays_before: SystemTime,
    pub is_running: R,
}

/// What was found, and removed if that was asked for.
#[derive(Debug, Default)]
pub struct Found {
    pub sessions: u64,
    pub strays: u64,
    pub usage: Usage,
    /// What could not be removed; the rest was.
    pub failed: u64,
    pub first_failure: Option<Error>,
}

impl Workspaces {
    /// Goes through all workspaces. Takes long where there are many.
    pub fn collect_garbage<R: Fn(&ExecId) -> bool>(&self, garbage: &Garbage<R>, doing: Doing) -> Found {
        let mut found = Found::default();
        let mut names = Swept::default();
        names.each_name(&self.root, |names, user| {
            let Some(holder) = names.open(&self.root, user) else { return };
            names.each_name(&holder, |names, agent| {
                let Some(directory) = names.open(&holder, agent) else { return };
                let mut collecting = Collecting { directory: &directory, names, found: &mut found, doing };
                collecting.collect_sessions(seconds(garbage.sessions_before));
                collecting.collect_strays(self, seconds(garbage.strays_before), &garbage.is_running);
            });
        });
        found.failed = names.failed;
        found.first_failure = names.first_failure;
        found
    }
}

/// One workspace.
struct Collecting<'a> {
    directory: &'a OwnedFd,
    names: &'a mut Swept,
    found: &'a mut Found,
    doing: Doing,
}

impl Collecting<'_> {
    fn collect_sessions(&mut self, before: i64) {
        let Some(sessions) = self.names.open(self.directory, SESSIONS) else { return };
        let (found, doing, directory) = (&mut *self.found, self.doing, self.directory);
        self.names.each_name(&sessions, |names, id| {
            let Some(session) = names.open(&sessions, id) else { return };
            let Some(used) = names.note(id, last_used(&session)) else { return };
            if used >= before {
                return;
            }
            drop(session);
            let Some(usage) = names.note(id, measure_name(&sessions, id)) else { return };
            let removed = match doing {
                Doing::Looking => Ok(()),
                Doing::Removing => remove_session(directory, &sessions, id),
            };
            if names.note(id, removed).is_some() {
                found.sessions += 1;
                found.usage = found.usage.plus(usage);
            }
        });
    }

    fn collect_strays(&mut self, workspaces: &Workspaces, before: i64, is_running: impl Fn(&ExecId) -> bool) {
        let Some(staging) = self.names.open(self.directory, STAGING) else { return };
        let (found, doing, directory) = (&mut *self.found, self.doing, self.directory);
        self.names.each_name(&staging, |names, name| {
            let is_upload = name.starts_with(UNFINISHED);
            if !is_upload && !is_leftover(name, &is_running) {
                return;
            }
            let status = match rustix::fs::statat(&staging, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Whoever was at it is done.
                Err(Errno::NOENT) => return,
                status => names.note(name, status),
            };
            // What an exec left, too: one that ends at this moment removes it itself.
            if status.is_none_or(|status| touched(&status) >= before) {
                return;
            }
            let Some(usage) = names.note(name, measure_name(&staging, name)) else { return };
            let remove = || {
                if is_upload && let Ok(skills) = beneath::open_directory(directory, Section::Skills.name()) {
                    resume(&staging, name, skills)?;
                }
                // Whoever left it may still be dying, and never leaves.
                workspaces.presence.enter(&staging)?;
                erase(&staging, name)
            };
            let removed = match doing {
                Doing::Looking => Ok(()),
                Doing::Removing => remove(),
            };
            if names.note(name, removed).is_some() {
                found.strays += 1;
                found.usage = found.usage.plus(usage);
            }
        });
    }
}

/// Out of sight in one step, then taken apart there.
pub(crate) fn remove_session(directory: &OwnedFd, sessions: &OwnedFd, id: &str) -> rustix::io::Result<()> {
    let staging = beneath::ensure_directory(directory, STAGING, PASSABLE)?;
    let hidden = format!("{REMOVED}{}", random_digits().map_err(|_| Errno::AGAIN)?);
    match rustix::fs::renameat_with(sessions, id, &staging, hidden.as_str(), RenameFlags::NOREPLACE) {
        Ok(()) => erase(&staging, &hidden),
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(crate) fn last_used(session: &OwnedFd) -> rustix::io::Result<i64> {
    let made = rustix::fs::fstat(session)?.st_mtime;
    match rustix::fs::statat(session, USED, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => Ok(made.max(status.st_mtime)),
        Err(Errno::NOENT) => Ok(made),
        Err(errno) => Err(errno),
    }
}

fn touched(status: &Stat) -> i64 {
    // A move changes only the second.
    status.st_mtime.max(status.st_ctime)
}

pub(crate) fn seconds(moment: SystemTime) -> i64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
