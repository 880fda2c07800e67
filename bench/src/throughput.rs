//! How many runs a second the machine gets through when eight are under way at any time.
//!
//! Unlike latency this also pays for what the kernel does after a box has ended, taking down its namespaces.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::boxes::event_loop;
use crate::contestant::{Contestant, Field, Task};
use crate::error::Error;

pub(crate) const CONCURRENCY: usize = 8;

/// The runs are made in this many blocks, the contestants taking turns, so that a busy moment meets more than one.
const BLOCKS: usize = 4;

const CONTESTANTS: [Contestant; 4] =
    [Contestant::Bare, Contestant::Bubblewrap, Contestant::BoxAlone, Contestant::RingwallRun];

#[derive(Debug)]
pub(crate) struct Throughput {
    pub(crate) entries: Vec<(Contestant, f64)>,
}

impl Throughput {
    /// Runs a second.
    pub(crate) fn of(&self, contestant: Contestant) -> f64 {
        self.entries.iter().find(|(one, _)| *one == contestant).map_or(f64::NAN, |(_, rate)| *rate)
    }
}

pub(crate) fn measure(field: &Field, runs: usize) -> Result<Throughput, Error> {
    let block = runs.div_ceil(BLOCKS);
    let mut seconds = [0.0; CONTESTANTS.len()];
    for _ in 0..BLOCKS {
        for (contestant, seconds) in CONTESTANTS.into_iter().zip(&mut seconds) {
            *seconds += run_block(field, contestant, block)?;
        }
    }
    let rate = |seconds: f64| (block * BLOCKS) as f64 / seconds;
    Ok(Throughput { entries: CONTESTANTS.into_iter().zip(seconds.map(rate)).collect() })
}

/// How many seconds the whole block took.
fn run_block(field: &Field, contestant: Contestant, runs: usize) -> Result<f64, Error> {
    let taken = AtomicUsize::new(0);
    let work = || -> Result<(), Error> {
        let runtime = event_loop()?;
        while taken.fetch_add(1, Ordering::Relaxed) < runs {
            field.run(&runtime, contestant, Task::True)?;
        }
        Ok(())
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONCURRENCY).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::Thread)?)
    })?;
    Ok(began.elapsed().as_secs_f64())
}
