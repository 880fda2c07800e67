//! Boxes from warm ones: a warm box that fits the grant is used, otherwise a cold one is made.

use std::sync::PoisonError;

use ringwall_executor::docker::Runtime;
use ringwall_executor::session_box::Resident;
use ringwall_executor::{Options, RunningBox};
use ringwall_policy::Grant;

use super::Inner;
use crate::boxes::{BoxSort, SpareBox};
use crate::error::causes;

impl Inner {
    /// A native box for this grant: a spare that serves it, or one made from nothing.
    pub(crate) async fn start_native(&self, mut grant: Grant) -> Result<RunningBox, ringwall_executor::Error> {
        let sort = if self.makes_spares() { self.makers.executor.sort_for(&grant) } else { None };
        if let Some(SpareBox::Native(spare)) = sort.and_then(|sort| self.boxes.take_spare(&BoxSort::Native(sort))) {
            match self.makers.executor.start_spare(*spare, grant).await {
                Ok(running) => return Ok(running),
                Err(unserved) => {
                    tracing::debug!(error = %causes(&unserved.error), "a box made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.makers.executor.start(grant, Options::default()).await
    }

    /// A session's box by docker: a container that waits for one, or one made from nothing under this name. It is the
    /// pool's by the place of its session from before this is called, so that what is taken out here is never uncounted.
    pub(crate) async fn settle_on_docker(
        &self,
        mut grant: Grant,
        name: &str,
    ) -> Result<Resident, ringwall_executor::Error> {
        let shape =
            if self.makes_spares() { self.makers.docker.shape_for(&self.makers.executor, &grant).await } else { None };
        let spare = shape.and_then(|shape| self.boxes.take_spare(&BoxSort::Container(shape)));
        if let Some(SpareBox::Container(spare)) = spare {
            match self.makers.docker.start_resident_in(&self.makers.executor, *spare, grant).await {
                Ok(resident) => return Ok(resident),
                Err(unserved) => {
                    tracing::info!(error = %causes(&unserved.error), "a container made ahead did not serve");
                    grant = unserved.grant;
                }
            }
        }
        self.makers.docker.start_resident(grant, name, Runtime::Usual).await
    }

    fn makes_spares(&self) -> bool {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).pool.bounds().min_instances > 0
    }
}
