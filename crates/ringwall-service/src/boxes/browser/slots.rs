//! Browser slots: which sessions have a browser, for how long, and how many there are at once.
//!
//! A session has one slot. One action at a time has its turn, and up to 32 wait for it. A browser
//! that is idle for too long is closed, one that ended by itself is removed at once, and the next
//! action is told that its page is lost. One user gets at most half of the instances (rounded up),
//! so that other users can start one too. Dismissing a slot cancels the action in it and lets no
//! further one begin.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use ringwall_policy::BrowserKind;
use ringwall_record::{SessionKey, Store};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::fault::Fault;
use super::instance::Instance;
use crate::error::{Error, causes};
use crate::time::now;

/// From this number of slots on, unused ones without a browser are dropped. Until then they
/// remember why the browser ended.
const REMEMBERED: usize = 1000;
/// Maximum number of actions of one session that wait for their turn.
const MAX_WAITING: usize = 32;
/// Larger screenshots are not kept for clients that look at the session later.
const MAX_KEPT_BYTES: usize = 8 << 20;
const DISMISSED: &str = "the browser was closed, because its session was removed or the server is stopping";
const CANCELLED: &str = "it was cancelled";

/// Held by the one action that may use the browser.
pub(crate) type Turn = OwnedMutexGuard<Option<Instance>>;

#[derive(Debug, Default)]
pub(crate) struct Browsers {
    held: Mutex<Held>,
    acting: watch::Sender<usize>,
    numbers: AtomicU64,
    /// Notifies of changed settings.
    settings: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Held {
    slots: HashMap<SessionKey, Arc<BrowserSlot>>,
    is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct BrowserSlot {
    pub(crate) session: SessionKey,
    turn: Arc<tokio::sync::Mutex<Option<Instance>>>,
    waiting: Arc<Semaphore>,
    shown: Mutex<Shown>,
    dismissed: watch::Sender<bool>,
}

/// The last known state of a browser, available without asking it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// `None` if there is no browser.
    pub(crate) kind: Option<BrowserKind>,
    pub(crate) url: String,
    pub(crate) title: String,
    pub(crate) picture: Option<Arc<Vec<u8>>>,
    used: Instant,
    /// Why the browser ended, if no client asked for that.
    ended: Option<&'static str>,
}

/// Counts as a running action until dropped.
#[derive(Debug)]
pub(crate) struct Acting<'a>(&'a Browsers);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.acting.send_modify(|count| *count -= 1);
    }
}

impl Browsers {
    /// Counts a running action. `close` waits for all of them.
    pub(crate) fn act(&self) -> Acting<'_> {
        self.acting.send_modify(|count| *count += 1);
        Acting(self)
    }

    /// Makes the watchers of idle browsers read the settings again.
    pub(crate) fn reconsider(&self) {
        self.settings.send_replace(());
    }

    /// Notifies of changed settings.
    pub(crate) fn settings_changes(&self) -> watch::Receiver<()> {
        self.settings.subscribe()
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The slot of a session, created if there is none.
    pub(crate) fn slot(&self, session: &SessionKey) -> Result<Arc<BrowserSlot>, Error> {
        let mut held = self.lock();
        if held.is_closed {
            return Err(Error::Stopping);
        }
        if held.slots.len() >= REMEMBERED {
            held.slots.retain(|_, slot| !is_unused(slot) || slot.lock().kind.is_some());
        }
        Ok(held.slots.entry(session.clone()).or_insert_with(|| Arc::new(BrowserSlot::new(session.clone()))).clone())
    }

    pub(crate) fn find(&self, session: &SessionKey) -> Option<Arc<BrowserSlot>> {
        self.lock().slots.get(session).cloned()
    }

    /// Reserves one of `most` browser instances for this slot. If all are taken, or this user has
    /// its share, closes the browser that has been idle longest.
    pub(crate) async fn reserve(
        &self,
        store: &Store,
        most: usize,
        slot: &BrowserSlot,
        kind: BrowserKind,
    ) -> Result<(), Fault> {
        loop {
            let (other, mut turn) = {
                let held = self.lock();
                let open: Vec<&Arc<BrowserSlot>> =
                    held.slots.values().filter(|slot| slot.lock().kind.is_some()).collect();
                let is_own = |other: &&Arc<BrowserSlot>| other.session.user_id == slot.session.user_id;
                let own = open.iter().filter(|other| is_own(other)).count();
                let mut candidates = match slot_source(most, open.len(), own) {
                    SlotSource::Free => {
                        *slot.lock() = Shown { kind: Some(kind), ..Shown::new() };
                        return Ok(());
                    }
                    SlotSource::OfAnyUser => open,
                    SlotSource::OfSameUser => open.into_iter().filter(is_own).collect(),
                };
                candidates.sort_by_key(|slot| slot.lock().used);
                let count = candidates.len();
                let idle = candidates.into_iter().find_map(|other| {
                    let turn = other.turn.clone().try_lock_owned().ok()?;
                    // A browser in a paused box cannot be closed.
                    let is_paused = turn.as_ref().is_some_and(Instance::is_paused);
                    (!is_paused).then(|| (other.clone(), turn))
                });
                let full = || {
                    let whose = if count < most { "of this user " } else { "" };
                    let why = format!("all {count} browsers {whose}are in use (browser.max_instances); try again");
                    Fault::failed(why)
                };
                idle.ok_or_else(full)?
            };
            other.end(store, turn.take(), Some("another session needed its place")).await;
        }
    }

    /// Removes the slot of a deleted session and ends its browser, even during an action.
    pub(crate) async fn dismiss(&self, store: &Store, session: &SessionKey) {
        let slot = self.lock().slots.remove(session);
        if let Some(slot) = slot {
            slot.dismiss(store, "its session was removed").await;
        }
    }

    /// Like `dismiss`, for a session whose files are gone, unless an action holds the slot: it may
    /// be the first use of a new session with that id, whose files are created together with its
    /// browser.
    pub(crate) async fn dismiss_unused(&self, store: &Store, session: &SessionKey) {
        let slot = {
            let mut held = self.lock();
            let is_unused = held.slots.get(session).is_some_and(is_unused);
            is_unused.then(|| held.slots.remove(session)).flatten()
        };
        if let Some(slot) = slot {
            slot.dismiss(store, "its session was removed").await;
        }
    }

    /// The sessions whose slot no action holds.
    pub(crate) fn unused_sessions(&self) -> Vec<SessionKey> {
        let held = self.lock();
        held.slots.iter().filter(|(_, slot)| is_unused(slot)).map(|(session, _)| session.clone()).collect()
    }

    /// Ends all browsers. When this returns, there are none, none can start, and their actions are
    /// recorded.
    pub(crate) async fn close(&self, store: &Store) {
        let slots: Vec<Arc<BrowserSlot>> = {
            let mut held = self.lock();
            held.is_closed = true;
            held.slots.drain().map(|(_, slot)| slot).collect()
        };
        futures::future::join_all(slots.iter().map(|slot| slot.dismiss(store, "the server was stopped"))).await;
        let _ = self.acting.subscribe().wait_for(|count| *count == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

/// An action holds a clone of the slot, and clones are handed out only under the lock of `held`.
fn is_unused(slot: &Arc<BrowserSlot>) -> bool {
    Arc::strong_count(slot) == 1
}

/// Where the instance for another browser comes from: a free one, or by closing the browser of any
/// user or of the same user.
#[derive(Debug, PartialEq, Eq)]
enum SlotSource {
    Free,
    OfAnyUser,
    OfSameUser,
}

/// `taken` of `most` instances are in use, `own` of them by the user that wants another one.
fn slot_source(most: usize, taken: usize, own: usize) -> SlotSource {
    if own >= most.div_ceil(2) {
        SlotSource::OfSameUser
    } else if taken >= most {
        SlotSource::OfAnyUser
    } else {
        SlotSource::Free
    }
}

impl Shown {
    fn new() -> Self {
        let (url, title) = Default::default();
        Self { kind: None, url, title, picture: None, used: Instant::now(), ended: None }
    }
}

impl BrowserSlot {
    fn new(session: SessionKey) -> Self {
        let dismissed = watch::Sender::new(false);
        let waiting = Arc::new(Semaphore::new(MAX_WAITING));
        Self { session, turn: Arc::default(), waiting, shown: Mutex::new(Shown::new()), dismissed }
    }

    /// A permit to wait for the turn; fails if 32 actions are waiting.
    pub(crate) fn join_queue(&self) -> Result<OwnedSemaphorePermit, Error> {
        self.waiting.clone().try_acquire_owned().map_err(|_| Error::TooManyActions)
    }

    pub(crate) async fn turn(&self) -> Turn {
        self.turn.clone().lock_owned().await
    }

    /// Returns when the slot is dismissed.
    pub(crate) async fn dismissed(&self) {
        let _ = self.dismissed.subscribe().wait_for(|dismissed| *dismissed).await;
    }

    pub(crate) fn show(&self) -> Shown {
        self.lock().clone()
    }

    /// Stores the state of the browser after an action.
    pub(crate) fn set_page(&self, url: &str, title: &str, picture: Option<Vec<u8>>) {
        let mut shown = self.lock();
        shown.used = Instant::now();
        (shown.url, shown.title) = (url.to_owned(), title.to_owned());
        if let Some(picture) = picture {
            shown.picture = (picture.len() <= MAX_KEPT_BYTES).then(|| Arc::new(picture));
        }
    }

    pub(crate) fn last_used(&self) -> Instant {
        self.lock().used
    }

    pub(crate) fn used(&self) {
        self.lock().used = Instant::now();
    }

    /// Why the browser ended, returned once.
    pub(crate) fn take_ended(&self) -> Option<&'static str> {
        self.lock().ended.take()
    }

    /// Closes the browser, if there is one, and records its end. `why` is `None` if the client
    /// asked for it. The caller holds the turn.
    pub(crate) async fn end(&self, store: &Store, there: Option<Instance>, why: Option<&'static str>) {
        if let Some(instance) = there {
            let (gate, kind) = (instance.browser_box.gate.clone(), instance.kind);
            let why = why.unwrap_or("a client requested it");
            let why = match instance.close().await {
                Ok(()) => why.to_owned(),
                Err(left) => {
                    tracing::warn!(session = %self.session.session_id, why = left.message, "could not remove the files of a browser");
                    format!("{why}; its files could not be removed and stay until the session's box ends")
                }
            };
            let connections = gate.close().await;
            let recorded = store.record_browser_end(self.session.clone(), kind.key(), &why, connections, now());
            if let Err(error) = recorded.await {
                tracing::error!(session = %self.session.session_id, error = %causes(&error), "could not record a browser's end");
            }
        }
        *self.lock() = Shown { ended: why, ..Shown::new() };
    }

    /// Releases the instance that was reserved for a browser which did not start.
    pub(crate) fn release(&self) {
        self.lock().kind = None;
    }

    async fn dismiss(&self, store: &Store, why: &'static str) {
        self.dismissed.send_replace(true);
        let mut turn = self.turn().await;
        self.end(store, turn.take(), Some(why)).await;
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock()
    }
}

/// Ends an action whose client has cancelled it or whose slot is dismissed. Only work without
/// lasting side effects is interrupted: opening and closing a browser run to completion, so that no
/// process or file stays.
#[derive(Debug)]
pub(crate) struct Stop {
    slot: Arc<BrowserSlot>,
    cancelled: watch::Receiver<bool>,
}

impl Stop {
    pub(crate) fn new(slot: Arc<BrowserSlot>, cancelled: watch::Receiver<bool>) -> Self {
        Self { slot, cancelled }
    }

    /// Runs `work`, and drops it if the action is cancelled. A client that only disconnected has
    /// not cancelled it.
    pub(crate) async fn unless<T>(&mut self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        tokio::select! {
            biased;
            () = self.slot.dismissed() => Err(Fault::failed(DISMISSED)),
            Ok(_) = self.cancelled.wait_for(|cancelled| *cancelled) => Err(Fault::failed(CANCELLED)),
            done = work => done,
        }
    }

    /// Waits for the turn. Also stops if the client has disconnected.
    pub(crate) async fn unless_gone<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Error> {
        let why = tokio::select! {
            biased;
            () = self.slot.dismissed() => DISMISSED,
            _ = self.cancelled.wait_for(|cancelled| *cancelled) => CANCELLED,
            turn = turn => return Ok(turn),
        };
        Err(Error::Conflict { message: why.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_with_half_of_the_instances_gets_no_more() {
        assert_eq!(slot_source(10, 4, 4), SlotSource::Free);
        assert_eq!(slot_source(10, 5, 5), SlotSource::OfSameUser, "although instances are free");
        assert_eq!(slot_source(10, 9, 4), SlotSource::Free);
        assert_eq!(slot_source(10, 10, 4), SlotSource::OfAnyUser);
        assert_eq!(slot_source(10, 10, 0), SlotSource::OfAnyUser);
        assert_eq!(slot_source(10, 10, 7), SlotSource::OfSameUser, "the limit was higher before");
        assert_eq!(
            (slot_source(1, 0, 0), slot_source(1, 1, 0), slot_source(1, 1, 1)),
            (SlotSource::Free, SlotSource::OfAnyUser, SlotSource::OfSameUser)
        );
        assert_eq!((slot_source(3, 1, 1), slot_source(3, 2, 2)), (SlotSource::Free, SlotSource::OfSameUser));
    }

    fn session(id: &str) -> SessionKey {
        SessionKey { user_id: "u".parse().unwrap(), agent_id: "a".parse().unwrap(), session_id: id.parse().unwrap() }
    }

    #[test]
    fn browser_slot_in_use_without_session_files_is_kept() {
        let browsers = Browsers::default();
        let acting = browsers.slot(&session("new")).unwrap();
        drop(browsers.slot(&session("left")).unwrap());
        assert_eq!(browsers.unused_sessions(), [session("left")]);
        drop(acting);
        assert_eq!(browsers.unused_sessions().len(), 2);
    }

    #[test]
    fn action_on_full_browser_queue_is_refused() {
        let slot = BrowserSlot::new(session("s"));
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| slot.join_queue().unwrap()).collect();
        assert!(matches!(slot.join_queue(), Err(Error::TooManyActions)));
        waiting.pop();
        drop(slot.join_queue().unwrap());
    }
}
