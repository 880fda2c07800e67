//! Lists sessions with their times of creation and last use. Only the server's directories are
//! read.
//!
//! Each page is computed anew. A session that is used between two pages moves to the front, so
//! later pages do not contain it; no session occurs twice.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringwall_ids::{AgentId, SessionId, UserId};
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;

use crate::error::Error;
use crate::garbage::seconds;
use crate::session::files::USED_FILE;
use crate::sweep::SweepResult;
use crate::usage::SESSIONS;
use crate::workspaces::{Workspace, Workspaces};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    pub created: SystemTime,
    pub last_used: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    pub user: UserId,
    pub agent: AgentId,
    pub session: SessionId,
    pub times: SessionTimes,
}

impl Workspace {
    /// `None` if the session does not exist.
    pub fn session_times(&self, id: &SessionId) -> Result<Option<SessionTimes>, Error> {
        let path = format!("{SESSIONS}/{id}");
        match times_at(self.directory(), &path) {
            Ok(times) => Ok(Some(times)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::OpenDirectory { path, source: errno.into() }),
        }
    }
}

/// A cursor: the list continues after this session. Its text form is opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    used: Reverse<i64>,
    user: UserId,
    agent: AgentId,
    session: SessionId,
}

/// A part of the list.
#[derive(Debug, Clone, Default)]
pub struct SessionPage {
    pub sessions: Vec<ListedSession>,
    /// Set if there are more sessions.
    pub next: Option<SessionCursor>,
}

impl Workspaces {
    /// Lists at most `max` sessions of a user, of one of their agents, or of all users; the last
    /// used first. Reads the times of every session, but keeps only those of the page in memory.
    pub fn sessions(
        &self,
        of: Option<&UserId>,
        by: Option<&AgentId>,
        after: Option<&SessionCursor>,
        max: usize,
    ) -> SessionPage {
        let mut found = BTreeMap::new();
        let mut names = SweepResult::default();
        names.each_name(&self.root, |names, user| {
            let Some(user) = user.parse::<UserId>().ok().filter(|user| of.is_none_or(|of| of == user)) else { return };
            let Some(user_dir) = names.open(&self.root, user.as_str()) else { return };
            names.each_name(&user_dir, |names, agent| {
                let agent = agent.parse::<AgentId>().ok().filter(|agent| by.is_none_or(|by| by == agent));
                let Some(agent) = agent else { return };
                let Some(directory) = names.open(&user_dir, agent.as_str()) else { return };
                let Some(sessions) = names.open(&directory, SESSIONS) else { return };
                names.each_name(&sessions, |_, session| {
                    let Ok(session) = session.parse::<SessionId>() else { return };
                    // Removed meanwhile.
                    let Ok(times) = times_at(&sessions, session.as_str()) else { return };
                    let used = Reverse(seconds(times.last_used));
                    let cursor = SessionCursor { used, user: user.clone(), agent: agent.clone(), session };
                    if after.is_none_or(|after| cursor > *after) {
                        found.insert(cursor, times);
                        // One more than `max` shows that there is another page.
                        if found.len() > max + 1 {
                            found.pop_last();
                        }
                    }
                });
            });
        });
        let has_more = found.len() > max;
        if has_more {
            found.pop_last();
        }
        let next = found.last_key_value().filter(|_| has_more).map(|(cursor, _)| cursor.clone());
        let sessions = found.into_iter().map(|(cursor, times)| {
            let SessionCursor { user, agent, session, .. } = cursor;
            ListedSession { user, agent, session, times }
        });
        SessionPage { sessions: sessions.collect(), next }
    }
}

impl fmt::Display for SessionCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used: Reverse(used), user, agent, session } = self;
        write!(formatter, "{used:x}~{user}~{agent}~{session}")
    }
}

impl FromStr for SessionCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts: Vec<&str> = text.split('~').collect();
        let [used, user, agent, session] = parts[..] else { return Err(Error::CursorMalformed) };
        let used = i64::from_str_radix(used, 16).map_err(|_| Error::CursorMalformed)?;
        let named = (user.parse(), agent.parse(), session.parse());
        let (Ok(user), Ok(agent), Ok(session)) = named else { return Err(Error::CursorMalformed) };
        Ok(Self { used: Reverse(used), user, agent, session })
    }
}

/// The times of the session whose directory is at `path`, without opening it.
pub(crate) fn times_at(parent: &OwnedFd, path: &str) -> rustix::io::Result<SessionTimes> {
    let look = |path: &str| rustix::fs::statat(parent, path, AtFlags::SYMLINK_NOFOLLOW);
    let directory = look(path)?;
    if FileType::from_raw_mode(directory.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    // `work` and `.used` are created with the session, and later no entry is added or removed, so
    // this remains the time of creation.
    let created = directory.st_mtime;
    let used = match look(&format!("{path}/{USED_FILE}")) {
        Ok(status) => created.max(status.st_mtime),
        Err(Errno::NOENT) => created,
        Err(errno) => return Err(errno),
    };
    Ok(SessionTimes { created: moment(created), last_used: moment(used) })
}

fn moment(seconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
