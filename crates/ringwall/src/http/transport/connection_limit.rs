//! The connection limit. A full server closes the connection that has kept it waiting longest.
//!
//! A connection may be closed for a new one while the server waits for its client: before the first
//! request, between two requests, while a request body is expected, and while the client does not
//! read its response. It may not be closed while a handler works for it. If a handler works for
//! every connection, new ones wait in the kernel's queue.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct ConnectionLimit {
    max: usize,
    state: Mutex<State>,
    /// Notified when a connection ends or may be closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    connections: HashMap<u64, Connection>,
    /// The connections that may be closed, by the sequence number at which their wait began.
    waiting: BTreeMap<u64, u64>,
    next: u64,
}

#[derive(Debug)]
struct Connection {
    requests: u32,
    /// Indexed by [`Stall`].
    stalled: [bool; 2],
    /// Its key in `waiting`.
    waits_since: Option<u64>,
    evict: Arc<Notify>,
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
pub(crate) struct ConnectionPermit {
    limit: Arc<ConnectionLimit>,
    number: u64,
    evict: Arc<Notify>,
    has_requested: AtomicBool,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    limit: Arc<ConnectionLimit>,
    number: u64,
}

impl ConnectionLimit {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default(), changed: Notify::new() })
    }

    /// Waits until a slot is free or a connection may be closed for this one.
    pub(crate) async fn acquire(self: &Arc<Self>) -> ConnectionPermit {
        loop {
            match self.try_acquire() {
                Some(permit) => return permit,
                // `notify_one` stores a permit, so a change since `try_acquire` is not missed.
                None => self.changed.notified().await,
            }
        }
    }

    fn try_acquire(self: &Arc<Self>) -> Option<ConnectionPermit> {
        let mut state = self.state.lock();
        if state.connections.len() >= self.max && !state.close_longest_waiting() {
            return None;
        }
        let (number, evict) = (state.number(), Arc::new(Notify::new()));
        let connection =
            Connection { requests: 0, stalled: [false; 2], waits_since: Some(number), evict: evict.clone() };
        state.connections.insert(number, connection);
        state.waiting.insert(number, number);
        Some(ConnectionPermit { limit: self.clone(), number, evict, has_requested: AtomicBool::new(false) })
    }

    /// Frees a descriptor when none is left to accept with.
    pub(crate) fn close_longest_waiting(&self) {
        self.state.lock().close_longest_waiting();
    }

    /// Returns when no connection is left. Call it after the last `acquire`.
    pub(crate) async fn all_free(&self) {
        while !self.state.lock().connections.is_empty() {
            self.changed.notified().await;
        }
    }

    /// Changes the state of a connection. Returns false if it has lost its slot.
    fn change(&self, number: u64, change: impl FnOnce(&mut Connection)) -> bool {
        let mut state = self.state.lock();
        let now = state.number();
        let Some(connection) = state.connections.get_mut(&number) else { return false };
        change(connection);
        let may_be_closed = connection.requests == 0 || connection.stalled.contains(&true);
        match (connection.waits_since, may_be_closed) {
            (None, true) => {
                connection.waits_since = Some(now);
                state.waiting.insert(now, number);
                self.changed.notify_one();
            }
            (Some(since), false) => {
                connection.waits_since = None;
                state.waiting.remove(&since);
            }
            (None, false) | (Some(_), true) => {}
        }
        true
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Frees a slot at once and tells the task of that connection to end.
    fn close_longest_waiting(&mut self) -> bool {
        let longest = self.waiting.pop_first().and_then(|(_, number)| self.connections.remove(&number));
        longest.map(|connection| connection.evict.notify_one()).is_some()
    }
}

impl ConnectionPermit {
    /// Counts a request. Returns `None` if the connection has lost its slot: it is being closed, so
    /// the request must not be handled.
    pub(crate) fn begin(&self) -> Option<ActiveRequest> {
        self.has_requested.store(true, Ordering::Relaxed);
        let has_slot = self.limit.change(self.number, |connection| connection.requests += 1);
        has_slot.then(|| ActiveRequest { limit: self.limit.clone(), number: self.number })
    }

    /// Marks that a request in progress waits for the client.
    pub(crate) fn stall(&self, stall: Stall) {
        self.limit.change(self.number, |connection| connection.stalled[stall as usize] = true);
    }

    /// Marks that the client did its part. Returns false if the connection has lost its slot
    /// meanwhile.
    pub(crate) fn resume(&self, stall: Stall) -> bool {
        self.limit.change(self.number, |connection| connection.stalled[stall as usize] = false)
    }

    /// True once a request was received.
    pub(crate) fn has_requested(&self) -> bool {
        self.has_requested.load(Ordering::Relaxed)
    }

    /// Returns when the connection has lost its slot. For one task at a time.
    pub(crate) async fn evicted(&self) {
        self.evict.notified().await;
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.limit.change(self.number, |connection| connection.requests -= 1);
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut state = self.limit.state.lock();
        if let Some(connection) = state.connections.remove(&self.number) {
            if let Some(since) = connection.waits_since {
                state.waiting.remove(&since);
            }
            self.limit.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn full_server_closes_longest_idle_connection() {
        let limit = ConnectionLimit::new(2);
        let (first, second) = (limit.try_acquire().unwrap(), limit.try_acquire().unwrap());
        // The first has made a request since, so the second is idle for longer.
        drop(first.begin().unwrap());
        let third = limit.try_acquire().unwrap();
        assert!(second.evicted().now_or_never().is_some() && first.evicted().now_or_never().is_none());
        assert!(second.begin().is_none(), "a request is handled on a connection that is being closed");
        // Dropping a permit without a slot frees no slot.
        drop(second);
        assert_eq!(limit.state.lock().connections.len(), 2);
        let busy = (first.begin().unwrap(), third.begin().unwrap());
        assert!(limit.try_acquire().is_none(), "a connection was closed while its request was handled");
        drop(busy.1);
        let fourth = limit.try_acquire().unwrap();
        assert!(third.evicted().now_or_never().is_some() && first.evicted().now_or_never().is_none());
        drop((first, fourth, busy.0, third));
        let state = limit.state.lock();
        assert!(state.connections.is_empty() && state.waiting.is_empty());
    }

    #[test]
    fn stalled_request_loses_its_slot() {
        for stall in [Stall::Body, Stall::Write] {
            let limit = ConnectionLimit::new(2);
            let (stalled, working) = (limit.try_acquire().unwrap(), limit.try_acquire().unwrap());
            let _requests = (stalled.begin().unwrap(), working.begin().unwrap());
            assert!(limit.try_acquire().is_none());
            stalled.stall(stall);
            let _third = limit.try_acquire().unwrap();
            assert!(stalled.evicted().now_or_never().is_some() && working.evicted().now_or_never().is_none());
            assert!(!stalled.resume(stall), "{stall:?}: a closed connection goes on");
        }
    }

    #[test]
    fn resumed_request_keeps_its_slot() {
        let limit = ConnectionLimit::new(1);
        let permit = limit.try_acquire().unwrap();
        let _request = permit.begin().unwrap();
        permit.stall(Stall::Body);
        permit.stall(Stall::Write);
        assert!(permit.resume(Stall::Body));
        assert!(limit.state.lock().waiting.len() == 1, "it still waits for the other");
        assert!(permit.resume(Stall::Write));
        assert!(limit.try_acquire().is_none());
    }

    #[test]
    fn progress_restarts_the_wait() {
        let limit = ConnectionLimit::new(2);
        let (slow, stuck) = (limit.try_acquire().unwrap(), limit.try_acquire().unwrap());
        let _requests = (slow.begin().unwrap(), stuck.begin().unwrap());
        slow.stall(Stall::Body);
        stuck.stall(Stall::Body);
        assert!(slow.resume(Stall::Body));
        slow.stall(Stall::Body);
        let _third = limit.try_acquire().unwrap();
        assert!(stuck.evicted().now_or_never().is_some() && slow.evicted().now_or_never().is_none());
    }

    #[tokio::test]
    async fn waiting_connection_gets_slot_when_another_ends_or_is_idle() {
        let limit = ConnectionLimit::new(1);
        let first = limit.acquire().await;
        let busy = first.begin().unwrap();
        let waiting = tokio::spawn({
            let limit = limit.clone();
            async move { limit.acquire().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(busy);
        let second = waiting.await.unwrap();
        first.evicted().await;
        let busy = second.begin();
        let waiting = tokio::spawn({
            let limit = limit.clone();
            async move { limit.acquire().await }
        });
        tokio::task::yield_now().await;
        drop((second, busy));
        waiting.await.unwrap();
    }
}
