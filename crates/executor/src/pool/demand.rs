//! How many spares of each kind are wanted: more after somebody found none, fewer after some have waited for long, and for a
//! while none at all of a kind that could not be made. Kinds that nobody named before are learnt when one is missed, and
//! forgotten when none of them is wanted any more. No clock: the time is said.

use std::collections::BTreeMap;
use std::time::Duration;

use super::places::Moment;

/// After the first failure; doubled with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// More kinds than these at once are not learnt: whoever asks for ever new ones is not to crowd out the usual.
const MOST_KINDS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Demand<Kind> {
    wishes: BTreeMap<Kind, Wish>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
enum Origin {
    Named,
    #[default]
    Learnt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Wish {
    origin: Origin,
    /// Not fewer than these.
    floor: u32,
    wanted: u32,
    failures: u32,
    /// None is made before.
    not_before: Moment,
}

impl<Kind: Copy + Ord> Demand<Kind> {
    pub(super) fn new(kinds: &[Kind], min: u32) -> Self {
        let named = Wish { origin: Origin::Named, ..Wish::default() };
        let mut demand = Self { wishes: kinds.iter().map(|kind| (*kind, named)).collect() };
        demand.set_floor(min);
        demand
    }

    /// The kinds that were named first of all share it; some have one more where it does not go up evenly.
    pub(super) fn set_floor(&mut self, min: u32) {
        let named = self.wishes.values_mut().filter(|wish| wish.origin == Origin::Named);
        let kinds = u32::try_from(named.count()).unwrap_or(u32::MAX);
        let named = self.wishes.values_mut().filter(|wish| wish.origin == Origin::Named);
        for (index, wish) in (0_u32..).zip(named) {
            let floor = min / kinds.max(1) + u32::from(index < min % kinds.max(1));
            wish.wanted = if wish.wanted > wish.floor { wish.wanted.max(floor) } else { floor };
            wish.floor = floor;
        }
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.wishes.keys().copied()
    }

    /// How many should wait, whether or not they can be made now.
    pub(super) fn wanted(&self, kind: Kind) -> u32 {
        self.wishes.get(&kind).map_or(0, |wish| wish.wanted)
    }

    pub(super) fn may_make(&self, kind: Kind, now: Moment) -> bool {
        self.wishes.get(&kind).is_some_and(|wish| now >= wish.not_before)
    }

    /// When the first of the kinds that are held back may be made again.
    pub(super) fn next_attempt(&self, now: Moment) -> Option<Moment> {
        self.wishes.values().map(|wish| wish.not_before).filter(|moment| *moment > now).min()
    }

    /// Somebody wanted one and there was none.
    pub(super) fn missed(&mut self, kind: Kind, max: u32) {
        self.wishes.retain(|_, wish| wish.wanted > 0 || wish.origin == Origin::Named);
        if self.wishes.len() < MOST_KINDS {
            self.wishes.entry(kind).or_default();
        }
        if let Some(wish) = self.wishes.get_mut(&kind) {
            wish.wanted = wish.wanted.saturating_add(1).min(max.max(wish.floor));
        }
    }

    /// Whether some could go if they wait for long.
    pub(super) fn is_above_floor(&self, kind: Kind) -> bool {
        self.wishes.get(&kind).is_none_or(|wish| wish.wanted > wish.floor)
    }

    /// One has waited so long that fewer would do. Tells whether it may go.
    pub(super) fn unused(&mut self, kind: Kind) -> bool {
        match self.wishes.get_mut(&kind) {
            Some(wish) if wish.wanted <= wish.floor => false,
            Some(wish) => {
                wish.wanted -= 1;
                true
            }
            None => true,
        }
    }

    pub(super) fn made(&mut self, kind: Kind) {
        if let Some(wish) = self.wishes.get_mut(&kind) {
            wish.failures = 0;
        }
    }

    pub(super) fn failed(&mut self, kind: Kind, now: Moment) {
        if let Some(wish) = self.wishes.get_mut(&kind) {
            let pause = FIRST_PAUSE.saturating_mul(1 << wish.failures.min(16)).min(LONGEST_PAUSE);
            wish.failures = wish.failures.saturating_add(1);
            wish.not_before = now + pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_after_misses_and_back_to_the_floor_when_idle() {
        let mut demand = Demand::new(&['a', 'b'], 3);
        assert_eq!((demand.wanted('a'), demand.wanted('b'), demand.wanted('c')), (2, 1, 0));
        for _ in 0..9 {
            demand.missed('b', 5);
        }
        assert_eq!(demand.wanted('b'), 5);
        let gone = (0..9).filter(|_| demand.unused('b')).count();
        assert_eq!((gone, demand.wanted('b')), (4, 1));
        demand.set_floor(0);
        assert_eq!((demand.wanted('a'), demand.wanted('b')), (0, 0));
    }

    #[test]
    fn kinds_are_learnt_up_to_a_number_and_forgotten() {
        let mut demand = Demand::new(&['a', 'b'], 2);
        for kind in 'c'..='z' {
            demand.missed(kind, 9);
        }
        assert_eq!((demand.kinds().count(), demand.wanted('h'), demand.wanted('i')), (MOST_KINDS, 1, 0));
        assert!(demand.unused('c') && demand.is_above_floor('d'));
        demand.missed('z', 9);
        assert_eq!((demand.wanted('c'), demand.wanted('z')), (0, 1));
    }

    #[test]
    fn whoever_fails_pauses_longer_and_longer_and_not_for_ever() {
        let mut demand = Demand::new(&['a'], 1);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            demand.failed('a', now);
            assert!(!demand.may_make('a', now));
            let next = demand.next_attempt(now).expect("a next attempt");
            pauses.push(next - now);
            now = next;
            assert!(demand.may_make('a', now));
        }
        assert_eq!((pauses[0], pauses[1], pauses[39]), (FIRST_PAUSE, FIRST_PAUSE * 2, LONGEST_PAUSE));
        demand.made('a');
        demand.failed('a', now);
        assert_eq!(demand.next_attempt(now), Some(now + FIRST_PAUSE));
    }
}
