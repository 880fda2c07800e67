//! Which spares can stand in for each other, and how urgently one more of them is wanted.

use std::time::Duration;

use super::shape::Shape;
use super::spare::SpareKind;
use crate::executor::Executor;
use crate::pool::{Pace, Sort};
use ringwall_policy::Grant;

/// So long nobody has asked for a spare: whoever took the last one has its answer by now.
const PAUSE: Duration = Duration::from_millis(5);
/// Plain spares save little, and wait for a long pause.
const LONG_PAUSE: Duration = Duration::from_millis(30);

/// Equal ones make spares that can stand in for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpareSort {
    pub kind: SpareKind,
    pub shape: Shape,
}

impl Executor {
    /// The sort of the spares that serve this grant best, where any can.
    pub fn sort_for(&self, grant: &Grant) -> Option<SpareSort> {
        Some(SpareSort { shape: self.shape_for(grant)?, kind: SpareKind::of(grant) })
    }
}

impl Sort for SpareSort {
    fn pause(&self, waiting: usize) -> Duration {
        match self.kind {
            // Whoever comes next would wait longer for an interpreter than anybody for a processor.
            SpareKind::Python if waiting == 0 => Duration::ZERO,
            SpareKind::Python => PAUSE,
            SpareKind::Plain => LONG_PAUSE,
        }
    }

    fn pace(&self) -> Pace {
        Pace::Quick
    }
}
