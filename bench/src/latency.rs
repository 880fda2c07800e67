//! Latency of one run: each contestant once per round, in shuffled order.
//!
//! Slow phases of the machine thus affect all contestants, and none always follows the same
//! predecessor, whose network namespace the kernel may still be removing.

use std::time::Duration;

use crate::boxes::event_loop;
use crate::contestant::{Contestant, Field, Task};
use crate::error::Error;
use crate::samples::Samples;
use crate::steps::Steps;

/// Warm-up rounds, so that all files are in the page cache.
const WARM_UP: usize = 5;

/// The samples of one contestant and task.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) contestant: Contestant,
    pub(crate) task: Task,
    pub(crate) samples: Samples,
}

#[derive(Debug)]
pub(crate) struct Latency {
    pub(crate) entries: Vec<Entry>,
    /// Steps of the native box running `true`, with and without cgroups.
    pub(crate) steps: Steps,
    pub(crate) steps_without_cgroups: Steps,
}

impl Latency {
    pub(crate) fn of(&self, contestant: Contestant, task: Task) -> Duration {
        let entry = self.entries.iter().find(|entry| (entry.contestant, entry.task) == (contestant, task));
        entry.map_or(Duration::ZERO, |entry| entry.samples.median())
    }
}

pub(crate) fn measure(field: &Field, rounds: usize) -> Result<Latency, Error> {
    let pairs = Task::ALL.iter().flat_map(|task| Contestant::ALL.map(|contestant| (contestant, *task)));
    let mut entries: Vec<Entry> =
        pairs.map(|(contestant, task)| Entry { contestant, task, samples: Samples::default() }).collect();
    let (mut steps, mut steps_without_cgroups) = (Steps::default(), Steps::default());
    let runtime = event_loop()?;
    let mut shuffle = Shuffle::default();
    for round in 0..WARM_UP + rounds {
        for index in shuffle.order(entries.len()) {
            let entry = &mut entries[index];
            let run = field.run(&runtime, entry.contestant, entry.task)?;
            if round < WARM_UP {
                continue;
            }
            entry.samples.push(run.total);
            match (&run.timed, entry.contestant, entry.task) {
                (Some(timed), Contestant::BoxAlone, Task::True) => steps.add(timed),
                (Some(timed), Contestant::BoxWithoutCgroups, Task::True) => steps_without_cgroups.add(timed),
                _ => {}
            }
        }
    }
    Ok(Latency { entries, steps, steps_without_cgroups })
}

/// Produces shuffled orders, the same in every run.
#[derive(Debug)]
pub(crate) struct Shuffle(u64);

impl Default for Shuffle {
    fn default() -> Self {
        Shuffle(0x9e37_79b9_7f4a_7c15)
    }
}

impl Shuffle {
    /// The numbers below `count`, each once.
    pub(crate) fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for last in (1..count).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            order.swap(last, other);
        }
        order
    }

    /// A xorshift generator, sufficient for shuffling.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_exactly_one_turn_a_round() {
        let mut shuffle = Shuffle::default();
        for _ in 0..100 {
            let mut order = shuffle.order(10);
            order.sort_unstable();
            assert_eq!(order, (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn everyone_is_first_and_last_at_times() {
        let mut shuffle = Shuffle::default();
        let orders: Vec<_> = (0..1000).map(|_| shuffle.order(5)).collect();
        for one in 0..5 {
            let first = orders.iter().filter(|order| order[0] == one).count();
            let last = orders.iter().filter(|order| order[4] == one).count();
            assert!((100..300).contains(&first) && (100..300).contains(&last), "{one}: {first} and {last}");
        }
    }
}
