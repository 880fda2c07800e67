//! The rule of the pool: which box is whose, who waits for one, what has to be made and what has to end.
//!
//! No clock, no lock, no task: the time is an argument, and what the rule wants done comes back as [`Step`]s. Every place
//! is counted from the moment in which somebody is told to make a box until the moment in which that box is gone, so
//! that there are never more boxes than places. After every operation `settle` puts right what has become possible.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::bounds::Bounds;
use super::demand::Demand;
use super::figures::{Figures, SpareFigures};
use super::sort::Sort;

/// Since the pool began.
pub(super) type Moment = Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct MemberId(pub(super) u64);

/// Somebody who wants a box, has one, or makes one. Older ones are smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(pub(super) u64);

/// What somebody wants who would have to wait for somebody else.
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
    /// What goes on in it beside its uses; it is not idle meanwhile.
    pub(super) holds: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Role<Key, Kind> {
    Session(Key),
    Spare(Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// Being made; for a session's box by somebody, unless they have given up.
    Warming {
        by: Option<Ticket>,
    },
    Idle {
        since: Moment,
    },
    /// It is somebody's turn who has not come for it yet.
    Acquiring {
        by: Ticket,
    },
    Busy {
        by: Ticket,
    },
    Ending,
}

/// What is to be done, outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step<Kind> {
    Serve(Ticket, Turn),
    MakeSpare(MemberId, Kind),
    End(MemberId),
}

/// What somebody who wanted a session's box gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    /// To be taken with [`Places::take`].
    Have(MemberId),
    /// To be made, and told by [`Places::made`] or [`Places::failed`].
    Make(MemberId),
    /// Somebody else has it, and this one does not wait.
    Busy,
    /// There are no boxes any more.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Course {
    Open,
    Stopping,
}

/// How often somebody found a box that was ready, and how often not.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Found {
    hits: u64,
    misses: u64,
}

/// Nobody is in a line without a reason: whoever could have a box, has it.
#[derive(Debug, Clone)]
pub(super) struct Places<Key, Kind> {
    pub(super) bounds: Bounds,
    pub(super) members: BTreeMap<MemberId, Member<Key, Kind>>,
    pub(super) sessions: BTreeMap<Key, MemberId>,
    /// Who waits for the box of which session, or for there to be one. Nobody's line is empty.
    pub(super) lines: BTreeMap<Key, VecDeque<Ticket>>,
    pub(super) demand: Demand<Kind>,
    pub(super) course: Course,
    sessions_found: Found,
    pub(super) spares_found: Found,
    next_member: u64,
    next_ticket: u64,
}

impl<Key: Clone + Ord, Kind: Sort> Places<Key, Kind> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            members: BTreeMap::new(),
            sessions: BTreeMap::new(),
            lines: BTreeMap::new(),
            demand: Demand::new(bounds.min_instances),
            course: Course::Open,
            sessions_found: Found::default(),
            spares_found: Found::default(),
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
        let (sessions, spares) = (self.sessions_found, self.spares_found);
        Figures {
            total,
            busy: total - warming - idle,
            idle,
            warming,
            max: self.bounds.max_instances,
            hits: sessions.hits + spares.hits,
            misses: sessions.misses + spares.misses,
            spares: SpareFigures {
                idle: count(|member| member.is_spare() && member.is_free()),
                warming: self.spares_being_made(),
                hits: spares.hits,
                misses: spares.misses,
            },
        }
    }

    /// Wants the box of a session. What it gets is a step, now or later.
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

    /// Comes for a box when its turn was to have it. Not so when that box has died meanwhile: then there is another turn.
    pub(super) fn take(&mut self, ticket: Ticket, id: MemberId) -> bool {
        match self.members.get_mut(&id) {
            Some(member) if member.state == (State::Acquiring { by: ticket }) => {
                member.state = State::Busy { by: ticket };
                true
            }
            Some(_) | None => false,
        }
    }

    /// Whether somebody has this box.
    pub(super) fn has(&self, ticket: Ticket, id: MemberId) -> bool {
        self.members.get(&id).is_some_and(|member| member.state == State::Busy { by: ticket })
    }

    /// Gives up, at whatever point. Who was told to make a box goes on making it, unless they say that they have failed.
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

    /// A box is made. A session's belongs to whoever made it; if they have given up, to the next, and if there is none, it
    /// ends: nothing stays of what nobody wanted in the end.
    pub(super) fn made(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let Some(member) = self.members.get_mut(&id) else { return Vec::new() };
        let State::Warming { by } = member.state else { return Vec::new() };
        member.state = State::Idle { since: now };
        let is_wanted = match (&member.role, by) {
            (Role::Spare(kind), _) => {
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

    /// A box could not be made. Its place is free; whoever else waits for this session tries for themselves.
    pub(super) fn failed(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        match self.members.get(&id) {
            Some(Member { state: State::Warming { .. }, role, .. }) => {
                if let Role::Spare(kind) = role {
                    self.demand.failed(kind, now);
                }
                self.forget(id);
                self.settle(now)
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Whoever had it is done.
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

    /// Something goes on in a box that outlasts its use: it is neither idle nor replaced until that is over.
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

    /// A box is dead, whoever has it.
    pub(super) fn died(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        let mut steps: Vec<_> = self.end(id).into_iter().collect();
        steps.extend(self.settle(now));
        steps
    }

    /// The box of a session is to end, whoever has it.
    pub(super) fn dismiss(&mut self, key: &Key, now: Moment) -> Vec<Step<Kind>> {
        let Some(id) = self.sessions.get(key).copied() else { return Vec::new() };
        // Whoever makes it has not got it when it is made, and nobody else has either.
        if let Some(Member { state: State::Warming { by }, .. }) = self.members.get_mut(&id) {
            *by = None;
        }
        self.died(id, now)
    }

    /// A box that was to end is gone.
    pub(super) fn ended(&mut self, id: MemberId, now: Moment) -> Vec<Step<Kind>> {
        if self.members.get(&id).is_some_and(|member| member.state == State::Ending) {
            self.forget(id);
        }
        self.settle(now)
    }

    /// Time has passed.
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
                // It goes when there are more than are wanted.
                Some(Role::Spare(kind)) => self.demand.unused(kind),
                Some(Role::Session(_)) | None => steps.extend(self.end(id)),
            }
        }
        steps.extend(self.settle(now));
        steps
    }

    /// The next moment at which a tick would do something.
    pub(super) fn next_tick(&self, now: Moment) -> Option<Moment> {
        let may_expire = |member: &&Member<Key, Kind>| match &member.role {
            Role::Session(_) => true,
            Role::Spare(kind) => self.demand.is_above_least(kind),
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

    /// Spares of this sort are to wait whether or not somebody asks for them.
    pub(super) fn keep(&mut self, kind: Option<Kind>, now: Moment) -> Vec<Step<Kind>> {
        self.demand.keep(kind, now);
        self.settle(now)
    }

    /// No boxes from now on. Those that are being made end when they are.
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

    /// Starts the end of a box, unless that has begun or it is not made yet. Whoever was to have it waits again, first.
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
    pub(super) fn is_spare(&self) -> bool {
        matches!(self.role, Role::Spare(_))
    }

    /// Nobody uses it, and nothing goes on in it.
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
#[path = "places_tests.rs"]
mod tests;
