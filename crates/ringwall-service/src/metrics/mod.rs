//! Metrics: counters since the start of the server, and its last hour minute by minute.

mod history;

pub use history::Minute;
pub(crate) use history::{Load, LoadByUser};

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_executor::pool::WarmFigures;
use ringwall_ids::UserId;
use ringwall_record::Status;

use history::History;

use crate::time::now;

/// Upper bounds of the buckets in ms: a native box takes about 2, a container about 300.
const BOUNDS_MS: [u64; 12] = [1, 2, 3, 5, 10, 20, 50, 100, 300, 1000, 3000, 10_000];

#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// Ended execs by status and backend.
    pub ended: BTreeMap<(Status, String), u64>,
    pub running: u32,
    pub waiting: u32,
    /// Time from the grant to the command's first instruction.
    pub set_up: Histogram,
    /// Warm boxes.
    pub warm_boxes: WarmFigures,
}

#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Cumulative counts by upper bound in ms.
    pub at_most: BTreeMap<u64, u64>,
    pub count: u64,
    pub sum: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    history: History,
    ended: BTreeMap<(Status, String), u64>,
    buckets: [u64; BOUNDS_MS.len()],
    count: u64,
    sum: Duration,
}

impl Counters {
    pub(crate) fn ended(&self, user: &UserId, status: Status, backend: &str) {
        let mut held = self.held.lock();
        *held.ended.entry((status, backend.to_owned())).or_default() += 1;
        held.history.ended(now(), user, status);
    }

    pub(crate) fn sampled(&self, load: &LoadByUser) {
        self.held.lock().history.sampled(now(), load);
    }

    /// The last hour, and the mean start time of boxes.
    pub(crate) fn hour(&self, whose: Option<&UserId>) -> (Vec<Minute>, Option<Duration>) {
        let held = self.held.lock();
        let mean = u32::try_from(held.count).ok().and_then(|count| held.sum.checked_div(count));
        (held.history.hour(now(), whose), mean)
    }

    pub(crate) fn set_up(&self, took: Duration) {
        let mut held = self.held.lock();
        held.count += 1;
        held.sum += took;
        for (bucket, bound) in held.buckets.iter_mut().zip(BOUNDS_MS) {
            *bucket += u64::from(took <= Duration::from_millis(bound));
        }
    }

    /// Counts of ended execs by status and backend, and the start times of boxes.
    pub(crate) fn totals(&self) -> (BTreeMap<(Status, String), u64>, Histogram) {
        let held = self.held.lock();
        let at_most = BOUNDS_MS.into_iter().zip(held.buckets).collect();
        (held.ended.clone(), Histogram { at_most, count: held.count, sum: held.sum })
    }
}
