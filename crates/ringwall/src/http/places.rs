//! The places for connections: so many and no more, and whoever has said nothing for longest makes room.
//!
//! A connection is idle as long as no request of it is being answered: before its first one, between two, and while one
//! is only beginning to arrive. When all places are taken, the connection that has been idle for longest is closed for
//! the next; only when everybody is busy the next one waits. So strangers who hold connections keep nobody out.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    held: Mutex<Held>,
    /// Rings when somebody goes or becomes idle.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    taken: HashMap<u64, Taken>,
    /// Idle ones, since when: numbers only grow.
    idle: BTreeMap<u64, u64>,
    next: u64,
}

#[derive(Debug)]
struct Taken {
    requests: u32,
    /// Its key among the idle ones, if it is one.
    idle_since: u64,
    leave: Arc<Notify>,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    places: Arc<Places>,
    number: u64,
    leave: Arc<Notify>,
    has_asked: AtomicBool,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Busy {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default(), changed: Notify::new() })
    }

    /// Waits for a place, which is somebody else's if nobody is busy with all of them.
    pub(crate) async fn take(self: &Arc<Self>) -> Seat {
        loop {
            match self.try_take() {
                Some(seat) => return seat,
                // A bell that rang since we looked rings again for us.
                None => self.changed.notified().await,
            }
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Seat> {
        let mut held = self.lock();
        if held.taken.len() >= self.most && !held.close_longest_idle() {
            return None;
        }
        let (number, leave) = (held.number(), Arc::new(Notify::new()));
        held.taken.insert(number, Taken { requests: 0, idle_since: number, leave: leave.clone() });
        held.idle.insert(number, number);
        Some(Seat { places: self.clone(), number, leave, has_asked: AtomicBool::new(false) })
    }

    /// For whoever needs a descriptor more than a connection that says nothing.
    pub(crate) fn close_longest_idle(&self) {
        self.lock().close_longest_idle();
    }

    /// Comes back when nobody has a place. For the end, when nobody waits for one either.
    pub(crate) async fn all_free(&self) {
        while !self.lock().taken.is_empty() {
            self.changed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Its place is free at once, and whoever had it learns that.
    fn close_longest_idle(&mut self) -> bool {
        let longest = self.idle.pop_first().and_then(|(_, number)| self.taken.remove(&number));
        longest.map(|taken| taken.leave.notify_one()).is_some()
    }
}

impl Seat {
    /// A request has arrived. Nothing when the place is another's by now: it must not be answered then, because the
    /// connection is being closed.
    pub(crate) fn begin(&self) -> Option<Busy> {
        self.has_asked.store(true, Ordering::Relaxed);
        let mut held = self.places.lock();
        let taken = held.taken.get_mut(&self.number)?;
        taken.requests += 1;
        let idle_since = taken.idle_since;
        held.idle.remove(&idle_since);
        Some(Busy { places: self.places.clone(), number: self.number })
    }

    /// Whether there ever was a request.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Comes back when the place is another's.
    pub(crate) async fn lost(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        let now = held.number();
        let Some(taken) = held.taken.get_mut(&self.number) else { return };
        taken.requests -= 1;
        if taken.requests == 0 {
            taken.idle_since = now;
            held.idle.insert(now, self.number);
            self.places.changed.notify_one();
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        if let Some(taken) = held.taken.remove(&self.number) {
            held.idle.remove(&taken.idle_since);
            self.places.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn whoever_was_idle_for_longest_makes_room() {
        let places = Places::new(2);
        let (first, second) = (places.try_take().unwrap(), places.try_take().unwrap());
        // The first has asked something since, so the second is idle for longer.
        drop(first.begin().unwrap());
        let third = places.try_take().unwrap();
        assert!(second.lost().now_or_never().is_some() && first.lost().now_or_never().is_none());
        assert!(second.begin().is_none(), "answered on a connection that is being closed");
        // What it gives back is not its own any more.
        drop(second);
        assert_eq!(places.lock().taken.len(), 2);
        let busy = (first.begin().unwrap(), third.begin().unwrap());
        assert!(places.try_take().is_none(), "a busy one was sent away");
        drop(busy.1);
        let fourth = places.try_take().unwrap();
        assert!(third.lost().now_or_never().is_some() && first.lost().now_or_never().is_none());
        drop((first, fourth, busy.0, third));
        let held = places.lock();
        assert!(held.taken.is_empty() && held.idle.is_empty());
    }

    #[tokio::test]
    async fn whoever_waits_is_let_in_when_somebody_goes_or_is_done() {
        let places = Places::new(1);
        let first = places.take().await;
        let busy = first.begin().unwrap();
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(busy);
        let second = waiting.await.unwrap();
        first.lost().await;
        let busy = second.begin();
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take().await }
        });
        tokio::task::yield_now().await;
        drop((second, busy));
        waiting.await.unwrap();
    }
}
