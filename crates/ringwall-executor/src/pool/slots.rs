//! The rules of the pool as a pure state machine: which waiter gets which box, what to start and
//! what to end.
//!
//! It has no clock, lock or task. The time is an argument, and the work to do is returned as
//! [`Step`]s. A slot counts from the step that starts a box until that box is gone, so there are
//! never more boxes than slots. Every operation ends in `settle`, which rebalances the pool.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::bounds::Bounds;
use super::boxes::Sort;
use super::demand::Demand;
use super::figures::{Figures, WarmFigures};

/// Time since the pool was created.
pub(super) type Moment = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberId(pub(super) u64);

/// Identifies one request, from waiting through making to using a box. Older tickets are smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// What to do if another request uses the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnBusy {
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
    pub(super) lines: BTreeMap<Key, VecDeque<Ticket>>,
    pub(super) demand: Demand<Kind>,
    pub(super) course: Course,
    sessions_found: Found,
    pub(super) warm_boxes_found: Found,
    next_member: u64,
    next_ticket: u64,
}

impl<Key: Clone + Ord, Kind: Sort> Slots<Key, Kind> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            lines: BTreeMap::new(),
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
        if on_busy == OnBusy::Fail && !self.could_have(key) {
            return (ticket, vec![Step::Serve(ticket, Turn::Busy)]);
        }
        let is_hit = self.session(key).is_some_and(|member| member.idle_since().is_some());
        self.sessions_found.count(is_hit);
        self.lines.entry(key.clone()).or_default().push_back(ticket);
        (ticket, self.settle(now))
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
        for line in self.lines.values_mut() {
            line.retain(|other| *other != ticket);
        }
        self.lines.retain(|_, line| !line.is_empty());
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
        self.settle(now)
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
            (Role::Session(key), None) => self.lines.contains_key(key),
        };
        let ending = if is_wanted && self.course == Course::Open { None } else { self.end(id) };
        let mut steps: Vec<_> = ending.into_iter().collect();
        steps.extend(self.settle(now));
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
                self.settle(now)
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
        steps.extend(self.settle(now));
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

    pub(super) fn let_go(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        member.holds = member.holds.saturating_sub(1);
        if let (State::Idle { .. }, 0) = (member.state, member.holds) {
            member.state = State::Idle { since: now };
        }
        let mut steps: Vec<_> = self.end_if_worn(id).into_iter().collect();
        steps.extend(self.settle(now));
        steps
    }

    /// A box has died, also while it is used.
    pub(super) fn died(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let mut steps: Vec<_> = self.end(id).into_iter().collect();
        steps.extend(self.settle(now));
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
        self.settle(now)
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
                // Lowers the wanted number; `settle` then ends a surplus box.
                Some(Role::WarmBox(kind)) => self.demand.unused(kind),
                Some(Role::Session(_)) | None => steps.extend(self.end(id)),
            }
        }
        steps.extend(self.settle(now));
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
        self.settle(now)
    }

    /// Keeps warm boxes of this kind ready without demand.
    pub(super) fn keep(&mut self, kind: Option<Kind>, now: Moment) -> Vec<Step<Kind>> {
        self.demand.keep(kind, now);
        self.settle(now)
    }

    /// Stops the pool. Boxes that are being made end as soon as they are ready.
    pub(super) fn stop(&mut self, now: Moment) -> Vec<Step<Kind>> {
        self.course = Course::Stopping;
        let waiting: Vec<Ticket> = std::mem::take(&mut self.lines).into_values().flatten().collect();
        let called = self.members.values().filter_map(|member| match member.state {
            State::Acquiring { by } => Some(by),
            State::Warming { .. } | State::Idle { .. } | State::Busy { .. } | State::Ending => None,
        });
        let refused = waiting.into_iter().chain(called);
        let mut steps: Vec<_> = refused.map(|ticket| Step::Serve(ticket, Turn::Stopped)).collect();
        let ids: Vec<MemberId> = self.members.keys().copied().collect();
        steps.extend(ids.into_iter().filter_map(|id| self.end(id)));
        steps.extend(self.settle(now));
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
                    self.lines.entry(key.clone()).or_default().push_front(by);
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
