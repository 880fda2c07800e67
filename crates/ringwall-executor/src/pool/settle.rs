//! What has become possible is done: a box that is free goes to whoever waits for it, a place that is free to whoever waits
//! longest, what is in the way of somebody ends, and what is left over becomes spares.
//!
//! Called after every operation, so that each of those changes one thing and none has to remember the others.

use super::places::{Course, Member, MemberId, Moment, Places, Role, State, Step, Ticket, Turn};
use super::sort::{Pace, Sort};

impl<Key: Clone + Ord, Kind: Sort> Places<Key, Kind> {
    pub(super) fn settle(&mut self, now: Moment) -> Vec<Step<Kind>> {
        let mut steps = Vec::new();
        if self.course == Course::Stopping {
            return steps;
        }
        self.end_unwanted(&mut steps);
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
            || self.total() < self.bounds.max_instances || self.victim().is_some() || self.will_be_enough(1);
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
            } else if self.will_soon_be_enough() {
                break;
            } else if let Some(id) = self.victim() {
                steps.extend(self.end(id));
            } else {
                break;
            }
        }
    }

    /// Where the bounds have become narrower.
    fn keep_below_max(&mut self, steps: &mut Vec<Step<Kind>>) {
        while self.total().saturating_sub(self.ending()) > self.bounds.max_instances {
            let Some(id) = self.victim() else { break };
            steps.extend(self.end(id));
        }
    }

    /// What costs least: the spare that has waited longest of those that are made in a moment, then of the others, and last
    /// the session that was idle for longest.
    fn victim(&self) -> Option<MemberId> {
        let rank = |member: &Member<Key, Kind>| match (&member.role, member.state) {
            (Role::Spare(kind), State::Idle { since }) => match kind.pace() {
                Pace::Quick => Some((0, since)),
                Pace::Slow => Some((1, since)),
            },
            (Role::Session(_), State::Idle { since }) if member.is_free() => Some((2, since)),
            (Role::Spare(_) | Role::Session(_), _) => None,
        };
        let ranked = self.members.iter().filter_map(|(id, member)| Some((rank(member)?, *id)));
        ranked.min().map(|(_, id)| id)
    }

    /// Who waits longest for a session that has no box.
    pub(super) fn next_without_box(&self) -> Option<Key> {
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
    /// whose own box is ending waits for that, and so for one of those places. A spare that is being made ends when it
    /// is, for whoever waits then.
    fn will_be_enough(&self, newcomers: usize) -> bool {
        let becoming_free = self.ending().saturating_add(self.spares_being_made());
        becoming_free as usize >= self.waiting_for_place() + newcomers
    }

    /// The same without what takes long: no session that is idle loses its box for a moment's sake, but nobody waits for
    /// more than that while another could make room.
    fn will_soon_be_enough(&self) -> bool {
        let becoming_free = self.ending().saturating_add(self.spares_being_made_at(Pace::Quick));
        becoming_free as usize >= self.waiting_for_place()
    }

    fn waiting_for_place(&self) -> usize {
        let wait_for_place = self.lines.keys().filter(|key| match self.sessions.get(key) {
            Some(id) => self.members.get(id).is_some_and(|member| member.state == State::Ending),
            None => true,
        });
        wait_for_place.count()
    }

    fn ending(&self) -> u32 {
        let ending = self.members.values().filter(|member| member.state == State::Ending);
        u32::try_from(ending.count()).unwrap_or(u32::MAX)
    }
}
