//! Runs code on the external AIO service, and selects what starts an exec.

use std::sync::Arc;

use ringwall_executor::aio_service::{AioService, OnCreated};
use ringwall_ids::{AgentId, UserId};
use ringwall_policy::Grant;

use crate::exec::backend::{Backend, StartedBox};
use crate::exec::lifecycle::Exec;
use crate::exec::run_notes::{Created, RunNotes};
use crate::exec::spec::Target;
use crate::service::Inner;

impl Inner {
    /// The service that is assigned to this workspace, if any.
    pub(crate) fn service_for(&self, user: &UserId, agent: &AgentId) -> Option<&AioService> {
        let assigned = self.aio.as_ref().filter(|assigned| (&assigned.user, &assigned.agent) == (user, agent));
        assigned.map(|assigned| &assigned.service)
    }
}

impl Exec {
    /// Starts the exec's box, or its command on the AIO service if that backend was selected.
    /// Checks the assignment again.
    pub(crate) async fn start_box(&self, grant: Grant) -> Result<StartedBox, ringwall_executor::Error> {
        let (inner, exec_id) = (&self.service.inner, self.intent.exec_id.as_str());
        let service = inner.service_for(&self.spec.user_id, &self.spec.agent_id);
        match (self.spec.backend, &self.spec.target, service) {
            (Backend::AioService, Target::Code(code), Some(service)) => {
                let on_created = keep_created(code.run_notes.clone());
                Ok(service.start(grant, exec_id, code.service_work(), on_created).await?.into())
            }
            (_, Target::Code(code), _) if code.context().is_some() => {
                let context = code.context().unwrap_or_default();
                self.start_cell(grant, code, context).await
            }
            (Backend::Aio, Target::Code(code), _) => self.start_in_session(grant, code).await,
            (backend, _, _) => inner.start(backend, grant, exec_id).await.map(Into::into),
        }
    }
}

/// Records the names of the files that code created on the service.
fn keep_created(run_notes: Arc<RunNotes>) -> OnCreated {
    Box::new(move |created| match created {
        Ok(created) => run_notes.created(Created::These(created)),
        Err(error) => {
            run_notes.created(Created::Unknown);
            tracing::warn!(%error, "could not see what code made on the AIO service");
        }
    })
}
