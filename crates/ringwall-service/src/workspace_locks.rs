//! Reader-writer locks, one per workspace.
//!
//! A lock is created at first use and removed with its last holder, so workspaces do not wait for
//! each other. Waiting is bounded and fair: no later request overtakes a writer. A guard owns its
//! lock and can move to another thread, where work continues after the caller has disconnected.
//! Execs take no lock; a second set of locks records where boxes run, for operations that must not
//! change files under a box.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_ids::{AgentId, UserId};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::error::{Error, ProblemKind};

const READ_TIMEOUT: Duration = Duration::from_secs(5);
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

type Key = (UserId, AgentId);

#[derive(Debug, Clone, Default)]
pub(crate) struct Locks {
    all: Arc<Mutex<HashMap<Key, Arc<RwLock<()>>>>>,
}

/// A held lock on a workspace.
#[derive(Debug)]
pub(crate) struct Held<G> {
    // Dropped in this order: the share removes the lock from the map if it was the last one.
    _guard: G,
    _share: Share,
}

pub(crate) type Reading = Held<OwnedRwLockReadGuard<()>>;
pub(crate) type Writing = Held<OwnedRwLockWriteGuard<()>>;

/// A reference to a lock by a waiter or holder.
#[derive(Debug)]
struct Share {
    locks: Locks,
    key: Key,
}

impl Locks {
    pub(crate) async fn read(&self, user: &UserId, agent: &AgentId) -> Result<Reading, Error> {
        let (lock, share) = self.share(user, agent);
        match tokio::time::timeout(READ_TIMEOUT, lock.read_owned()).await {
            Ok(guard) => Ok(Held { _guard: guard, _share: share }),
            Err(_) => Err(busy("Read")),
        }
    }

    pub(crate) async fn write(&self, user: &UserId, agent: &AgentId) -> Result<Writing, Error> {
        self.write_within(WRITE_TIMEOUT, user, agent).await.ok_or_else(|| busy("Update"))
    }

    /// `None` if the lock is not free in time.
    pub(crate) async fn write_within(&self, timeout: Duration, user: &UserId, agent: &AgentId) -> Option<Writing> {
        let (lock, share) = self.share(user, agent);
        let guard = tokio::time::timeout(timeout, lock.write_owned()).await.ok()?;
        Some(Held { _guard: guard, _share: share })
    }

    /// Held while a box runs. Writers hold these locks only briefly.
    pub(crate) async fn stay(&self, user: &UserId, agent: &AgentId) -> Reading {
        let (lock, share) = self.share(user, agent);
        Held { _guard: lock.read_owned().await, _share: share }
    }

    /// `None` if the lock is held.
    pub(crate) fn try_write(&self, user: &UserId, agent: &AgentId) -> Option<Writing> {
        let (lock, share) = self.share(user, agent);
        lock.try_write_owned().ok().map(|guard| Held { _guard: guard, _share: share })
    }

    fn share(&self, user: &UserId, agent: &AgentId) -> (Arc<RwLock<()>>, Share) {
        let key = (user.clone(), agent.clone());
        let lock = Arc::clone(self.all.lock().entry(key.clone()).or_default());
        (lock, Share { locks: self.clone(), key })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut all = self.locks.all.lock();
        // Only the map's reference is left; new ones are made under this mutex.
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
    async fn workspace_lock_shares_reads_excludes_writes_and_times_out() {
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
    async fn running_box_blocks_writers() {
        let locks = Locks::default();
        let (user, agent) = pair("a");
        let boxes = (locks.stay(&user, &agent).await, locks.stay(&user, &agent).await);
        assert!(locks.try_write(&user, &agent).is_none());
        drop(boxes.0);
        assert!(locks.try_write(&user, &agent).is_none());
        drop(boxes.1);
        let alone = locks.try_write(&user, &agent).unwrap();
        assert!(tokio::time::timeout(Duration::ZERO, locks.stay(&user, &agent)).await.is_err());
        drop(alone);
        locks.stay(&user, &agent).await;
        assert!(locks.all.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn unused_workspace_lock_is_removed() {
        let locks = Locks::default();
        let (user, agent) = pair("a");
        let held = locks.write(&user, &agent).await.unwrap();
        // One request times out, one is cancelled at once.
        assert!(locks.read(&user, &agent).await.is_err());
        assert!(tokio::time::timeout(Duration::ZERO, locks.write(&user, &agent)).await.is_err());
        assert_eq!(locks.all.lock().len(), 1);
        drop(held);
        assert!(locks.all.lock().is_empty());
    }
}
