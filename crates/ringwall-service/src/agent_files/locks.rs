//! Who reads and who changes the files of one workspace at the same time: readers share, writers exclude.
//!
//! Each workspace has a lock of its own, made when it is first wanted and forgotten with its last holder, so that no agent
//! waits for another. Waiting is bounded and fair: nobody who comes later overtakes a writer. A guard owns its lock and may
//! go to another thread, where the work goes on although whoever asked is gone. Execs take none; a second set of locks says
//! where boxes are, for those who must not change anything beneath one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringwall_record::{AgentId, UserId};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::timeout;

use crate::error::Error;

use super::problem::ProblemKind;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

type Key = (UserId, AgentId);

#[derive(Debug, Clone, Default)]
pub(crate) struct Locks {
    all: Arc<Mutex<HashMap<Key, Arc<RwLock<()>>>>>,
}

/// The right to read what is in a workspace, as long as it is held.
#[derive(Debug)]
pub(crate) struct Reading {
    // Dropped in this order: a lock is forgotten when nobody holds it any more.
    _guard: OwnedRwLockReadGuard<()>,
    _share: Share,
}

/// The right to change what is in a workspace, as long as it is held.
#[derive(Debug)]
pub(crate) struct Writing {
    _guard: OwnedRwLockWriteGuard<()>,
    _share: Share,
}

/// Somebody's interest in a lock, waiting or holding.
#[derive(Debug)]
struct Share {
    locks: Locks,
    key: Key,
}

impl Locks {
    pub(crate) async fn read(&self, user: &UserId, agent: &AgentId) -> Result<Reading, Error> {
        let (lock, share) = self.share(user, agent);
        match timeout(READ_TIMEOUT, lock.read_owned()).await {
            Ok(guard) => Ok(Reading { _guard: guard, _share: share }),
            Err(_) => Err(busy("Read")),
        }
    }

    pub(crate) async fn write(&self, user: &UserId, agent: &AgentId) -> Result<Writing, Error> {
        self.write_within(WRITE_TIMEOUT, user, agent).await.ok_or_else(|| busy("Update"))
    }

    /// If it is had soon.
    pub(crate) async fn write_within(&self, patience: Duration, user: &UserId, agent: &AgentId) -> Option<Writing> {
        let (lock, share) = self.share(user, agent);
        let guard = timeout(patience, lock.write_owned()).await.ok()?;
        Some(Writing { _guard: guard, _share: share })
    }

    /// For as long as a box is there; whoever excludes boxes does so for moments.
    pub(crate) async fn stay(&self, user: &UserId, agent: &AgentId) -> Reading {
        let (lock, share) = self.share(user, agent);
        Reading { _guard: lock.read_owned().await, _share: share }
    }

    /// If nobody is there.
    pub(crate) fn try_write(&self, user: &UserId, agent: &AgentId) -> Option<Writing> {
        let (lock, share) = self.share(user, agent);
        lock.try_write_owned().ok().map(|guard| Writing { _guard: guard, _share: share })
    }

    fn share(&self, user: &UserId, agent: &AgentId) -> (Arc<RwLock<()>>, Share) {
        let key = (user.clone(), agent.clone());
        let lock = Arc::clone(self.map().entry(key.clone()).or_default());
        (lock, Share { locks: self.clone(), key })
    }

    fn map(&self) -> MutexGuard<'_, HashMap<Key, Arc<RwLock<()>>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.locks.map();
        // Only the map's own is left; new ones are made under this mutex.
        if all.get(&self.key).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.key);
        }
    }
}

fn busy(operation: &str) -> Error {
    let message = format!("Server busy: {operation} operation timed out. Please try again.");
    Error::agent(ProblemKind::Busy, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(agent: &str) -> Key {
        ("u".parse().unwrap(), agent.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn readers_share_writers_exclude_and_nobody_waits_for_ever() {
        let locks = Locks::default();
        let ((user, agent), (_, other)) = (pair("a"), pair("b"));
        let begun = tokio::time::Instant::now();
        let readers = (locks.read(&user, &agent).await.unwrap(), locks.read(&user, &agent).await.unwrap());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let refused = locks.write(&user, &agent).await.unwrap_err();
        assert_eq!(refused.to_string(), "Server busy: Update operation timed out. Please try again.");
        assert_eq!(begun.elapsed(), WRITE_TIMEOUT);
        drop(readers);
        let writer = locks.write(&user, &agent).await.unwrap();
        let _elsewhere = locks.write(&user, &other).await.unwrap();
        let refused = locks.read(&user, &agent).await.unwrap_err();
        assert_eq!(refused.to_string(), "Server busy: Read operation timed out. Please try again.");
        assert_eq!(begun.elapsed(), WRITE_TIMEOUT + READ_TIMEOUT);
        drop(writer);
        assert!(locks.read(&user, &agent).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_changes_where_a_box_is() {
        let locks = Locks::default();
        let (user, agent) = pair("a");
        let boxes = (locks.stay(&user, &agent).await, locks.stay(&user, &agent).await);
        assert!(locks.try_write(&user, &agent).is_none());
        drop(boxes.0);
        assert!(locks.try_write(&user, &agent).is_none());
        drop(boxes.1);
        let alone = locks.try_write(&user, &agent).unwrap();
        assert!(timeout(Duration::ZERO, locks.stay(&user, &agent)).await.is_err());
        drop(alone);
        locks.stay(&user, &agent).await;
        assert!(locks.map().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_nobody_wants_is_forgotten() {
        let locks = Locks::default();
        let (user, agent) = pair("a");
        let held = locks.write(&user, &agent).await.unwrap();
        // One waits its time out, one is given up at once.
        assert!(locks.read(&user, &agent).await.is_err());
        assert!(timeout(Duration::ZERO, locks.write(&user, &agent)).await.is_err());
        assert_eq!(locks.map().len(), 1);
        drop(held);
        assert!(locks.map().is_empty());
    }
}
