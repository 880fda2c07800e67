//! Starts boxes: a warm box is used if it fits the grant, otherwise a cold one is created.

use ringwall_executor::{Options, RunningBox};
use ringwall_policy::Grant;

use super::Inner;
use crate::error::causes;

impl Inner {
    /// Starts a native box, from a warm box if one fits.
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<RunningBox, ringwall_executor::Error> {
        let sort = if self.makes_warm_boxes() { self.backends.executor.warm_spec_for(&grant) } else { None };
        if let Some(warm_box) = sort.and_then(|sort| self.boxes.take_warm_box(&sort)) {
            match self.backends.executor.start_warm_box(warm_box, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a warm box could not serve; a new box is made");
                    grant = unserved.grant;
                }
            }
        }
        self.backends.executor.start(grant, Options::default()).await
    }

    fn makes_warm_boxes(&self) -> bool {
        self.settings.read().pool.bounds().min_instances > 0
    }
}
