//! The files of a session: the directory that its commands see as `/workspace`.
//!
//! `sessions/<id>/` belongs to the server. It contains `work/`, which belongs to the workspace's
//! owner, and the file `.used`, whose modification time is the last use. A box gets only `work`, so
//! it can neither remove a session nor extend its retention (see `garbage`).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_ids::{SessionId, quote};
use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::error::Error;
use crate::fs::beneath::{self, PRIVATE_FILE, open_listing};
use crate::fs::erase::erase_in_staging;
use crate::fs::meter::{Meter, Skip};
use crate::project::{Directory, READABLE_DIRECTORY, open_owned};
use crate::tree::{Names, Section, Tree};
use crate::usage::{SESSIONS, Usage};
use crate::workspaces::{SEARCHABLE_DIRECTORY, Workspace};

const WORK: &str = Section::Work.name();
/// Its modification time is the time of the session's last use.
pub(crate) const USED_FILE: &str = ".used";

/// Directories that code may expect in every session.
pub const SESSION_DIRECTORIES: [&str; 6] = ["code", "data", "output", "artifacts", "temp", ".memory"];

#[derive(Debug)]
pub struct Session {
    tree: Tree,
}

impl Workspace {
    /// Opens a session, creates it if missing, and records its use. Safe to call concurrently.
    pub fn session(&self, id: &SessionId) -> Result<Session, Error> {
        let sessions =
            beneath::ensure_directory(self.directory(), SESSIONS, SEARCHABLE_DIRECTORY).map_err(to_error(id))?;
        let session = beneath::ensure_directory(&sessions, id.as_str(), SEARCHABLE_DIRECTORY).map_err(to_error(id))?;
        self.use_session(id, session).map_err(to_error(id))
    }

    /// Opens an existing session and records its use.
    pub fn find_session(&self, id: &SessionId) -> Result<Option<Session>, Error> {
        match beneath::open_directory(self.directory(), format!("{SESSIONS}/{id}").as_str()) {
            Ok(session) => self.use_session(id, session).map(Some).map_err(to_error(id)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(to_error(id)(errno)),
        }
    }

    fn use_session(&self, id: &SessionId, session: OwnedFd) -> rustix::io::Result<Session> {
        let used = beneath::look_up(&session, USED_FILE, OFlags::WRONLY | OFlags::CREATE, PRIVATE_FILE)?;
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        rustix::fs::futimens(&used, &Timestamps { last_access: now, last_modification: now })?;
        let handle = open_owned(&session, WORK, self.owner())?;
        let work = Directory { path: self.path().join(SESSIONS).join(id.as_str()).join(WORK), handle };
        Ok(Session { tree: self.session_tree(session, work) })
    }

    /// Removes a session with all its files. Returns false if it does not exist.
    pub fn remove_session(&self, id: &SessionId) -> Result<bool, Error> {
        let to_error = |errno: Errno| Error::Remove { subject: format!("the session {id}"), source: errno.into() };
        let sessions = match beneath::open_directory(self.directory(), SESSIONS) {
            Err(Errno::NOENT) => return Ok(false),
            sessions => sessions.map_err(to_error)?,
        };
        match beneath::open_directory(&sessions, id.as_str()) {
            Err(Errno::NOENT) => return Ok(false),
            session => drop(session.map_err(to_error)?),
        }
        erase_in_staging(&sessions, id.as_str(), self.staging()).map_err(to_error)?;
        Ok(true)
    }

    /// Measures one session; stops at the first name beyond `max_files`. Zero if the session does
    /// not exist.
    pub fn measure_session(&self, id: &SessionId, max_files: u64) -> Result<Usage, Error> {
        let mut meter = Meter::new(max_files);
        let walked =
            match open_listing(self.directory(), SESSIONS).and_then(|sessions| open_listing(sessions, id.as_str())) {
                Ok(session) => meter.walk(session, Skip::Nothing),
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(errno),
            };
        walked.map_err(|errno| Error::Measure(errno.into()))?;
        Ok(meter.usage())
    }
}

impl Session {
    /// Mounted at `/workspace`. Opened with O_PATH, because a box controls its content.
    pub fn work(&self) -> &Directory {
        self.tree.section(Section::Work)
    }

    /// Access to the same directory for reads and writes while boxes run.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Creates the missing ones of [`SESSION_DIRECTORIES`]. A file or symlink of such a name stays.
    pub fn create_directories(&self) -> Result<(), Error> {
        for name in SESSION_DIRECTORIES {
            let owner = self.tree.workspace().owner();
            match beneath::ensure_owned_directory(&self.work().handle, name, READABLE_DIRECTORY, owner) {
                Ok(_) | Err(Errno::LOOP | Errno::NOTDIR | Errno::NOENT) => {}
                Err(errno) => {
                    return Err(Error::OpenDirectory { path: quote(name), source: errno.into() });
                }
            }
        }
        Ok(())
    }

    /// All regular files, after creating the missing [`SESSION_DIRECTORIES`]. `None` if there are more
    /// than `max` names.
    pub fn names_with_directories(&self, max: usize) -> Result<Option<Arc<Names>>, Error> {
        match self.tree.known_names().filter(|known| known.have_directories(&SESSION_DIRECTORIES)) {
            Some(known) => Ok(Some(known)),
            None => {
                self.create_directories()?;
                self.tree.names(max)
            }
        }
    }

    /// The regular files that were created since `before`, sorted. `None` if there are more than
    /// `max` names.
    pub fn new_since(&self, before: &Names, max: usize) -> Result<Option<Vec<String>>, Error> {
        self.tree.new_since(before, max)
    }
}

fn to_error(id: &SessionId) -> impl Fn(Errno) -> Error {
    let path = format!("{SESSIONS}/{id}");
    move |errno| Error::OpenDirectory { path: path.clone(), source: errno.into() }
}
