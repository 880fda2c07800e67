//! Samples of one duration, reported as median and 95th percentile.
//!
//! The mean is not used, because one interrupted run would move it.

use std::time::Duration;

use crate::error::Error;

/// The runs of a contestant in one turn beside a server. The first ones do not count, because the kernel still works for
/// the contestant before, for example removing network namespaces.
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

    /// Makes the runs of one turn.
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

    /// The smallest sample that at least this share of all samples does not exceed. Zero if there are none.
    fn quantile(&self, share: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
    }
}

/// `other` divided by `one`. NaN or infinite if `one` is zero.
pub(crate) fn ratio(other: Duration, one: Duration) -> f64 {
    other.as_secs_f64() / one.as_secs_f64()
}

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
    fn quantile_is_one_of_the_samples() {
        let hundred = samples((1..=100).rev());
        assert_eq!(hundred.median(), Duration::from_millis(50));
        assert_eq!(hundred.p95(), Duration::from_millis(95));
        let one = samples([7]);
        assert_eq!((one.median(), one.p95()), (Duration::from_millis(7), Duration::from_millis(7)));
        let three = samples([1, 2, 300]);
        assert_eq!((three.median(), three.p95()), (Duration::from_millis(2), Duration::from_millis(300)));
    }

    #[test]
    fn median_without_samples_is_zero() {
        assert_eq!(Samples::default().median(), Duration::ZERO);
    }

    #[test]
    fn ratio_divides_first_by_second() {
        assert!((ratio(Duration::from_millis(30), Duration::from_millis(10)) - 3.0).abs() < 1e-9);
    }
}
