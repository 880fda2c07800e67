//! Rebalances the pool after each event: hands idle boxes to waiters, gives free slots to the
//! oldest waiter, evicts idle boxes, refills warm boxes.
//!
//! Each operation changes one thing and then calls this, so none has to know the consequences.

use super::boxes::Sort;
use super::slots::{Course, Member, MemberId, Moment, Role, Slots, State, Step, Ticket, Turn};

impl<Key: Clone + Ord, Kind: Sort> Slots<Key, Kind> {
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

    /// True if a new request for this session would wait only for the pool's own work and not for
    /// another user of the box.
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

    /// Assigns each idle session box to its first waiter.
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

    /// Gives slots to sessions without a box, oldest request first. If all slots are taken, an idle
    /// box is evicted.
    fn give_room(&mut self, steps: &mut Vec<Step<Kind>>) {
        while let Some(key) = self.next_without_box() {
            if self.total() < self.bounds.max_instances {
                let Some(by) = self.next_of(&key) else { break };
                let id = self.add(Role::Session(key), Some(by));
                steps.push(Step::Serve(by, Turn::Make(id)));
            } else if self.will_be_enough(0) {
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

    /// True if the slots that are becoming free suffice for the waiting sessions and `newcomers`
    /// more. A session whose own box is ending waits for that slot. A warm box that is still being
    /// made is evicted when it is ready.
    fn will_be_enough(&self, newcomers: usize) -> bool {
        let becoming_free = self.ending().saturating_add(self.warm_boxes_starting());
        let wait_for_slot = self.lines.keys().filter(|key| match self.sessions.get(key) {
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
