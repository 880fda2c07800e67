//! Starts boxes: a warm box is used if it fits the grant, otherwise a cold one is created.

use std::sync::PoisonError;

use ringwall_executor::docker::Runtime;
use ringwall_executor::session_box::Resident;
use ringwall_executor::{Options, RunningBox};
use ringwall_policy::Grant;

use super::Inner;
use crate::boxes::{BoxSort, SpareBox};
use crate::error::causes;

impl Inner {
    /// Starts a native box, from a warm box if one fits.
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

    /// Starts a session's Docker box, from a warm container if one fits, otherwise a new one with
    /// this name. The caller has already registered it in the pool for the session, so a warm
    /// container taken here is always counted.
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
