//! Tokens, and what was said about sessions, that were read a moment ago: a server that reads a file for each of thousands of
//! requests a second would spend most of its time on asking who asks.
//!
//! Whoever revokes a token or says something else about a session, in this process or in another one, changes a stamp beside SQLite's file, after its commit and
//! before it says so; what was read under another stamp is forgotten. The stamp is read before the database is, so that
//! what is remembered is never newer than it looks. A change that is killed between the two, or made by other
//! programs, counts after a moment. PostgreSQL may be written from other machines, so there nothing is remembered.

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
/// So many of a kind at most; then all are forgotten.
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
    /// Nothing about most of them.
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
    /// Where the file cannot be had, nothing is remembered.
    pub(crate) fn beside(database: &Database) -> Self {
        let file = match database {
            Database::Sqlite(path) => open(path),
            Database::Postgres(_) => None,
        };
        Self { file, held: Mutex::default() }
    }

    /// What is to be read before the database.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let mut stamp = Stamp::default();
        // A new file is empty, and an empty stamp is as good as any other.
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

    /// Not what was read before something changed.
    fn keep(&self, stamp: Option<Stamp>, keep: impl FnOnce(&mut Held)) {
        let mut held = self.lock();
        if stamp.is_some() && held.under == stamp {
            keep(&mut held);
        }
    }

    /// Something was revoked, or said.
    pub(crate) fn change(&self) {
        let mut stamp = Stamp::default();
        if let Some(file) = &self.file
            && getrandom(&mut stamp, GetRandomFlags::empty()).is_ok()
        {
            // Should this fail, the moment that tokens are kept for is the bound.
            let _ = file.write_all_at(&stamp, 0);
        }
        *self.lock() = Held::default();
    }

    /// What was read under this stamp.
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
    fn what_was_read_under_another_stamp_is_forgotten() {
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
    fn without_a_file_nothing_is_remembered() {
        let remembered = Remembered::beside(&Database::Postgres("postgres://nowhere".to_owned()));
        remembered.keep_token(Digest::of(b"x"), token(), remembered.stamp());
        assert_eq!(remembered.find_token(&Digest::of(b"x"), remembered.stamp()), None);
    }
}
