//! Which sessions there are, and when each was made and last used. Only directories of the server's are looked at.

use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::io::Errno;

use crate::beneath;
use crate::error::Error;
use crate::garbage::last_used;
use crate::name::{AgentId, SessionId, UserId};
use crate::sweep::Swept;
use crate::usage::SESSIONS;
use crate::workspaces::{Workspace, Workspaces};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTimes {
    pub made: SystemTime,
    pub used: SystemTime,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSession {
    pub user: UserId,
    pub agent: AgentId,
    pub session: SessionId,
    pub times: SessionTimes,
}

impl Workspace {
    /// Nothing, if it is not there.
    pub fn session_times(&self, id: &SessionId) -> Result<Option<SessionTimes>, Error> {
        let place = format!("{SESSIONS}/{id}");
        let looked = match beneath::open_directory(self.directory(), place.as_str()) {
            Err(Errno::NOENT) => return Ok(None),
            session => session.and_then(|session| times(&session)),
        };
        looked.map(Some).map_err(|errno| Error::OpenDirectory { place, source: errno.into() })
    }
}

impl Workspaces {
    /// All of a user, of one of their agents, or of everybody; those that were used last come first. Takes long where there
    /// are many.
    pub fn sessions(&self, of: Option<&UserId>, by: Option<&AgentId>, most: usize) -> Vec<FoundSession> {
        let mut found = Vec::new();
        let mut names = Swept::default();
        names.each_name(&self.root, |names, user| {
            let Some(user) = user.parse::<UserId>().ok().filter(|user| of.is_none_or(|of| of == user)) else { return };
            let Some(holder) = names.open(&self.root, user.as_str()) else { return };
            names.each_name(&holder, |names, agent| {
                let agent = agent.parse::<AgentId>().ok().filter(|agent| by.is_none_or(|by| by == agent));
                let Some(agent) = agent else { return };
                let Some(directory) = names.open(&holder, agent.as_str()) else { return };
                let Some(sessions) = names.open(&directory, SESSIONS) else { return };
                names.each_name(&sessions, |names, session| {
                    let Ok(session) = session.parse::<SessionId>() else { return };
                    // One that goes meanwhile is not there.
                    let Some(handle) = names.open(&sessions, session.as_str()) else { return };
                    if let Ok(times) = times(&handle) {
                        found.push(FoundSession { user: user.clone(), agent: agent.clone(), session, times });
                    }
                });
            });
        });
        found.sort_by(|one, other| other.times.used.cmp(&one.times.used).then_with(|| one.session.cmp(&other.session)));
        found.truncate(most);
        found
    }
}

fn times(session: &OwnedFd) -> rustix::io::Result<SessionTimes> {
    let moment = |seconds: i64| UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    // Nothing is ever added to it after it was made.
    let made = rustix::fs::fstat(session)?.st_mtime;
    Ok(SessionTimes { made: moment(made), used: moment(last_used(session)?) })
}
