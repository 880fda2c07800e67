//! The kinds of warm boxes for the pool, and how urgently another one is made.

use std::time::Duration;

use super::shape::Shape;
use super::warm_box::WarmKind;
use crate::executor::Executor;
use crate::pool::Sort;
use ringwall_policy::Grant;

/// After this pause the exec that took the last one has its answer.
const PAUSE: Duration = Duration::from_millis(5);
/// A plain warm box saves little, so it waits longer.
const LONG_PAUSE: Duration = Duration::from_millis(30);

/// Equal specs give interchangeable warm boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmSpec {
    pub kind: WarmKind,
    pub shape: Shape,
}

impl Executor {
    /// The spec of the warm box that fits this grant best, if there is one.
    pub fn sort_for(&self, grant: &Grant) -> Option<WarmSpec> {
        Some(WarmSpec { shape: self.shape_for(grant)?, kind: WarmKind::of(grant) })
    }
}

impl Sort for WarmSpec {
    fn pause(&self, waiting: usize) -> Duration {
        match self.kind {
            // Without a ready interpreter the next exec would wait longer for one than running
            // execs lose by its start.
            WarmKind::Python if waiting == 0 => Duration::ZERO,
            WarmKind::Python => PAUSE,
            WarmKind::Plain => LONG_PAUSE,
        }
    }
}
