//! The rules of the pool as a pure state machine: which waiter gets which box, what to start and
//! what to end.
//!
//! It has no clock, lock or task. The time is an argument, and the work to do is returned as
//! [`Step`]s. A slot counts from the step that starts a box until that box is gone, so there are
//! never more boxes than slots. Every operation ends in `rebalance`, which rebalances the pool.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::demand::Demand;
use super::{Bounds, Figures, PoolKind, WarmFigures};

/// Time since the pool was created.
pub(super) type Moment = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberId(pub(super) u64);

/// Identifies one request, from waiting through making to using a box. Older tickets are smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// What to do if another request uses the box.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum OnBusy {
    #[default]
    Wait,
    Fail,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Member<Key, Kind> {
    pub(super) role: Role<Key, Kind>,
    pub(super) state: State,
    pub(super) uses: u32,
    /// Number of [`super::Hold`]s; the box is not idle while there are any.
    pub(super) holds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Role<Key, Kind> {
    Session(Key),
    WarmBox(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Being made. `by` is the request that makes a session box, unless it was cancelled.
    Warming {
        by: Option<Ticket>,
    },
    Idle {
        since: Moment,
    },
    /// Assigned to a request that has not taken it yet.
    Acquiring {
        by: Ticket,
    },
    Busy {
        by: Ticket,
    },
    Ending,
}

/// Work that the caller must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step<Kind> {
    Serve(Ticket, Turn),
    MakeWarmBox(MemberId, Kind),
    End(MemberId),
}

/// The answer to a request for a session box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// Take it with [`Slots::take`].
    Have(MemberId),
    /// Make it and report [`Slots::made`] or [`Slots::failed`].
    Make(MemberId),
    /// Another request uses it, and this one does not wait.
    Busy,
    /// The pool has stopped.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Course {
    Open,
    Stopping,
}

/// Counts requests that found a box ready and those that did not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    hits: u64,
    misses: u64,
}

/// Invariant: a request waits only if no box or slot can be given to it.
#[derive(Debug, Clone)]
pub(super) struct Slots<Key, Kind> {
    pub(super) bounds: Bounds,
    pub(super) members: BTreeMap<MemberId, Member<Key, Kind>>,
    pub(super) sessions: BTreeMap<Key, MemberId>,
    /// Requests that wait, per session. No queue is empty.
    pub(super) queues: BTreeMap<Key, VecDeque<Ticket>>,
    pub(super) demand: Demand<Kind>,
    pub(super) course: Course,
    sessions_found: Found,
    pub(super) warm_boxes_found: Found,
    next_member: u64,
    next_ticket: u64,
}

impl<Key: Clone + Ord, Kind: PoolKind> Slots<Key, Kind> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            queues: BTreeMap::new(),
            demand: Demand::new(bounds.min_instances),
            course: Course::Open,
            sessions_found: Found::default(),
            warm_boxes_found: Found::default(),
            next_member: 0,
            next_ticket: 0,
        }
    }

    pub(super) fn figures(&self) -> Figures {
        let count = |is: fn(&Member<Key, Kind>) -> bool| {
            u32::try_from(self.members.values().filter(|member| is(member)).count()).unwrap_or(u32::MAX)
        };
        let warming = count(|member| matches!(member.state, State::Warming { .. }));
        let idle = count(Member::is_free);
        let total = self.total();
        let (sessions, warm_boxes) = (self.sessions_found, self.warm_boxes_found);
        Figures {
            total,
            busy: total - warming - idle,
            idle,
            warming,
            max: self.bounds.max_instances,
            hits: sessions.hits + warm_boxes.hits,
            misses: sessions.misses + warm_boxes.misses,
            warm_boxes: WarmFigures {
                idle: count(|member| member.is_warm() && member.is_free()),
                warming: self.warm_boxes_starting(),
                hits: warm_boxes.hits,
                misses: warm_boxes.misses,
            },
        }
    }

    /// Requests the box of a session. The answer is a [`Step::Serve`], now or later.
    pub(super) fn acquire(&mut self, key: &Key, on_busy: OnBusy, now: Moment) -> (Ticket, Vec<Step<Kind>>) {
        let ticket = self.ticket();
        if self.course == Course::Stopping {
            return (ticket, vec![Step::Serve(ticket, Turn::Stopped)]);
        }
        if on_busy == OnBusy::Fail && !self.could_be_served(key) {
            return (ticket, vec![Step::Serve(ticket, Turn::Busy)]);
        }
        let is_hit = self.session(key).is_some_and(|member| member.idle_since().is_some());
        self.sessions_found.count(is_hit);
        self.queues.entry(key.clone()).or_default().push_back(ticket);
        (ticket, self.rebalance(now))
    }

    /// Takes an assigned box. False if the box has died since; another [`Turn`] follows.
    pub(super) fn take(&mut self, ticket: Ticket, id: MemberId) -> bool {
        match self.members.get_mut(&id) {
            Some(member) if member.state == (State::Acquiring { by: ticket }) => {
                member.state = State::Busy { by: ticket };
                true
            }
            Some(_) | None => false,
        }
    }

    /// True if this request uses the box.
    pub(super) fn has(&self, ticket: Ticket, id: MemberId) -> bool {
        self.members.get(&id).is_some_and(|member| member.state == State::Busy { by: ticket })
    }

    /// Cancels a request in any state. A box that it makes is still made, unless [`Slots::failed`]
    /// is reported.
    pub(super) fn cancel(&mut self, ticket: Ticket, now: Moment) -> Vec<Step<Kind>> {
        for queue in self.queues.values_mut() {
            queue.retain(|other| *other != ticket);
        }
        self.queues.retain(|_, queue| !queue.is_empty());
        for member in self.members.values_mut() {
            match member.state {
                State::Warming { by: Some(by) } if by == ticket => member.state = State::Warming { by: None },
                State::Acquiring { by } | State::Busy { by } if by == ticket => {
                    member.state = State::Idle { since: now }
                }
                State::Warming { .. }
                | State::Acquiring { .. }
                | State::Idle { .. }
                | State::Busy { .. }
                | State::Ending => {}
            }
        }
        self.rebalance(now)
    }

    /// A box is ready. A session box goes to the request that made it, or, if that was cancelled,
    /// to the next waiter. Without a waiter it ends.
    pub(super) fn made(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        let State::Warming { by } = member.state else { return Vec::new() };
        member.state = State::Idle { since: now };
        let is_wanted = match (&member.role, by) {
            (Role::WarmBox(kind), _) => {
                self.demand.made(kind);
                true
            }
            (Role::Session(_), Some(by)) => {
                member.state = State::Busy { by };
                true
            }
            (Role::Session(key), None) => self.queues.contains_key(key),
        };
        let ending = if is_wanted && self.course == Course::Open { None } else { self.end(id) };
        let mut steps: Vec<_> = ending.into_iter().collect();
        steps.extend(self.rebalance(now));
        steps
    }

    /// A box could not be made. Its slot is free, and other requests for the session make their own
    /// attempt.
    pub(super) fn failed(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        match self.members.get(&id) {
            Some(Member { state: State::Warming { .. }, role, .. }) => {
                if let Role::WarmBox(kind) = role {
                    self.demand.failed(kind, now);
                }
                self.forget(id);
                self.rebalance(now)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Ends the use of a box.
    pub(super) fn release(&mut self, ticket: Ticket, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        if member.state != (State::Busy { by: ticket }) {
            return Vec::new();
        }
        member.uses = member.uses.saturating_add(1);
        member.state = State::Idle { since: now };
        let mut steps: Vec<_> = self.end_if_worn(id).into_iter().collect();
        steps.extend(self.rebalance(now));
        steps
    }

    /// Adds a hold: until it is released the box is neither idle nor replaced.
    pub(super) fn hold(&mut self, id: MemberId) -> bool {
        match self.members.get_mut(&id) {
            Some(member) if !matches!(member.state, State::Warming { .. } | State::Ending) => {
                member.holds += 1;
                true
            }
            Some(_) | None => false,
        }
    }

    pub(super) fn release_hold(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        member.holds = member.holds.saturating_sub(1);
        if let (State::Idle { .. }, 0) = (member.state, member.holds) {
            member.state = State::Idle { since: now };
        }
        let mut steps: Vec<_> = self.end_if_worn(id).into_iter().collect();
        steps.extend(self.rebalance(now));
        steps
    }

    /// A box has died, also while it is used.
    pub(super) fn died(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let mut steps: Vec<_> = self.end(id).into_iter().collect();
        steps.extend(self.rebalance(now));
        steps
    }

    /// Ends the box of a session, also while it is used.
    pub(super) fn dismiss(&mut self, key: &Key, now: Moment) -> Vec<Step<Kind>> {
        let Some(id) = self.sessions.get(key).copied() else { return Vec::new() };
        // The request that makes it loses it, and no other request gets it.
        if let Some(Member { state: State::Warming { by }, .. }) = self.members.get_mut(&id) {
            *by = None;
        }
        self.died(id, now)
    }

    /// The last process of an ending box is gone.
    pub(super) fn ended(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        if self.members.get(&id).is_some_and(|member| member.state == State::Ending) {
            self.forget(id);
        }
        self.rebalance(now)
    }

    /// Ends boxes that were idle too long and starts warm boxes that are due.
    pub(super) fn tick(&mut self, now: Moment) -> Vec<Step<Kind>> {
        let idle_timeout = self.bounds.idle_timeout;
        let is_old = |member: &Member<Key, Kind>| {
            let since = member.idle_since().filter(|_| member.is_free());
            since.is_some_and(|since| now.saturating_sub(since) >= idle_timeout)
        };
        let old: Vec<MemberId> = self.members.iter().filter(|(_, member)| is_old(member)).map(|(id, _)| *id).collect();
        if let Some(moment) = now.checked_sub(idle_timeout) {
            self.demand.forget_before(moment);
        }
        let mut steps = Vec::new();
        for id in old {
            match self.members.get(&id).map(|member| &member.role) {
                // Lowers the wanted number; `rebalance` then ends a surplus box.
                Some(Role::WarmBox(kind)) => self.demand.unused(kind),
                Some(Role::Session(_)) | None => steps.extend(self.end(id)),
            }
        }
        steps.extend(self.rebalance(now));
        steps
    }

    /// The next time at which [`Slots::tick`] has something to do.
    pub(super) fn next_tick(&self, now: Moment) -> Option<Moment> {
        let may_expire = |member: &&Member<Key, Kind>| match &member.role {
            Role::Session(_) => true,
            Role::WarmBox(kind) => self.demand.is_above_least(kind),
        };
        let idle = self.members.values().filter(|member| member.is_free()).filter(may_expire);
        let since = idle.filter_map(Member::idle_since).chain(self.demand.oldest()).min();
        let expiry = since.map(|since| since + self.bounds.idle_timeout);
        let making = self.next_to_make(now).map(|(moment, _)| moment);
        expiry.into_iter().chain(making).min()
    }

    pub(super) fn set_bounds(&mut self, bounds: Bounds, now: Moment) -> Vec<Step<Kind>> {
        self.bounds = bounds;
        self.demand.set_least(bounds.min_instances, now);
        self.rebalance(now)
    }

    /// Keeps warm boxes of this kind ready without demand.
    pub(super) fn keep(&mut self, kind: Option<Kind>, now: Moment) -> Vec<Step<Kind>> {
        self.demand.keep(kind, now);
        self.rebalance(now)
    }

    /// Stops the pool. Boxes that are being made end as soon as they are ready.
    pub(super) fn stop(&mut self, now: Moment) -> Vec<Step<Kind>> {
        self.course = Course::Stopping;
        let waiting: Vec<Ticket> = std::mem::take(&mut self.queues).into_values().flatten().collect();
        let called = self.members.values().filter_map(|member| match member.state {
            State::Acquiring { by } => Some(by),
            State::Warming { .. } | State::Idle { .. } | State::Busy { .. } | State::Ending => None,
        });
        let refused = waiting.into_iter().chain(called);
        let mut steps: Vec<_> = refused.map(|ticket| Step::Serve(ticket, Turn::Stopped)).collect();
        let ids: Vec<MemberId> = self.members.keys().copied().collect();
        steps.extend(ids.into_iter().filter_map(|id| self.end(id)));
        steps.extend(self.rebalance(now));
        steps
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn total(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    fn session(&self, key: &Key) -> Option<&Member<Key, Kind>> {
        self.sessions.get(key).and_then(|id| self.members.get(id))
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    pub(super) fn add(&mut self, role: Role<Key, Kind>, by: Option<Ticket>) -> MemberId {
        self.next_member += 1;
        let id = MemberId(self.next_member);
        if let Role::Session(key) = &role {
            self.sessions.insert(key.clone(), id);
        }
        self.members.insert(id, Member { role, state: State::Warming { by }, uses: 0, holds: 0 });
        id
    }

    pub(super) fn forget(&mut self, id: MemberId) {
        if let Some(Member { role: Role::Session(key), .. }) = self.members.remove(&id) {
            self.sessions.remove(&key);
        }
    }

    /// Starts to end a box, unless it is ending or still being made. A request to which it was
    /// assigned becomes the first waiter again.
    pub(super) fn end(&mut self, id: MemberId) -> Option<Step<Kind>> {
        let member = self.members.get_mut(&id)?;
        match member.state {
            State::Warming { .. } | State::Ending => return None,
            State::Idle { .. } | State::Busy { .. } => {}
            State::Acquiring { by } => {
                if let (Role::Session(key), Course::Open) = (&member.role, self.course) {
                    self.queues.entry(key.clone()).or_default().push_front(by);
                }
            }
        }
        member.state = State::Ending;
        Some(Step::End(id))
    }

    fn end_if_worn(&mut self, id: MemberId) -> Option<Step<Kind>> {
        let member = self.members.get(&id)?;
        let is_worn = member.uses >= self.bounds.max_use_count && member.is_free();
        if is_worn { self.end(id) } else { None }
    }
}

/// Rebalancing.
impl<Key: Clone + Ord, Kind: PoolKind> Slots<Key, Kind> {
    /// Rebalances the pool after each event: hands idle boxes to waiters, gives free slots to the
    /// oldest waiter, evicts idle boxes, refills warm boxes. Every operation changes one thing and then
    /// calls this.
    fn rebalance(&mut self, now: Moment) -> Vec<Step<Kind>> {
        let mut steps = Vec::new();
        if self.course == Course::Stopping {
            return steps;
        }
        self.end_unwanted(&mut steps);
        self.serve_sessions(&mut steps);
        self.assign_slots(&mut steps);
        self.keep_below_max(&mut steps);
        self.refill(now, &mut steps);
        steps
    }

    /// True if a new request for this session would wait only for the pool's own work and not for
    /// another user of the box.
    pub(super) fn could_be_served(&self, key: &Key) -> bool {
        if self.queues.contains_key(key) {
            return false;
        }
        let will_be_room =
            || self.total() < self.bounds.max_instances || self.victim().is_some() || self.will_have_slots(1);
        match self.sessions.get(key).and_then(|id| self.members.get(id)).map(|member| member.state) {
            Some(State::Idle { .. }) => true,
            Some(State::Warming { .. } | State::Acquiring { .. } | State::Busy { .. }) => false,
            Some(State::Ending) | None => will_be_room(),
        }
    }

    /// Assigns each idle session box to its first waiter.
    fn serve_sessions(&mut self, steps: &mut Vec<Step<Kind>>) {
        let waiting: Vec<Key> = self.queues.keys().cloned().collect();
        for key in waiting {
            let Some(id) = self.sessions.get(&key).copied() else { continue };
            let is_idle = self.members.get(&id).is_some_and(|member| member.idle_since().is_some());
            if is_idle && let Some(by) = self.pop_waiter(&key) {
                if let Some(member) = self.members.get_mut(&id) {
                    member.state = State::Acquiring { by };
                }
                steps.push(Step::Serve(by, Turn::Have(id)));
            }
        }
    }

    /// Gives slots to sessions without a box, oldest request first. If all slots are taken, an idle
    /// box is evicted.
    fn assign_slots(&mut self, steps: &mut Vec<Step<Kind>>) {
        while let Some(key) = self.next_without_box() {
            if self.total() < self.bounds.max_instances {
                let Some(by) = self.pop_waiter(&key) else { break };
                let id = self.add(Role::Session(key), Some(by));
                steps.push(Step::Serve(by, Turn::Make(id)));
            } else if self.will_have_slots(0) {
                break;
            } else if let Some(id) = self.victim() {
                steps.extend(self.end(id));
            } else {
                break;
            }
        }
    }

    /// Evicts idle boxes after `max_instances` was lowered.
    fn keep_below_max(&mut self, steps: &mut Vec<Step<Kind>>) {
        while self.total().saturating_sub(self.ending()) > self.bounds.max_instances {
            let Some(id) = self.victim() else { break };
            steps.extend(self.end(id));
        }
    }

    /// The cheapest box to evict: the oldest idle warm box, then the session box that was idle
    /// longest.
    fn victim(&self) -> Option<MemberId> {
        let rank = |member: &Member<Key, Kind>| match (&member.role, member.state) {
            (Role::WarmBox(_), State::Idle { since }) => Some((0, since)),
            (Role::Session(_), State::Idle { since }) if member.is_free() => Some((1, since)),
            (Role::WarmBox(_) | Role::Session(_), _) => None,
        };
        let ranked = self.members.iter().filter_map(|(id, member)| Some((rank(member)?, *id)));
        ranked.min().map(|(_, id)| id)
    }

    /// The session without a box whose first waiter is oldest.
    pub(super) fn next_without_box(&self) -> Option<Key> {
        let without = self.queues.iter().filter(|(key, _)| !self.sessions.contains_key(key));
        without.min_by_key(|(_, queue)| queue.front().copied()).map(|(key, _)| key.clone())
    }

    fn pop_waiter(&mut self, key: &Key) -> Option<Ticket> {
        let queue = self.queues.get_mut(key)?;
        let next = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(key);
        }
        next
    }

    /// True if the slots that are becoming free suffice for the waiting sessions and `newcomers`
    /// more. A session whose own box is ending waits for that slot. A warm box that is still being
    /// made is evicted when it is ready.
    fn will_have_slots(&self, newcomers: usize) -> bool {
        let becoming_free = self.ending().saturating_add(self.warm_boxes_starting());
        let wait_for_slot = self.queues.keys().filter(|key| match self.sessions.get(key) {
            Some(id) => self.members.get(id).is_some_and(|member| member.state == State::Ending),
            None => true,
        });
        becoming_free as usize >= wait_for_slot.count() + newcomers
    }

    fn ending(&self) -> u32 {
        let ending = self.members.values().filter(|member| member.state == State::Ending);
        u32::try_from(ending.count()).unwrap_or(u32::MAX)
    }
}

/// Number of warm boxes of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    waiting: usize,
    being_made: usize,
}

/// Warm boxes. Sessions come first: no warm box is made while a session waits for a slot. Each start
/// takes CPU from running execs, so boxes are made one after another, after the pause of their kind.
impl<Key: Clone + Ord, Kind: PoolKind> Slots<Key, Kind> {
    /// Takes a living warm box of this kind, newest first, so that surplus boxes become the oldest
    /// ones and expire. The box leaves the pool.
    pub(super) fn take_warm_box(
        &mut self,
        kind: &Kind,
        lives: impl Fn(MemberId) -> bool,
        now: Moment,
    ) -> (Option<MemberId>, Vec<Step<Kind>>) {
        if self.course == Course::Stopping {
            return (None, Vec::new());
        }
        let Some(kind) = self.demand.ask(kind, now) else { return (None, Vec::new()) };
        let mut steps = Vec::new();
        let taken = loop {
            match self.newest_warm_box(&kind) {
                Some(id) if lives(id) => break Some(id),
                Some(dead) => steps.extend(self.end(dead)),
                None => break None,
            }
        };
        self.warm_boxes_found.count(taken.is_some());
        match taken {
            Some(id) => self.forget(id),
            None => self.demand.missed(&kind, self.bounds.max_instances),
        }
        steps.extend(self.rebalance(now));
        (taken, steps)
    }

    /// Ends the oldest warm boxes beyond the wanted number.
    pub(super) fn end_unwanted(&mut self, steps: &mut Vec<Step<Kind>>) {
        let kinds = self.demand.kinds();
        let mut wanted: Vec<u32> = kinds.iter().map(|demand| demand.wanted).collect();
        let mut unwanted = Vec::new();
        for (id, member) in self.members.iter().rev().filter(|(_, member)| member.state != State::Ending) {
            let Role::WarmBox(kind) = &member.role else { continue };
            let of = kinds.iter().position(|demand| demand.kind == *kind);
            match of.and_then(|of| wanted.get_mut(of)) {
                Some(wanted) if *wanted > 0 => *wanted -= 1,
                Some(_) | None if member.is_free() => unwanted.push(*id),
                // Still being made; the next call ends it.
                Some(_) | None => {}
            }
        }
        unwanted.reverse();
        for id in unwanted {
            steps.extend(self.end(id));
        }
    }

    pub(super) fn refill(&mut self, now: Moment, steps: &mut Vec<Step<Kind>>) {
        while let Some((moment, kind)) = self.next_to_make(now)
            && moment <= now
        {
            let id = self.add(Role::WarmBox(kind.clone()), None);
            steps.push(Step::MakeWarmBox(id, kind));
        }
    }

    /// The kind to make next and when: earliest first, then the kind with the fewest boxes.
    pub(super) fn next_to_make(&self, now: Moment) -> Option<(Moment, Kind)> {
        let is_full = self.total() >= self.bounds.max_instances;
        let is_busy = self.next_without_box().is_some() || self.warm_boxes_starting() > 0;
        if self.course == Course::Stopping || is_full || is_busy {
            return None;
        }
        let kinds = self.demand.kinds();
        let mut ready = vec![Ready::default(); kinds.len()];
        for member in self.members.values() {
            let Role::WarmBox(kind) = &member.role else { continue };
            let of = kinds.iter().position(|demand| demand.kind == *kind);
            let Some(ready) = of.and_then(|of| ready.get_mut(of)) else { continue };
            match member.state {
                State::Idle { .. } => ready.waiting += 1,
                State::Warming { .. } => ready.being_made += 1,
                State::Acquiring { .. } | State::Busy { .. } | State::Ending => {}
            }
        }
        let lacking = kinds.iter().zip(ready).filter_map(|(demand, ready)| {
            let count = ready.waiting + ready.being_made;
            let moment = self.demand.not_before(demand, demand.kind.pause(ready.waiting)).max(now);
            (count < demand.wanted as usize).then_some((moment, count, &demand.kind))
        });
        let next = lacking.min_by_key(|(moment, count, _)| (*moment, *count));
        next.map(|(moment, _, kind)| (moment, kind.clone()))
    }

    pub(super) fn warm_boxes_starting(&self) -> u32 {
        let is_being_made =
            |member: &&Member<Key, Kind>| member.is_warm() && matches!(member.state, State::Warming { .. });
        u32::try_from(self.members.values().filter(is_being_made).count()).unwrap_or(u32::MAX)
    }

    fn newest_warm_box(&self, kind: &Kind) -> Option<MemberId> {
        let waits =
            |member: &Member<Key, Kind>| member.is_free() && matches!(&member.role, Role::WarmBox(own) if own == kind);
        self.members.iter().rev().find(|(_, member)| waits(member)).map(|(id, _)| *id)
    }
}

impl<Key, Kind> Member<Key, Kind> {
    pub(super) fn is_warm(&self) -> bool {
        matches!(self.role, Role::WarmBox(_))
    }

    /// Idle and without holds.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, State::Idle { .. }) && self.holds == 0
    }

    pub(super) fn idle_since(&self) -> Option<Moment> {
        match self.state {
            State::Idle { since } => Some(since),
            State::Warming { .. } | State::Acquiring { .. } | State::Busy { .. } | State::Ending => None,
        }
    }
}

impl Found {
    pub(super) fn count(&mut self, is_hit: bool) {
        if is_hit { self.hits += 1 } else { self.misses += 1 }
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
