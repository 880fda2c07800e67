//! Admission queue: bounds how many execs run at once, in total and per user, and how many wait.
//!
//! Scheduling is FIFO within a user and round robin between users: of 100 waiting execs of one
//! user, at most one starts before another user's first. A user without a waiting exec may queue
//! one even if the queue is full, unless `max_waiting` is 0, so that one user cannot fill the queue
//! for all others.
//!
//! [`Schedule`] is the pure rule and is tested against a reference model. [`ExecQueue`] adds the
//! lock and the channels for tasks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_ids::UserId;
use tokio::sync::oneshot;

use crate::settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    pub(crate) max_running: u32,
    pub(crate) max_running_per_user: u32,
    /// Exceeded by at most one exec per user; 0 disables waiting.
    pub(crate) max_waiting: u32,
    pub(crate) max_waiting_per_user: u32,
}

impl From<&Settings> for QueueLimits {
    fn from(settings: &Settings) -> Self {
        let sandbox = &settings.sandbox;
        Self {
            max_running: sandbox.max_concurrent_execs.get(),
            max_running_per_user: sandbox.max_concurrent_execs_per_user.get(),
            max_waiting: sandbox.max_queued_execs.get(),
            max_waiting_per_user: u32::MAX,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct QueueCounts {
    pub(crate) running: u32,
    /// Parked execs included.
    pub(crate) waiting: u32,
}

#[derive(Debug)]
pub(crate) struct ExecQueue {
    schedule: Mutex<Schedule<oneshot::Sender<Slot>>>,
}

#[derive(Debug)]
pub(crate) enum Admission {
    Immediate(Slot),
    Queued(QueueTicket),
}

/// Permission to run one exec. Dropping it hands the slot to the next waiting exec.
#[derive(Debug)]
pub(crate) struct Slot {
    queue: Arc<ExecQueue>,
    user: UserId,
}

/// A position in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct QueueTicket {
    queue: Arc<ExecQueue>,
    user: UserId,
    waiter: WaiterId,
    slot: oneshot::Receiver<Slot>,
}

/// An exec that released its slot while it waits for something else. It counts as waiting and gets
/// no slot until it enters again.
#[derive(Debug)]
pub(crate) struct Parked {
    queue: Arc<ExecQueue>,
    user: UserId,
}

impl ExecQueue {
    pub(crate) fn new(limits: QueueLimits) -> Arc<Self> {
        Arc::new(Self { schedule: Mutex::new(Schedule::new(limits)) })
    }

    /// Takes a slot if the limits allow it, otherwise a position in the queue. `None` if the queue
    /// is full.
    pub(crate) fn enter(self: &Arc<Self>, user: &UserId) -> Option<Admission> {
        let mut schedule = self.schedule.lock();
        if !schedule.starts(user) && schedule.is_full_for(user) {
            return None;
        }
        Some(self.admit(&mut schedule, user, VecDeque::push_back))
    }

    fn admit(
        self: &Arc<Self>,
        schedule: &mut Schedule<oneshot::Sender<Slot>>,
        user: &UserId,
        push: Push<oneshot::Sender<Slot>>,
    ) -> Admission {
        let (queue, user) = (self.clone(), user.clone());
        if schedule.try_start(&user) {
            return Admission::Immediate(Slot { queue, user });
        }
        let (sender, slot) = oneshot::channel();
        let waiter = schedule.enqueue(&user, sender, push);
        Admission::Queued(QueueTicket { queue, user, waiter, slot })
    }

    /// Lowered limits stop no exec and remove none from the queue; they apply to later ones.
    pub(crate) fn set_limits(self: &Arc<Self>, limits: QueueLimits) {
        let started = self.schedule.lock().set_limits(limits);
        self.hand_out(started);
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        self.schedule.lock().counts()
    }

    /// Omits users with neither a running nor a waiting exec.
    pub(crate) fn counts_by_user(&self) -> HashMap<UserId, QueueCounts> {
        self.schedule.lock().counts_by_user()
    }

    /// Call without holding the lock: `send` returns the slot if the ticket was dropped meanwhile,
    /// and dropping that slot locks the schedule again.
    fn hand_out(self: &Arc<Self>, started: Vec<(UserId, oneshot::Sender<Slot>)>) {
        for (user, ticket) in started {
            drop(ticket.send(Slot { queue: self.clone(), user }));
        }
    }
}

impl QueueTicket {
    /// Waits for a slot. The queue keeps the sender while a ticket exists, so `None` is not
    /// expected.
    pub(crate) async fn wait(mut self) -> Option<Slot> {
        (&mut self.slot).await.ok()
    }
}

impl Drop for QueueTicket {
    /// A slot that was already sent to this ticket is dropped with the channel and thereby released.
    fn drop(&mut self) {
        self.queue.schedule.lock().leave(&self.user, self.waiter);
    }
}

impl Slot {
    /// Releases the slot for other execs. `None` if the queue is full; the slot is released then
    /// too.
    pub(crate) fn park(self) -> Option<Parked> {
        let is_parked = self.queue.schedule.lock().park(&self.user);
        is_parked.then(|| Parked { queue: self.queue.clone(), user: self.user.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let started = self.queue.schedule.lock().release(&self.user);
        self.queue.hand_out(started);
    }
}

impl Parked {
    /// Takes a slot or the first position of its user, whose other waiting execs came later. It was
    /// counted when it was parked, so no limit refuses it here.
    pub(crate) fn enter(self) -> Admission {
        self.queue.admit(&mut self.queue.schedule.lock(), &self.user, VecDeque::push_front)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.queue.schedule.lock().unpark(&self.user);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaiterId(u64);

/// Adds a waiting exec to its user's others: behind or before them.
type Push<W> = fn(&mut VecDeque<(WaiterId, W)>, (WaiterId, W));

/// The scheduling rule, without clock, lock or tasks. `W` is stored with each waiting exec and
/// returned when that exec starts.
///
/// Invariant between calls: no waiting exec could start, because all slots are taken or its user
/// runs `max_running_per_user` execs.
#[derive(Debug)]
struct Schedule<W> {
    limits: QueueLimits,
    /// No count is 0.
    running: HashMap<UserId, u32>,
    /// Oldest exec first; no list is empty.
    waiting: HashMap<UserId, VecDeque<(WaiterId, W)>>,
    /// No count is 0.
    parked: HashMap<UserId, u32>,
    /// The keys of `waiting`, each once, in the order in which they get the next slot.
    rotation: VecDeque<UserId>,
    next_waiter: u64,
}

impl<W> Schedule<W> {
    fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            running: HashMap::new(),
            waiting: HashMap::new(),
            parked: HashMap::new(),
            rotation: VecDeque::new(),
            next_waiter: 0,
        }
    }

    /// Starts an exec if the limits allow it. By the invariant this overtakes no waiting exec.
    fn try_start(&mut self, user: &UserId) -> bool {
        let starts = self.starts(user);
        if starts {
            *self.running.entry(user.clone()).or_default() += 1;
        }
        starts
    }

    fn starts(&self, user: &UserId) -> bool {
        self.total_running() < self.limits.max_running && self.is_below_user_limit(user)
    }

    fn is_below_user_limit(&self, user: &UserId) -> bool {
        self.running.get(user).is_none_or(|count| *count < self.limits.max_running_per_user)
    }

    fn is_full_for(&self, user: &UserId) -> bool {
        let (own, max) = (self.waiting_of(user), self.limits.max_waiting);
        let is_full = self.total_waiting() >= max && (own > 0 || max == 0);
        is_full || own >= self.limits.max_waiting_per_user
    }

    fn enqueue(&mut self, user: &UserId, waiter: W, push: Push<W>) -> WaiterId {
        let id = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        let own = self.waiting.entry(user.clone()).or_default();
        if own.is_empty() {
            self.rotation.push_back(user.clone());
        }
        push(own, (id, waiter));
        id
    }

    /// Removes a waiting exec. Does nothing if it has started.
    fn leave(&mut self, user: &UserId, waiter: WaiterId) {
        let Some(own) = self.waiting.get_mut(user) else { return };
        own.retain(|(id, _)| *id != waiter);
        if own.is_empty() {
            self.waiting.remove(user);
            self.rotation.retain(|other| other != user);
        }
    }

    /// Counts an exec that is about to release its slot as waiting. False if the queue is full.
    fn park(&mut self, user: &UserId) -> bool {
        let is_full = self.is_full_for(user);
        if !is_full {
            *self.parked.entry(user.clone()).or_default() += 1;
        }
        !is_full
    }

    fn unpark(&mut self, user: &UserId) {
        decrement(&mut self.parked, user);
    }

    /// Frees a slot of `user` and returns the execs that start now.
    fn release(&mut self, user: &UserId) -> Vec<(UserId, W)> {
        decrement(&mut self.running, user);
        self.start_waiting()
    }

    /// Changes the limits and returns the execs that start now.
    fn set_limits(&mut self, limits: QueueLimits) -> Vec<(UserId, W)> {
        self.limits = limits;
        self.start_waiting()
    }

    fn start_waiting(&mut self) -> Vec<(UserId, W)> {
        let mut started = Vec::new();
        while self.total_running() < self.limits.max_running {
            let Some(index) = self.rotation.iter().position(|user| self.is_below_user_limit(user)) else { break };
            let Some(user) = self.rotation.remove(index) else { break };
            let Some(own) = self.waiting.get_mut(&user) else { continue };
            let Some((_, waiter)) = own.pop_front() else { continue };
            if own.is_empty() {
                self.waiting.remove(&user);
            } else {
                self.rotation.push_back(user.clone());
            }
            *self.running.entry(user.clone()).or_default() += 1;
            started.push((user, waiter));
        }
        started
    }

    fn total_running(&self) -> u32 {
        self.running.values().sum()
    }

    fn total_waiting(&self) -> u32 {
        let waiting = self.waiting.values().map(|own| saturating_u32(own.len()));
        waiting.chain(self.parked.values().copied()).sum()
    }

    fn counts(&self) -> QueueCounts {
        QueueCounts { running: self.total_running(), waiting: self.total_waiting() }
    }

    fn waiting_of(&self, user: &UserId) -> u32 {
        let waiting = self.waiting.get(user).map_or(0, |own| saturating_u32(own.len()));
        waiting + self.parked.get(user).copied().unwrap_or_default()
    }

    fn counts_by_user(&self) -> HashMap<UserId, QueueCounts> {
        let users = self.running.keys().chain(self.waiting.keys()).chain(self.parked.keys());
        let counts = |user| {
            let running = self.running.get(user).copied().unwrap_or_default();
            QueueCounts { running, waiting: self.waiting_of(user) }
        };
        users.map(|user| (user.clone(), counts(user))).collect()
    }
}

fn decrement(counts: &mut HashMap<UserId, u32>, user: &UserId) {
    if let Some(count) = counts.get_mut(user) {
        *count -= 1;
        if *count == 0 {
            counts.remove(user);
        }
    }
}

fn saturating_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
