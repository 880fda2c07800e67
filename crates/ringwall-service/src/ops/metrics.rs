//! The numbers of a server as they are now.

use crate::metrics::Metrics;
use crate::service::Service;

impl Service {
    /// Counters of the box pool.
    pub fn pool(&self) -> ringwall_executor::pool::Figures {
        self.inner.boxes.figures()
    }

    pub fn metrics(&self) -> Metrics {
        let (running, waiting) = self.inner.turns.counts();
        let (ended, set_up) = self.inner.counters.totals();
        Metrics { ended, running, waiting, set_up, warm_boxes: self.pool().warm_boxes }
    }
}
