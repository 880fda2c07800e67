//! Runs per second, eight at a time.
//!
//! Unlike latency this includes the kernel's work after the end of a box, such as removing its namespaces.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::boxes::event_loop;
use crate::contestant::{Contestant, Field, Task};
use crate::error::Error;

pub(crate) const CONCURRENCY: usize = 8;

/// The contestants alternate in this many blocks, so that a busy moment affects more than one of them.
const BLOCKS: usize = 4;

const CONTESTANTS: [Contestant; 4] =
    [Contestant::Bare, Contestant::Bubblewrap, Contestant::BoxAlone, Contestant::RingwallRun];

#[derive(Debug)]
pub(crate) struct Throughput {
    pub(crate) entries: Vec<(Contestant, f64)>,
}

impl Throughput {
    /// Runs per second.
    pub(crate) fn of(&self, contestant: Contestant) -> f64 {
        self.entries.iter().find(|(one, _)| *one == contestant).map_or(f64::NAN, |(_, rate)| *rate)
    }
}

pub(crate) fn measure(field: &Field, runs: usize) -> Result<Throughput, Error> {
    let block = runs.div_ceil(BLOCKS);
    let mut seconds = [0.0; CONTESTANTS.len()];
    for _ in 0..BLOCKS {
        for (contestant, seconds) in CONTESTANTS.into_iter().zip(&mut seconds) {
            *seconds += at_once(CONCURRENCY, block, |_| {
                let runtime = event_loop()?;
                Ok(move || field.run(&runtime, contestant, Task::True).map(drop))
            })?;
        }
    }
    let rate = |seconds: f64| (block * BLOCKS) as f64 / seconds;
    Ok(Throughput { entries: CONTESTANTS.into_iter().zip(seconds.map(rate)).collect() })
}

/// The seconds that `runs` runs take, `concurrency` at a time. `prepare` returns the run of one thread.
pub(crate) fn at_once<R>(
    concurrency: usize,
    runs: usize,
    prepare: impl Fn(usize) -> Result<R, Error> + Sync,
) -> Result<f64, Error>
where
    R: FnMut() -> Result<(), Error>,
{
    let taken = AtomicUsize::new(0);
    let work = |number: usize| -> Result<(), Error> {
        let mut run = prepare(number)?;
        while taken.fetch_add(1, Ordering::Relaxed) < runs {
            run()?;
        }
        Ok(())
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..concurrency).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Error::Thread)?)
    })?;
    Ok(began.elapsed().as_secs_f64())
}
