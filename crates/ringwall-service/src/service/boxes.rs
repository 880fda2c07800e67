//! Starts boxes: a warm box is used if it fits the grant, otherwise a cold one is created.

use ringwall_executor::docker::Runtime;
use ringwall_executor::session_box::SessionBox;
use ringwall_executor::{Options, RunningBox};
use ringwall_policy::Grant;

use super::Inner;
use crate::boxes::{BackendWarmBox, BoxSort};
use crate::error::causes;

impl Inner {
    /// Starts a native box, from a warm box if one fits.
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<RunningBox, ringwall_executor::Error> {
        let sort = if self.makes_warm_boxes() { self.backends.executor.sort_for(&grant) } else { None };
        if let Some(BackendWarmBox::Native(warm_box)) =
            sort.and_then(|sort| self.boxes.take_warm_box(&BoxSort::Native(sort)))
        {
            match self.backends.executor.start_warm_box(*warm_box, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a box made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.backends.executor.start(grant, Options::default()).await
    }

    /// Starts a session's Docker box, from a warm container if one fits, otherwise a new one with
    /// this name. The caller has already registered it in the pool for the session, so a warm
    /// container taken here is always counted.
    pub(crate) async fn settle_on_docker(
        &self,
        mut grant: Grant,
        name: &str,
    ) -> Result<SessionBox, ringwall_executor::Error> {
        let shape = if self.makes_warm_boxes() {
            self.backends.docker.shape_for(&self.backends.executor, &grant).await
        } else {
            None
        };
        let warm_box = shape.and_then(|shape| self.boxes.take_warm_box(&BoxSort::Container(shape)));
        if let Some(BackendWarmBox::Container(warm_box)) = warm_box {
            match self.backends.docker.start_session_box_in(&self.backends.executor, *warm_box, grant).await {
                Ok(session_box) => return Ok(session_box),
                Err(unserved) => {
                    tracing::info!(error = %causes(&unserved.error), "a container made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.backends.docker.start_session_box(grant, name, Runtime::Default).await
    }

    fn makes_warm_boxes(&self) -> bool {
        self.settings.read().pool.bounds().min_instances > 0
    }
}
