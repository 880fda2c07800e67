//! The files of one session: what its commands find at `/workspace`, from the first of them until nobody has used the
//! session for long (see `garbage`).
//!
//! `sessions/<id>/` is the server's and holds `work/`, which is the workspace's own, and the file `.used`, whose time says
//! when somebody was last here. A box gets `work` alone, so that it can neither end a session nor keep one alive.

use rustix::fs::{OFlags, Timespec, Timestamps, UTIME_NOW};
use rustix::io::Errno;

use crate::beneath::{self, PRIVATE_FILE};
use crate::error::Error;
use crate::garbage::USED;
use crate::name::SessionId;
use crate::project::{Directory, open_owned};
use crate::usage::SESSIONS;
use crate::workspaces::{PASSABLE, Workspace};

const WORK: &str = "work";

#[derive(Debug)]
pub struct Session {
    work: Directory,
}

impl Workspace {
    /// Opens a session, making it if it is missing, and notes that it is in use. Any number may ask at once.
    pub fn session(&self, id: &SessionId) -> Result<Session, Error> {
        let fail = |errno: Errno| Error::OpenDirectory { place: format!("{SESSIONS}/{id}"), source: errno.into() };
        let open = || -> rustix::io::Result<Directory> {
            let sessions = beneath::ensure_directory(self.directory(), SESSIONS, PASSABLE)?;
            let session = beneath::ensure_directory(&sessions, id.as_str(), PASSABLE)?;
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let used = beneath::look_up(&session, USED, flags, PRIVATE_FILE)?;
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            rustix::fs::futimens(&used, &Timestamps { last_access: now, last_modification: now })?;
            let handle = open_owned(&session, WORK, self.owner())?;
            Ok(Directory { path: self.path().join(SESSIONS).join(id.as_str()).join(WORK), handle })
        };
        Ok(Session { work: open().map_err(fail)? })
    }
}

impl Session {
    /// What a box sees at `/workspace`. Located only (O_PATH): what is in it is the box's.
    pub fn work(&self) -> &Directory {
        &self.work
    }
}
