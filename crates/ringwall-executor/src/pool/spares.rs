//! The spares among the places: taken when somebody wants one, made when it is quiet, ended when there are too many.
//!
//! They have what sessions leave: none is made while a session waits for a place. Each that is made takes a processor from
//! those who run, so that they are made one after the other, and after a pause that their sort asks for.

use super::places::{Course, Member, MemberId, Moment, Places, Role, State, Step};
use super::sort::{Pace, Sort};

/// How many of one sort there are.
#[derive(Debug, Clone, Copy, Default)]
struct Ready {
    waiting: usize,
    being_made: usize,
}

impl<Key: Clone + Ord, Kind: Sort> Places<Key, Kind> {
    /// Takes a living spare of this sort, the newest first: those that are not needed are then those that have waited
    /// longest. It is not the pool's any more.
    pub(super) fn take_spare(
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
            match self.newest_spare(&kind) {
                Some(id) if lives(id) => break Some(id),
                Some(dead) => steps.extend(self.end(dead)),
                None => break None,
            }
        };
        self.spares_found.count(taken.is_some());
        match taken {
            Some(id) => self.forget(id),
            None => self.demand.missed(&kind, self.bounds.max_instances),
        }
        steps.extend(self.settle(now));
        (taken, steps)
    }

    /// Where fewer are wanted than there are, those that have waited longest go.
    pub(super) fn end_unwanted(&mut self, steps: &mut Vec<Step<Kind>>) {
        let wishes = self.demand.wishes();
        let mut wanted: Vec<u32> = wishes.iter().map(|wish| wish.wanted).collect();
        let mut unwanted = Vec::new();
        for (id, member) in self.members.iter().rev().filter(|(_, member)| member.state != State::Ending) {
            let Role::Spare(kind) = &member.role else { continue };
            let of = wishes.iter().position(|wish| wish.kind == *kind);
            match of.and_then(|of| wanted.get_mut(of)) {
                Some(wanted) if *wanted > 0 => *wanted -= 1,
                Some(_) | None if member.is_free() => unwanted.push(*id),
                // It ends when it is made.
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
            let id = self.add(Role::Spare(kind.clone()), None);
            steps.push(Step::MakeSpare(id, kind));
        }
    }

    /// Which is to be made next, of those that can be made first the one of which there are fewest; and when.
    pub(super) fn next_to_make(&self, now: Moment) -> Option<(Moment, Kind)> {
        let is_full = self.total() >= self.bounds.max_instances;
        if self.course == Course::Stopping || is_full || self.next_without_box().is_some() {
            return None;
        }
        let wishes = self.demand.wishes();
        let mut ready = vec![Ready::default(); wishes.len()];
        for member in self.members.values() {
            let Role::Spare(kind) = &member.role else { continue };
            let of = wishes.iter().position(|wish| wish.kind == *kind);
            let Some(ready) = of.and_then(|of| ready.get_mut(of)) else { continue };
            match member.state {
                State::Idle { .. } => ready.waiting += 1,
                State::Warming { .. } => ready.being_made += 1,
                State::Acquiring { .. } | State::Busy { .. } | State::Ending => {}
            }
        }
        let lacking = wishes.iter().zip(ready).filter_map(|(wish, ready)| {
            let count = ready.waiting + ready.being_made;
            let moment = self.demand.not_before(wish, wish.kind.pause(ready.waiting)).max(now);
            let is_turn = self.spares_being_made_at(wish.kind.pace()) == 0;
            (is_turn && count < wish.wanted as usize).then_some((moment, count, &wish.kind))
        });
        let next = lacking.min_by_key(|(moment, count, _)| (*moment, *count));
        next.map(|(moment, _, kind)| (moment, kind.clone()))
    }

    pub(super) fn spares_being_made(&self) -> u32 {
        self.spares_being_made_at(Pace::Quick) + self.spares_being_made_at(Pace::Slow)
    }

    pub(super) fn spares_being_made_at(&self, pace: Pace) -> u32 {
        let is_being_made = |member: &&Member<Key, Kind>| {
            let is_warming = matches!(member.state, State::Warming { .. });
            is_warming && matches!(&member.role, Role::Spare(kind) if kind.pace() == pace)
        };
        u32::try_from(self.members.values().filter(is_being_made).count()).unwrap_or(u32::MAX)
    }

    fn newest_spare(&self, kind: &Kind) -> Option<MemberId> {
        let waits =
            |member: &Member<Key, Kind>| member.is_free() && matches!(&member.role, Role::Spare(own) if own == kind);
        self.members.iter().rev().find(|(_, member)| waits(member)).map(|(id, _)| *id)
    }
}
