//! The exec queue: bounded, FIFO per user, round robin between users. A user without a waiting exec
//! can queue one even when the queue is full, unless its limit is 0.
//!
//! [`Line`] holds the rules, without clock or lock: no exec waits that could run. [`Turns`] is the
//! queue for tasks. A [`Slot`] is the right to run and is released when dropped.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_ids::UserId;
use tokio::sync::oneshot;

use crate::settings::Settings;

/// Limits for running and waiting execs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) running: u32,
    pub(crate) running_per_user: u32,
    pub(crate) waiting: u32,
    /// Most waiting execs of one user, parked ones included.
    pub(crate) waiting_per_user: u32,
}

impl From<&Settings> for Bounds {
    fn from(settings: &Settings) -> Self {
        let sandbox = &settings.sandbox;
        Self {
            running: sandbox.max_concurrent_execs.get(),
            running_per_user: sandbox.max_concurrent_execs_per_user.get(),
            waiting: sandbox.max_queued_execs.get(),
            waiting_per_user: u32::MAX,
        }
    }
}

pub(crate) type Ticket = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    Running,
    Waiting(Ticket),
    Full,
}

#[derive(Debug)]
pub(crate) struct Line {
    bounds: Bounds,
    running: HashMap<UserId, u32>,
    /// Contains only users with at least one waiting exec.
    waiting: HashMap<UserId, VecDeque<Ticket>>,
    /// Execs that released their slot and wait for something else. They count as waiting but get no
    /// slot until they enter again.
    parked: HashMap<UserId, u32>,
    /// Users in round-robin order. Each user with waiting execs occurs once.
    rotation: VecDeque<UserId>,
    next: Ticket,
}

impl Line {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            running: HashMap::new(),
            waiting: HashMap::new(),
            parked: HashMap::new(),
            rotation: VecDeque::new(),
            next: 0,
        }
    }

    pub(crate) fn running(&self) -> u32 {
        self.running.values().sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        let parked = self.parked.values().sum::<u32>() as usize;
        parked + self.waiting.values().map(VecDeque::len).sum::<usize>()
    }

    pub(crate) fn enter(&mut self, user: &UserId) -> Entered {
        if self.try_start(user) {
            return Entered::Running;
        }
        if self.is_full_for(user) {
            return Entered::Full;
        }
        let (ticket, own) = self.line_up(user);
        own.push_back(ticket);
        Entered::Waiting(ticket)
    }

    /// Counts an exec that is about to release its slot as waiting. False if the queue is full.
    fn park(&mut self, user: &UserId) -> bool {
        if self.is_full_for(user) {
            return false;
        }
        *self.parked.entry(user.clone()).or_default() += 1;
        true
    }

    fn unpark(&mut self, user: &UserId) {
        if let Some(count) = self.parked.get_mut(user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.parked.remove(user);
            }
        }
    }

    /// Queues a parked exec again, ahead of its user's waiting execs, which came later. It was
    /// counted when it was parked, so no limit refuses it here.
    fn enter_again(&mut self, user: &UserId) -> Entered {
        if self.try_start(user) {
            return Entered::Running;
        }
        let (ticket, own) = self.line_up(user);
        own.push_front(ticket);
        Entered::Waiting(ticket)
    }

    /// Starts an exec if the limits allow it. This overtakes no waiting exec: none of them could
    /// start.
    fn try_start(&mut self, user: &UserId) -> bool {
        let can_start = self.running() < self.bounds.running && self.has_room(user);
        if can_start {
            *self.running.entry(user.clone()).or_default() += 1;
        }
        can_start
    }

    fn is_full_for(&self, user: &UserId) -> bool {
        let own = self.waiting_of(user);
        let is_full = self.waiting() >= self.bounds.waiting as usize;
        is_full && (own > 0 || self.bounds.waiting == 0) || own >= self.bounds.waiting_per_user as usize
    }

    fn waiting_of(&self, user: &UserId) -> usize {
        let parked = self.parked.get(user).copied().unwrap_or_default() as usize;
        parked + self.waiting.get(user).map_or(0, VecDeque::len)
    }

    /// Returns a new ticket and the user's waiting execs, and adds the user to the rotation.
    fn line_up(&mut self, user: &UserId) -> (Ticket, &mut VecDeque<Ticket>) {
        let ticket = self.next;
        self.next += 1;
        let own = self.waiting.entry(user.clone()).or_default();
        if own.is_empty() {
            self.rotation.push_back(user.clone());
        }
        (ticket, own)
    }

    /// Removes a waiting exec. Does nothing if the exec has already been given a slot.
    pub(crate) fn leave(&mut self, user: &UserId, ticket: Ticket) {
        if let Some(own) = self.waiting.get_mut(user) {
            own.retain(|other| *other != ticket);
            if own.is_empty() {
                self.forget(user);
            }
        }
    }

    /// Ends one running exec of the user. Returns the tickets that start now.
    pub(crate) fn release(&mut self, user: &UserId) -> Vec<Ticket> {
        if let Some(count) = self.running.get_mut(user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.running.remove(user);
            }
        }
        self.call()
    }

    /// Running and waiting execs stay even if they exceed the new limits. Returns the tickets that
    /// start now.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) -> Vec<Ticket> {
        self.bounds = bounds;
        self.call()
    }

    fn call(&mut self) -> Vec<Ticket> {
        let mut called = Vec::new();
        while self.running() < self.bounds.running {
            let Some(index) = self.rotation.iter().position(|user| self.has_room(user)) else { break };
            let Some(user) = self.rotation.remove(index) else { break };
            let Some(own) = self.waiting.get_mut(&user) else { continue };
            called.extend(own.pop_front());
            *self.running.entry(user.clone()).or_default() += 1;
            if own.is_empty() {
                self.waiting.remove(&user);
            } else {
                self.rotation.push_back(user);
            }
        }
        called
    }

    fn has_room(&self, user: &UserId) -> bool {
        self.running.get(user).is_none_or(|count| *count < self.bounds.running_per_user)
    }

    fn forget(&mut self, user: &UserId) {
        self.waiting.remove(user);
        self.rotation.retain(|other| other != user);
    }
}

/// The exec queue for tasks.
#[derive(Debug)]
pub(crate) struct Turns {
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    line: Line,
    calls: HashMap<Ticket, oneshot::Sender<Slot>>,
    /// The user of each waiting ticket.
    users: HashMap<Ticket, UserId>,
}

/// The right to run. Released when dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    turns: Arc<Turns>,
    user: UserId,
}

/// A position in the queue.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    turns: Arc<Turns>,
    user: UserId,
    ticket: Ticket,
    call: oneshot::Receiver<Slot>,
}

/// An exec that released its slot while it waits for something else. It counts as waiting.
#[derive(Debug)]
pub(crate) struct Parked {
    turns: Arc<Turns>,
    user: UserId,
}

#[derive(Debug)]
pub(crate) enum Admission {
    Now(Slot),
    Later(QueueTicket),
}

impl Turns {
    pub(crate) fn new(bounds: Bounds) -> Arc<Self> {
        let held = Held { line: Line::new(bounds), calls: HashMap::new(), users: HashMap::new() };
        Arc::new(Self { held: Mutex::new(held) })
    }

    /// `None` if the queue is full.
    pub(crate) fn enter(self: &Arc<Self>, user: &UserId) -> Option<Admission> {
        let mut held = self.lock();
        let entered = held.line.enter(user);
        self.admit(&mut held, user, entered)
    }

    fn admit(self: &Arc<Self>, held: &mut Held, user: &UserId, entered: Entered) -> Option<Admission> {
        match entered {
            Entered::Running => Some(Admission::Now(Slot { turns: self.clone(), user: user.clone() })),
            Entered::Full => None,
            Entered::Waiting(ticket) => {
                let (sender, call) = oneshot::channel();
                held.calls.insert(ticket, sender);
                held.users.insert(ticket, user.clone());
                Some(Admission::Later(QueueTicket { turns: self.clone(), user: user.clone(), ticket, call }))
            }
        }
    }

    pub(crate) fn set_bounds(self: &Arc<Self>, bounds: Bounds) {
        let mut held = self.lock();
        let called = held.line.set_bounds(bounds);
        let calls = held.take(&called);
        drop(held);
        self.call(calls);
    }

    /// The number of running and of waiting execs.
    pub(crate) fn counts(&self) -> (u32, usize) {
        let held = self.lock();
        (held.line.running(), held.line.waiting())
    }

    /// The number of running and of waiting execs per user; users without any are absent.
    pub(crate) fn counts_by_user(&self) -> HashMap<UserId, (u32, u32)> {
        let held = self.lock();
        let mut counts: HashMap<UserId, (u32, u32)> = HashMap::new();
        for (user, running) in &held.line.running {
            counts.entry(user.clone()).or_default().0 = *running;
        }
        for user in held.line.waiting.keys().chain(held.line.parked.keys()) {
            let waiting = held.line.waiting_of(user);
            counts.entry(user.clone()).or_default().1 = u32::try_from(waiting).unwrap_or(u32::MAX);
        }
        counts
    }

    /// Called without the lock: a slot whose receiver is gone is dropped here, and its drop takes
    /// the lock.
    fn call(self: &Arc<Self>, calls: Vec<(UserId, oneshot::Sender<Slot>)>) {
        for (user, call) in calls {
            drop(call.send(Slot { turns: self.clone(), user }));
        }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Held> {
        self.held.lock()
    }
}

impl Held {
    fn take(&mut self, called: &[Ticket]) -> Vec<(UserId, oneshot::Sender<Slot>)> {
        called.iter().filter_map(|ticket| Some((self.users.remove(ticket)?, self.calls.remove(ticket)?))).collect()
    }
}

impl Slot {
    /// Releases the slot for other execs. `None` if the queue is full; the slot is released then
    /// too.
    pub(crate) fn park(self) -> Option<Parked> {
        let is_parked = self.turns.lock().line.park(&self.user);
        is_parked.then(|| Parked { turns: self.turns.clone(), user: self.user.clone() })
    }
}

impl Parked {
    pub(crate) fn enter(self) -> Option<Admission> {
        let mut held = self.turns.lock();
        let entered = held.line.enter_again(&self.user);
        self.turns.admit(&mut held, &self.user, entered)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.turns.lock().line.unpark(&self.user);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut held = self.turns.lock();
        let called = held.line.release(&self.user);
        let calls = held.take(&called);
        drop(held);
        self.turns.call(calls);
    }
}

impl QueueTicket {
    /// Waits for a slot. The queue keeps the sender as long as this exec waits, so `None` is not
    /// expected.
    pub(crate) async fn turn(&mut self) -> Option<Slot> {
        (&mut self.call).await.ok()
    }
}

impl Drop for QueueTicket {
    /// A slot that was sent but not received is dropped with the channel, which releases it.
    fn drop(&mut self) {
        let mut held = self.turns.lock();
        held.line.leave(&self.user, self.ticket);
        held.calls.remove(&self.ticket);
        held.users.remove(&self.ticket);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
