//! How many warm boxes of each kind are wanted.
//!
//! A kind in demand gets the minimum. A request that finds none raises the number; boxes that
//! waited too long lower it; a failed start pauses the kind. A kind that no exec asked for is
//! forgotten after a while, or earlier if there are more than [`MAX_KINDS`]. One kind can be
//! *kept*: it is wanted without demand and is not forgotten. Times are arguments; the module reads
//! no clock.

use std::time::Duration;

use super::slots::Moment;

/// Pause after the first failure; doubled by each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Most servers use fewer combinations of settings.
const MAX_KINDS: usize = 8;
/// After this many failures in a row, about two minutes, the kept kind loses its privilege, because
/// it would be retried forever.
const MAX_FAILURES: u32 = 10;

#[derive(Debug, Clone)]
pub(super) struct Demand<Kind> {
    /// Minimum for each kind in demand; 0 disables warm boxes.
    least: u32,
    kinds: Vec<KindDemand<Kind>>,
    /// The kind that is wanted without demand.
    kept: Option<Kind>,
    /// Last request for any kind.
    asked: Option<Moment>,
}

#[derive(Debug, Clone)]
pub(super) struct KindDemand<Kind> {
    pub(super) kind: Kind,
    /// The target number, also while a pause after a failure lasts.
    pub(super) wanted: u32,
    pub(super) asked: Moment,
    failures: u32,
    /// The end of the pause after a failure.
    not_before: Moment,
}

impl<Kind: Clone + PartialEq> Demand<Kind> {
    pub(super) fn new(least: u32) -> Self {
        Self { least, kinds: Vec::new(), kept: None, asked: None }
    }

    pub(super) fn set_least(&mut self, least: u32, now: Moment) {
        for demand in &mut self.kinds {
            demand.wanted = if demand.wanted > self.least { demand.wanted.max(least) } else { least };
        }
        self.least = least;
        match (least, self.kept.clone()) {
            (0, _) => self.kinds.clear(),
            (_, Some(kept)) => drop(self.demand_for(&kept, now)),
            (_, None) => {}
        }
    }

    /// Makes `kind` the one kept kind.
    pub(super) fn keep(&mut self, kind: Option<Kind>, now: Moment) {
        if self.kept == kind {
            return;
        }
        // The former kept kind expires without demand, like any other.
        let before = std::mem::replace(&mut self.kept, kind.clone());
        if let Some(demand) = before.and_then(|kind| self.find(&kind)) {
            demand.asked = now;
        }
        if let Some(kind) = kind.filter(|_| self.least > 0) {
            self.demand_for(&kind, now);
        }
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> Option<&Kind> {
        self.kept.as_ref()
    }

    pub(super) fn kinds(&self) -> &[KindDemand<Kind>] {
        &self.kinds
    }

    pub(super) fn wanted(&self, kind: &Kind) -> u32 {
        self.kinds.iter().find(|demand| demand.kind == *kind).map_or(0, |demand| demand.wanted)
    }

    /// Records a request for this kind. Returns the stored kind, or `None` if warm boxes are
    /// disabled.
    pub(super) fn ask(&mut self, kind: &Kind, now: Moment) -> Option<Kind> {
        if self.least == 0 {
            return None;
        }
        self.asked = Some(now);
        Some(self.demand_for(kind, now))
    }

    /// Adds or finds a kind and returns the stored one.
    fn demand_for(&mut self, kind: &Kind, now: Moment) -> Kind {
        if let Some(demand) = self.find(kind) {
            demand.asked = now;
            return demand.kind.clone();
        }
        if self.kinds.len() >= MAX_KINDS {
            let others = (0..self.kinds.len()).filter(|index| !self.is_kept(&self.kinds[*index]));
            if let Some(oldest) = others.min_by_key(|index| self.kinds[*index].asked) {
                self.kinds.swap_remove(oldest);
            }
        }
        let wanted = self.least;
        self.kinds.push(KindDemand { kind: kind.clone(), wanted, asked: now, failures: 0, not_before: Moment::ZERO });
        kind.clone()
    }

    /// Records that a request found no warm box.
    pub(super) fn missed(&mut self, kind: &Kind, max: u32) {
        if let Some(demand) = self.find(kind) {
            demand.wanted = demand.wanted.saturating_add(1).min(max);
        }
    }

    /// The earliest time for another box, given this pause.
    pub(super) fn not_before(&self, demand: &KindDemand<Kind>, pause: Duration) -> Moment {
        demand.not_before.max(self.asked.map_or(Moment::ZERO, |asked| asked + pause))
    }

    /// True if the target may be lowered.
    pub(super) fn is_above_least(&self, kind: &Kind) -> bool {
        self.wanted(kind) > self.least
    }

    /// Lowers the target, because a box waited too long.
    pub(super) fn unused(&mut self, kind: &Kind) {
        let least = self.least;
        if let Some(demand) = self.find(kind).filter(|demand| demand.wanted > least) {
            demand.wanted -= 1;
        }
    }

    /// Forgets kinds without requests since `moment`; the kept kind returns to the minimum.
    pub(super) fn forget_before(&mut self, moment: Moment) {
        let (kept, least) = (&self.kept, self.least);
        self.kinds.retain_mut(|demand| {
            let is_kept = kept.as_ref() == Some(&demand.kind);
            if is_kept && demand.asked <= moment {
                demand.wanted = least;
            }
            is_kept || demand.asked > moment
        });
    }

    /// The oldest request that [`Self::forget_before`] would act on.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let changes = |demand: &&KindDemand<Kind>| !self.is_kept(demand) || demand.wanted > self.least;
        self.kinds.iter().filter(changes).map(|demand| demand.asked).min()
    }

    pub(super) fn made(&mut self, kind: &Kind) {
        if let Some(demand) = self.find(kind) {
            demand.failures = 0;
        }
    }

    pub(super) fn failed(&mut self, kind: &Kind, now: Moment) {
        if let Some(demand) = self.find(kind) {
            let pause = FIRST_PAUSE.saturating_mul(1 << demand.failures.min(16)).min(MAX_PAUSE);
            demand.failures = demand.failures.saturating_add(1);
            demand.not_before = now + pause;
            if demand.failures >= MAX_FAILURES && self.kept.as_ref() == Some(kind) {
                self.keep(None, now);
            }
        }
    }

    fn is_kept(&self, demand: &KindDemand<Kind>) -> bool {
        self.kept.as_ref() == Some(&demand.kind)
    }

    fn find(&mut self, kind: &Kind) -> Option<&mut KindDemand<Kind>> {
        self.kinds.iter_mut().find(|demand| demand.kind == *kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn misses_raise_target_and_idle_time_lowers_it() {
        let mut demand = Demand::new(2);
        assert_eq!((demand.ask(&'a', SECOND), demand.wanted(&'a'), demand.wanted(&'b')), (Some('a'), 2, 0));
        (0..9).for_each(|_| demand.missed(&'a', 5));
        assert!(demand.wanted(&'a') == 5 && demand.is_above_least(&'a'));
        demand.set_least(3, SECOND);
        assert_eq!(demand.wanted(&'a'), 5);
        (0..9).for_each(|_| demand.unused(&'a'));
        assert!(demand.wanted(&'a') == 3 && !demand.is_above_least(&'a'));
        demand.set_least(1, SECOND);
        assert_eq!(demand.wanted(&'a'), 1);
        demand.set_least(0, SECOND);
        assert_eq!((demand.wanted(&'a'), demand.ask(&'a', SECOND), demand.kinds().len()), (0, None, 0));
    }

    #[test]
    fn oldest_kind_is_forgotten_beyond_maximum() {
        let mut demand = Demand::new(1);
        for (kind, second) in ('a'..='i').zip(1..) {
            demand.ask(&kind, SECOND * second);
        }
        assert_eq!((demand.kinds().len(), demand.wanted(&'a'), demand.wanted(&'i')), (MAX_KINDS, 0, 1));
        demand.forget_before(SECOND * 8);
        assert_eq!((demand.kinds().len(), demand.wanted(&'i')), (1, 1));
    }

    #[test]
    fn kept_kind_is_wanted_without_requests() {
        let mut demand = Demand::new(2);
        demand.keep(Some('k'), SECOND);
        assert_eq!((demand.wanted(&'k'), demand.oldest()), (2, None));
        for (kind, second) in ('a'..='i').zip(2..) {
            demand.ask(&kind, SECOND * second);
        }
        assert_eq!((demand.kinds().len(), demand.wanted(&'k')), (MAX_KINDS, 2), "others make room for others");
        demand.ask(&'k', SECOND * 20);
        (0..9).for_each(|_| demand.missed(&'k', 5));
        demand.forget_before(SECOND * 19);
        assert_eq!((demand.kinds().len(), demand.wanted(&'k'), demand.oldest()), (1, 5, Some(SECOND * 20)));
        demand.forget_before(SECOND * 20);
        assert_eq!((demand.wanted(&'k'), demand.oldest()), (2, None), "back to the least, and nothing to wait for");
        demand.set_least(0, SECOND);
        assert_eq!(demand.kinds().len(), 0);
        demand.set_least(1, SECOND);
        assert_eq!(demand.wanted(&'k'), 1, "and again where some are wanted again");
        demand.keep(Some('l'), SECOND * 30);
        assert_eq!((demand.wanted(&'k'), demand.wanted(&'l'), demand.oldest()), (1, 1, Some(SECOND * 30)));
        demand.forget_before(SECOND * 30);
        assert_eq!((demand.wanted(&'k'), demand.wanted(&'l')), (0, 1));
    }

    #[test]
    fn kept_kind_that_always_fails_is_forgotten() {
        let mut demand = Demand::new(1);
        demand.keep(Some('k'), SECOND);
        (1..MAX_FAILURES).for_each(|_| demand.failed(&'k', SECOND * 2));
        demand.forget_before(SECOND * 2);
        assert_eq!(demand.wanted(&'k'), 1);
        demand.failed(&'k', SECOND * 3);
        demand.forget_before(SECOND * 2);
        assert_eq!(demand.wanted(&'k'), 1, "for as long as any other");
        demand.forget_before(SECOND * 3);
        assert_eq!(demand.wanted(&'k'), 0);
    }

    #[test]
    fn failures_double_pause_up_to_maximum() {
        let mut demand = Demand::new(1);
        demand.ask(&'a', Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..40 {
            demand.failed(&'a', now);
            let next = demand.not_before(&demand.kinds()[0], Duration::ZERO);
            pauses.push(next - now);
            now = next;
        }
        assert_eq!((pauses[0], pauses[1], pauses[39]), (FIRST_PAUSE, FIRST_PAUSE * 2, MAX_PAUSE));
        demand.made(&'a');
        demand.failed(&'a', now);
        assert_eq!(demand.not_before(&demand.kinds()[0], Duration::ZERO), now + FIRST_PAUSE);
        demand.ask(&'a', now);
        assert_eq!(demand.not_before(&demand.kinds()[0], SECOND), now + SECOND, "the longer pause of two");
    }
}
