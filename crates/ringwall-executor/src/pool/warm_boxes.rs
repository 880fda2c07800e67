//! The warm boxes of the pool: taken by execs, made while the machine is quiet, ended when there
//! are too many.
//!
//! Sessions come first: no warm box is made while a session waits for a slot. Each start takes CPU
//! from running execs, so boxes are made one after another, after the pause that their kind asks
//! for.

use super::boxes::Sort;
use super::slots::{Course, Member, MemberId, Moment, Role, Slots, State, Step};

/// Number of warm boxes of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    waiting: usize,
    being_made: usize,
}

impl<Key: Clone + Ord, Kind: Sort> Slots<Key, Kind> {
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
        steps.extend(self.settle(now));
        (taken, steps)
    }

    /// Ends the oldest warm boxes beyond the wanted number.
    pub(super) fn end_unwanted(&mut self, steps: &mut Vec<Step<Kind>>) {
        let wishes = self.demand.wishes();
        let mut wanted: Vec<u32> = wishes.iter().map(|demand| demand.wanted).collect();
        let mut unwanted = Vec::new();
        for (id, member) in self.members.iter().rev().filter(|(_, member)| member.state != State::Ending) {
            let Role::WarmBox(kind) = &member.role else { continue };
            let of = wishes.iter().position(|demand| demand.kind == *kind);
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
        let wishes = self.demand.wishes();
        let mut ready = vec![Ready::default(); wishes.len()];
        for member in self.members.values() {
            let Role::WarmBox(kind) = &member.role else { continue };
            let of = wishes.iter().position(|demand| demand.kind == *kind);
            let Some(ready) = of.and_then(|of| ready.get_mut(of)) else { continue };
            match member.state {
                State::Idle { .. } => ready.waiting += 1,
                State::Warming { .. } => ready.being_made += 1,
                State::Acquiring { .. } | State::Busy { .. } | State::Ending => {}
            }
        }
        let lacking = wishes.iter().zip(ready).filter_map(|(demand, ready)| {
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
