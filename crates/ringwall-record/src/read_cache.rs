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
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use parking_lot::MutexGuard;
use rustix::fs::{Mode, OFlags};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::db::database::Database;
use crate::digest::Digest;
use crate::sessions::{SessionKey, SessionRules};
use crate::tokens::Token;

const MAX_AGE: Duration = Duration::from_secs(1);
/// Maximum number of values per kind; a full cache is cleared.
const MAX_COUNT: usize = 4096;

pub(crate) type Stamp = [u8; 8];

#[derive(Debug)]
pub(crate) struct ReadCache {
    stamp_file: Option<File>,
    values: Mutex<CachedValues>,
}

#[derive(Debug, Default)]
struct CachedValues {
    /// The stamp under which the values were read.
    stamp: Option<Stamp>,
    tokens: TimedMap<Digest, Token>,
    /// `None` for a session without rules.
    rules: TimedMap<SessionKey, Option<SessionRules>>,
}

#[derive(Debug)]
struct TimedMap<K, V>(HashMap<K, (V, Instant)>);

impl<K, V> Default for TimedMap<K, V> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V: Clone> TimedMap<K, V> {
    fn get(&self, key: &K) -> Option<V> {
        let (value, read) = self.0.get(key)?;
        (read.elapsed() < MAX_AGE).then(|| value.clone())
    }

    fn insert(&mut self, key: K, value: V) {
        if self.0.len() >= MAX_COUNT {
            self.0.clear();
        }
        self.0.insert(key, (value, Instant::now()));
    }
}

impl ReadCache {
    /// Without the stamp file nothing is cached.
    pub(crate) fn new(database: &Database) -> Self {
        let stamp_file = match database {
            Database::Sqlite(path) => open_stamp_file(path),
            Database::Postgres(_) => None,
        };
        Self { stamp_file, values: Mutex::default() }
    }

    /// The current stamp. Read it before the database. `None` if nothing is cached.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let mut stamp = Stamp::default();
        // A new file is empty; its stamp is all zeros.
        self.stamp_file.as_ref()?.read_at(&mut stamp, 0).ok()?;
        Some(stamp)
    }

    pub(crate) fn get_token(&self, hash: &Digest, stamp: Option<Stamp>) -> Option<Token> {
        self.values_for(stamp?).tokens.get(hash)
    }

    pub(crate) fn get_rules(&self, session: &SessionKey, stamp: Option<Stamp>) -> Option<Option<SessionRules>> {
        self.values_for(stamp?).rules.get(session)
    }

    pub(crate) fn insert_token(&self, hash: Digest, token: Token, stamp: Option<Stamp>) {
        self.insert(stamp, |values| values.tokens.insert(hash, token));
    }

    pub(crate) fn insert_rules(&self, session: SessionKey, rules: Option<SessionRules>, stamp: Option<Stamp>) {
        self.insert(stamp, |values| values.rules.insert(session, rules));
    }

    /// Does nothing if the cache belongs to another stamp than the value.
    fn insert(&self, stamp: Option<Stamp>, insert: impl FnOnce(&mut CachedValues)) {
        let mut values = self.values.lock();
        if stamp.is_some() && values.stamp == stamp {
            insert(&mut values);
        }
    }

    /// Invalidates the caches of all processes after a change.
    pub(crate) fn invalidate(&self) {
        let mut stamp = Stamp::default();
        if let Some(file) = &self.stamp_file
            && getrandom(&mut stamp, GetRandomFlags::empty()).is_ok()
        {
            // If this fails, other processes see the change within a second.
            let _ = file.write_all_at(&stamp, 0);
        }
        *self.values.lock() = CachedValues::default();
    }

    /// Locks the cache, cleared if it belongs to another stamp.
    fn values_for(&self, stamp: Stamp) -> MutexGuard<'_, CachedValues> {
        let mut values = self.values.lock();
        if values.stamp != Some(stamp) {
            *values = CachedValues { stamp: Some(stamp), ..CachedValues::default() };
        }
        values
    }
}

fn open_stamp_file(database: &Path) -> Option<File> {
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
        let (ours, another) = (ReadCache::new(&database), ReadCache::new(&database));
        let hash = Digest::of(b"x");
        let stamp = ours.stamp();
        assert_eq!(ours.get_token(&hash, stamp), None);
        ours.insert_token(hash, token(), stamp);
        assert_eq!(ours.get_token(&hash, ours.stamp()), Some(token()));
        another.invalidate();
        assert_eq!(ours.get_token(&hash, ours.stamp()), None, "another process revoked something");
        ours.insert_token(hash, token(), stamp);
        assert_eq!(ours.get_token(&hash, ours.stamp()), None, "it was read before that");
        let stamp = ours.stamp();
        ours.insert_token(hash, token(), stamp);
        ours.invalidate();
        assert_eq!(ours.get_token(&hash, stamp), None, "also by whoever asked before");
    }

    #[test]
    fn nothing_is_cached_without_a_stamp_file() {
        let read_cache = ReadCache::new(&Database::Postgres("postgres://nowhere".to_owned()));
        read_cache.insert_token(Digest::of(b"x"), token(), read_cache.stamp());
        assert_eq!(read_cache.get_token(&Digest::of(b"x"), read_cache.stamp()), None);
    }
}
