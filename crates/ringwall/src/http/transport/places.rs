//! The connection limit. A full server closes the connection that has kept it waiting longest.
//!
//! A connection may be closed for a new one while the server waits for its client: before the first request, between
//! two requests, while a request body is expected, and while the client does not read its response. It may not be closed
//! while a handler works for it. If a handler works for every connection, new ones wait in the kernel's queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    held: Mutex<Held>,
    /// Notified when a connection ends or may be closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    taken: HashMap<u64, Taken>,
    /// The connections that may be closed, by the sequence number at which their wait began.
    waiting: BTreeMap<u64, u64>,
    next: u64,
}

#[derive(Debug)]
struct Taken {
    requests: u32,
    /// Indexed by [`Stall`].
    stalled: [bool; 2],
    /// Its key in `waiting`.
    waits_since: Option<u64>,
    leave: Arc<Notify>,
}

/// The reason why a request in progress waits for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    /// The next bytes of the request body.
    Body = 0,
    /// Room in the socket's send buffer.
    Write = 1,
}

/// The slot of one connection, freed when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    places: Arc<Places>,
    number: u64,
    leave: Arc<Notify>,
    has_asked: AtomicBool,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Busy {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, held: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until a slot is free or a connection may be closed for this one.
    pub(crate) async fn take(self: &Arc<Self>) -> Seat {
        loop {
            match self.try_take() {
                Some(seat) => return seat,
                // `notify_one` stores a permit, so a change since `try_take` is not missed.
                None => self.changed.notified().await,
            }
        }
    }

    fn try_take(self: &Arc<Self>) -> Option<Seat> {
        let mut held = self.lock();
        if held.taken.len() >= self.max && !held.close_longest_waiting() {
            return None;
        }
        let (number, leave) = (held.number(), Arc::new(Notify::new()));
        let taken = Taken { requests: 0, stalled: [false; 2], waits_since: Some(number), leave: leave.clone() };
        held.taken.insert(number, taken);
        held.waiting.insert(number, number);
        Some(Seat { places: self.clone(), number, leave, has_asked: AtomicBool::new(false) })
    }

    /// Frees a descriptor when none is left to accept with.
    pub(crate) fn close_longest_waiting(&self) {
        self.lock().close_longest_waiting();
    }

    /// Returns when no connection is left. Call it after the last `take`.
    pub(crate) async fn all_free(&self) {
        while !self.lock().taken.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Changes the state of a connection. Returns false if it has lost its slot.
    fn change(&self, number: u64, change: impl FnOnce(&mut Taken)) -> bool {
        let mut held = self.lock();
        let now = held.number();
        let Some(taken) = held.taken.get_mut(&number) else { return false };
        change(taken);
        let may_be_closed = taken.requests == 0 || taken.stalled.contains(&true);
        match (taken.waits_since, may_be_closed) {
            (None, true) => {
                taken.waits_since = Some(now);
                held.waiting.insert(now, number);
                self.changed.notify_one();
            }
            (Some(since), false) => {
                taken.waits_since = None;
                held.waiting.remove(&since);
            }
            (None, false) | (Some(_), true) => {}
        }
        true
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

    /// Frees a slot at once and tells the task of that connection to end.
    fn close_longest_waiting(&mut self) -> bool {
        let longest = self.waiting.pop_first().and_then(|(_, number)| self.taken.remove(&number));
        longest.map(|taken| taken.leave.notify_one()).is_some()
    }
}

impl Seat {
    /// Counts a request. Returns `None` if the connection has lost its slot: it is being closed, so the request must not
    /// be handled.
    pub(crate) fn begin(&self) -> Option<Busy> {
        self.has_asked.store(true, Ordering::Relaxed);
        let has_slot = self.places.change(self.number, |taken| taken.requests += 1);
        has_slot.then(|| Busy { places: self.places.clone(), number: self.number })
    }

    /// Marks that a request in progress waits for the client.
    pub(crate) fn stall(&self, stall: Stall) {
        self.places.change(self.number, |taken| taken.stalled[stall as usize] = true);
    }

    /// Marks that the client did its part. Returns false if the connection has lost its slot meanwhile.
    pub(crate) fn resume(&self, stall: Stall) -> bool {
        self.places.change(self.number, |taken| taken.stalled[stall as usize] = false)
    }

    /// True once a request was received.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked.load(Ordering::Relaxed)
    }

    /// Returns when the connection has lost its slot. For one task at a time.
    pub(crate) async fn lost(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.places.change(self.number, |taken| taken.requests -= 1);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut held = self.places.lock();
        if let Some(taken) = held.taken.remove(&self.number) {
            if let Some(since) = taken.waits_since {
                held.waiting.remove(&since);
            }
            self.places.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn full_server_closes_longest_idle_connection() {
        let places = Places::new(2);
        let (first, second) = (places.try_take().unwrap(), places.try_take().unwrap());
        // The first has made a request since, so the second is idle for longer.
        drop(first.begin().unwrap());
        let third = places.try_take().unwrap();
        assert!(second.lost().now_or_never().is_some() && first.lost().now_or_never().is_none());
        assert!(second.begin().is_none(), "a request is handled on a connection that is being closed");
        // Dropping a seat without a slot frees no slot.
        drop(second);
        assert_eq!(places.lock().taken.len(), 2);
        let busy = (first.begin().unwrap(), third.begin().unwrap());
        assert!(places.try_take().is_none(), "a connection was closed while its request was handled");
        drop(busy.1);
        let fourth = places.try_take().unwrap();
        assert!(third.lost().now_or_never().is_some() && first.lost().now_or_never().is_none());
        drop((first, fourth, busy.0, third));
        let held = places.lock();
        assert!(held.taken.is_empty() && held.waiting.is_empty());
    }

    #[test]
    fn stalled_request_loses_its_slot() {
        for stall in [Stall::Body, Stall::Write] {
            let places = Places::new(2);
            let (stalled, working) = (places.try_take().unwrap(), places.try_take().unwrap());
            let _requests = (stalled.begin().unwrap(), working.begin().unwrap());
            assert!(places.try_take().is_none());
            stalled.stall(stall);
            let _third = places.try_take().unwrap();
            assert!(stalled.lost().now_or_never().is_some() && working.lost().now_or_never().is_none());
            assert!(!stalled.resume(stall), "{stall:?}: a closed connection goes on");
        }
    }

    #[test]
    fn resumed_request_keeps_its_slot() {
        let places = Places::new(1);
        let seat = places.try_take().unwrap();
        let _request = seat.begin().unwrap();
        seat.stall(Stall::Body);
        seat.stall(Stall::Write);
        assert!(seat.resume(Stall::Body));
        assert!(places.lock().waiting.len() == 1, "it still waits for the other");
        assert!(seat.resume(Stall::Write));
        assert!(places.try_take().is_none());
    }

    #[test]
    fn progress_restarts_the_wait() {
        let places = Places::new(2);
        let (slow, stuck) = (places.try_take().unwrap(), places.try_take().unwrap());
        let _requests = (slow.begin().unwrap(), stuck.begin().unwrap());
        slow.stall(Stall::Body);
        stuck.stall(Stall::Body);
        assert!(slow.resume(Stall::Body));
        slow.stall(Stall::Body);
        let _third = places.try_take().unwrap();
        assert!(stuck.lost().now_or_never().is_some() && slow.lost().now_or_never().is_none());
    }

    #[tokio::test]
    async fn waiting_connection_gets_slot_when_another_ends_or_is_idle() {
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
