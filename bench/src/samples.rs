//! Samples of one duration, reported as median and 95th percentile.
//!
//! The mean is not used, because one interrupted run would move it.

use std::time::Duration;

use crate::error::Error;

/// As many runs in a row as a contestant makes when its turn comes, and as many of them as do not count: what the kernel
/// still does for the one before, such as taking down its network namespaces, falls into those.
pub(crate) const STREAK: usize = 10;
pub(crate) const UNCOUNTED: usize = 2;

#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) const fn new() -> Self {
        Samples(Vec::new())
    }

    pub(crate) fn push(&mut self, duration: Duration) {
        self.0.push(duration);
    }

    /// One turn: as many runs in a row as a contestant makes when its turn comes beside a server.
    pub(crate) fn streak(&mut self, mut run: impl FnMut() -> Result<Duration, Error>) -> Result<(), Error> {
        for number in 0..STREAK {
            let took = run()?;
            if number >= UNCOUNTED {
                self.push(took);
            }
        }
        Ok(())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    pub(crate) fn p95(&self) -> Duration {
        self.quantile(0.95)
    }

    /// The smallest sample that at least this share of all does not exceed; zero when there is none.
    fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// How many times `one` goes into `other`; not a number when `one` is zero.
pub(crate) fn ratio(other: Duration, one: Duration) -> f64 {
    other.as_secs_f64() / one.as_secs_f64()
}

/// For people: milliseconds with the digits that still mean something.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
        Samples(milliseconds.into_iter().map(Duration::from_millis).collect())
    }

    #[test]
    fn quantiles_are_samples_that_were_seen() {
        let hundred = samples((1..=100).rev());
        assert_eq!(hundred.median(), Duration::from_millis(50));
        assert_eq!(hundred.p95(), Duration::from_millis(95));
        let one = samples([7]);
        assert_eq!((one.median(), one.p95()), (Duration::from_millis(7), Duration::from_millis(7)));
        let three = samples([1, 2, 300]);
        assert_eq!((three.median(), three.p95()), (Duration::from_millis(2), Duration::from_millis(300)));
    }

    #[test]
    fn nothing_measured_is_zero() {
        assert_eq!(Samples::default().median(), Duration::ZERO);
    }

    #[test]
    fn a_ratio_compares_the_first_with_the_second() {
        assert!((ratio(Duration::from_millis(30), Duration::from_millis(10)) - 3.0).abs() < 1e-9);
    }
}
