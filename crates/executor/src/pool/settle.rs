//! What has become possible is done: a box that is free goes to whoever waits for it, a place that is free to whoever waits
//! longest, what is in the way of somebody ends, and what is left over becomes spares.
//!
//! Called after every operation, so that each of those changes one thing and none has to remember the others.

use super::places::{Course, Member, MemberId, Moment, Places, Role, State, Step, Ticket, Turn};

/// How many spares are made at once: they take the processors from whoever runs meanwhile.
const MADE_AT_ONCE: u32 = 2;

impl<Key: Clone + Ord, Kind: Copy + Ord> Places<Key, Kind> {
    pub(super) fn settle(&mut self, now: Moment) -> Vec<Step<Kind>> {
        let mut steps = Vec::new();
        if self.course == Course::Stopping {
            return steps;
        }
        self.serve_sessions(&mut steps);
        self.give_room(&mut steps);
        self.keep_below_max(&mut steps);
        self.refill(now, &mut steps);
        steps
    }

    /// Whether somebody who comes now for this session would have to wait for nobody but us.
    pub(super) fn could_have(&self, key: &Key) -> bool {
        if self.lines.contains_key(key) {
            return false;
        }
        let will_be_room =
            || self.total() < self.bounds.max_instances || self.victim().is_some() || self.are_enough_ending(1);
        match self.sessions.get(key).and_then(|id| self.members.get(id)).map(|member| member.state) {
            Some(State::Idle { .. }) => true,
            Some(State::Warming { .. } | State::Acquiring { .. } | State::Busy { .. }) => false,
            Some(State::Ending) | None => will_be_room(),
        }
    }

    /// The boxes of sessions that are free, to the first who waits for each.
    fn serve_sessions(&mut self, steps: &mut Vec<Step<Kind>>) {
        let waiting: Vec<Key> = self.lines.keys().cloned().collect();
        for key in waiting {
            let Some(id) = self.sessions.get(&key).copied() else { continue };
            let is_idle = self.members.get(&id).is_some_and(|member| member.idle_since().is_some());
            if is_idle && let Some(by) = self.next_of(&key) {
                if let Some(member) = self.members.get_mut(&id) {
                    member.state = State::Acquiring { by };
                }
                steps.push(Step::Serve(by, Turn::Have(id)));
            }
        }
    }

    /// Places for sessions that have no box, in the order in which somebody asked first; where none is free, something ends.
    fn give_room(&mut self, steps: &mut Vec<Step<Kind>>) {
        while let Some(key) = self.next_without_box() {
            if self.total() < self.bounds.max_instances {
                let Some(by) = self.next_of(&key) else { break };
                let id = self.add(Role::Session(key), Some(by));
                steps.push(Step::Serve(by, Turn::Make(id)));
            } else if self.are_enough_ending(0) {
                break;
            } else if let Some(id) = self.victim() {
                steps.extend(self.push_out(id));
            } else {
                break;
            }
        }
    }

    /// Where the bounds have become narrower.
    fn keep_below_max(&mut self, steps: &mut Vec<Step<Kind>>) {
        while self.total().saturating_sub(self.ending()) > self.bounds.max_instances {
            let Some(id) = self.victim() else { break };
            steps.extend(self.push_out(id));
        }
    }

    fn refill(&mut self, now: Moment, steps: &mut Vec<Step<Kind>>) {
        let kinds: Vec<Kind> = self.demand.kinds().collect();
        for kind in kinds {
            while self.lacks(kind, now) {
                let id = self.add(Role::Spare(kind), None);
                steps.push(Step::MakeSpare(id, kind));
            }
        }
    }

    fn lacks(&self, kind: Kind, now: Moment) -> bool {
        let is_ready = |member: &&Member<Key, Kind>| matches!(member.state, State::Idle { .. } | State::Warming { .. });
        let ready = self.members.values().filter(|member| member.role == Role::Spare(kind)).filter(is_ready).count();
        let is_made = |member: &&Member<Key, Kind>| {
            matches!((&member.role, member.state), (Role::Spare(_), State::Warming { .. }))
        };
        let being_made = self.members.values().filter(is_made).count();
        ready < self.demand.wanted(kind) as usize
            && being_made < MADE_AT_ONCE as usize
            && self.demand.may_make(kind, now)
            && self.total() < self.bounds.max_instances
            && self.next_without_box().is_none()
    }

    /// Takes a place from its box. A spare that serves goes on without: it is as one that was made when it was needed.
    fn push_out(&mut self, id: MemberId) -> Option<Step<Kind>> {
        match self.members.get(&id) {
            Some(Member { role: Role::Spare(_), state: State::Busy { .. }, .. }) => {
                self.forget(id);
                None
            }
            Some(_) | None => self.end(id),
        }
    }

    /// What costs least: a spare that waits, the place of one that serves, and last the session that was idle for longest.
    fn victim(&self) -> Option<MemberId> {
        let rank = |member: &Member<Key, Kind>| match (&member.role, member.state) {
            (Role::Spare(_), State::Idle { since }) => Some((0, since)),
            (Role::Spare(_), State::Busy { .. }) => Some((1, Moment::ZERO)),
            (Role::Session(_), State::Idle { since }) if member.is_free() => Some((2, since)),
            (Role::Spare(_) | Role::Session(_), _) => None,
        };
        let ranked = self.members.iter().filter_map(|(id, member)| Some((rank(member)?, *id)));
        ranked.min().map(|(_, id)| id)
    }

    /// Who waits longest for a session that has no box.
    fn next_without_box(&self) -> Option<Key> {
        let without = self.lines.iter().filter(|(key, _)| !self.sessions.contains_key(key));
        without.min_by_key(|(_, line)| line.front().copied()).map(|(key, _)| key.clone())
    }

    fn next_of(&mut self, key: &Key) -> Option<Ticket> {
        let line = self.lines.get_mut(key)?;
        let next = line.pop_front();
        if line.is_empty() {
            self.lines.remove(key);
        }
        next
    }

    /// Whether as many places are becoming free as there are sessions that wait for one, and so many newcomers. A session
    /// whose own box is ending waits for that, and so for one of those places.
    fn are_enough_ending(&self, newcomers: usize) -> bool {
        let wait_for_place = self.lines.keys().filter(|key| match self.sessions.get(key) {
            Some(id) => self.members.get(id).is_some_and(|member| member.state == State::Ending),
            None => true,
        });
        self.ending() as usize >= wait_for_place.count() + newcomers
    }

    fn ending(&self) -> u32 {
        let ending = self.members.values().filter(|member| member.state == State::Ending);
        u32::try_from(ending.count()).unwrap_or(u32::MAX)
    }

    fn total(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }
}
