//! Caches tokens and session rules for one second, because every request reads them.
//!
//! A process that revokes a token or changes the rules of a session writes a random stamp to a file
//! beside SQLite's, after the commit and before it answers. A read with a different stamp clears
//! the cache. The stamp is read before the database, so that a value read before a change is never
//! stored under the stamp of that change. A change by other programs, or by a process that is
//! killed between commit and stamp, takes effect within a second. PostgreSQL may be written from
//! other machines, so nothing is cached for it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::hash::Hash;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::db::database::Database;
use crate::digest::Digest;
use crate::sessions::{SessionName, SessionRules};
use crate::tokens::Token;

const MOMENT: Duration = Duration::from_secs(1);
/// Maximum number of values per kind; a full cache is cleared.
const MAX_COUNT: usize = 4096;

pub(crate) type Stamp = [u8; 8];

#[derive(Debug)]
pub(crate) struct Remembered {
    file: Option<File>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    under: Option<Stamp>,
    tokens: Kind<Digest, Token>,
    /// `None` for a session without rules.
    rules: Kind<SessionName, Option<SessionRules>>,
}

#[derive(Debug)]
struct Kind<K, V>(HashMap<K, (V, Instant)>);

impl<K, V> Default for Kind<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> Kind<K, V> {
    fn find(&self, key: &K) -> Option<V> {
        let (value, read) = self.0.get(key)?;
        (read.elapsed() < MOMENT).then(|| value.clone())
    }

    fn keep(&mut self, key: K, value: V) {
        if self.0.len() >= MAX_COUNT {
            self.0.clear();
        }
        self.0.insert(key, (value, Instant::now()));
    }
}

impl Remembered {
    /// Without the stamp file nothing is cached.
    pub(crate) fn beside(database: &Database) -> Self {
        let file = match database {
            Database::Sqlite(path) => open(path),
            Database::Postgres(_) => None,
        };
        Self { file, held: Mutex::default() }
    }

    /// The current stamp. Read it before the database. `None` if nothing is cached.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let mut stamp = Stamp::default();
        // A new file is empty; its stamp is all zeros.
        self.file.as_ref()?.read_at(&mut stamp, 0).ok()?;
        Some(stamp)
    }

    pub(crate) fn find_token(&self, hash: &Digest, stamp: Option<Stamp>) -> Option<Token> {
        self.under(stamp?).tokens.find(hash)
    }

    pub(crate) fn find_rules(&self, session: &SessionName, stamp: Option<Stamp>) -> Option<Option<SessionRules>> {
        self.under(stamp?).rules.find(session)
    }

    pub(crate) fn keep_token(&self, hash: Digest, token: Token, stamp: Option<Stamp>) {
        self.keep(stamp, |held| held.tokens.keep(hash, token));
    }

    pub(crate) fn keep_rules(&self, session: SessionName, rules: Option<SessionRules>, stamp: Option<Stamp>) {
        self.keep(stamp, |held| held.rules.keep(session, rules));
    }

    /// Does nothing if the stamp has changed since the value was read.
    fn keep(&self, stamp: Option<Stamp>, keep: impl FnOnce(&mut Held)) {
        let mut held = self.lock();
        if stamp.is_some() && held.under == stamp {
            keep(&mut held);
        }
    }

    /// Invalidates the caches of all processes after a change.
    pub(crate) fn change(&self) {
        let mut stamp = Stamp::default();
        if let Some(file) = &self.file
            && getrandom(&mut stamp, GetRandomFlags::empty()).is_ok()
        {
            // If this fails, other processes see the change within a second.
            let _ = file.write_all_at(&stamp, 0);
        }
        *self.lock() = Held::default();
    }

    /// Locks the cache, cleared if it belongs to another stamp.
    fn under(&self, stamp: Stamp) -> MutexGuard<'_, Held> {
        let mut held = self.lock();
        if held.under != Some(stamp) {
            *held = Held { under: Some(stamp), ..Held::default() };
        }
        held
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(database: &Path) -> Option<File> {
    let mut path = OsString::from(database);
    path.push("-tokens");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::Timestamp;
    use crate::tokens::Holder;

    fn token() -> Token {
        Token {
            id: "t_0123456789abcdef".parse().unwrap(),
            holder: Holder::Owner,
            label: None,
            created_at: Timestamp::from_milliseconds(0),
            created_by: "test".to_owned(),
            expires_at: None,
            revoked_at: None,
        }
    }

    #[test]
    fn cached_token_is_dropped_after_a_change_by_any_process() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::Sqlite(directory.path().join("r.db"));
        let (ours, another) = (Remembered::beside(&database), Remembered::beside(&database));
        let hash = Digest::of(b"x");
        let stamp = ours.stamp();
        assert_eq!(ours.find_token(&hash, stamp), None);
        ours.keep_token(hash, token(), stamp);
        assert_eq!(ours.find_token(&hash, ours.stamp()), Some(token()));
        another.change();
        assert_eq!(ours.find_token(&hash, ours.stamp()), None, "another process revoked something");
        ours.keep_token(hash, token(), stamp);
        assert_eq!(ours.find_token(&hash, ours.stamp()), None, "it was read before that");
        let stamp = ours.stamp();
        ours.keep_token(hash, token(), stamp);
        ours.change();
        assert_eq!(ours.find_token(&hash, stamp), None, "also by whoever asked before");
    }

    #[test]
    fn nothing_is_cached_without_a_stamp_file() {
        let remembered = Remembered::beside(&Database::Postgres("postgres://nowhere".to_owned()));
        remembered.keep_token(Digest::of(b"x"), token(), remembered.stamp());
        assert_eq!(remembered.find_token(&Digest::of(b"x"), remembered.stamp()), None);
    }
}
