//! A random number generator with a seed, so that a run can be repeated.

use std::io::Read;
use std::time::Duration;

/// SplitMix64.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn any_seed() -> u64 {
        let mut bytes = [0; 4];
        std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut bytes).unwrap();
        u32::from_ne_bytes(bytes).into()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True with probability 1/`times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Sleeps for a random time, so that the next kill comes at a random moment. Not a wait for an
    /// event.
    pub(crate) fn pause(&mut self, longest: Duration) {
        let micros = u64::try_from(longest.as_micros()).unwrap();
        std::thread::sleep(Duration::from_micros(self.below(micros)));
    }
}
