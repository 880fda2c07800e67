//! Reads, lists and cancels execs. Execs that the caller may not see are reported as not found.

use std::sync::Arc;

use ringwall_ids::ExecId;
use ringwall_record::{Cursor, ExecListFilter, ExecSummary, Limit, Page, Status};

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::registry::{Cancellation, RunningExec};
use crate::exec::view::ExecView;
use crate::service::Service;

/// Filter of a list. `None` restricts nothing.
#[derive(Debug, Clone, Default)]
pub struct ExecFilter {
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub status: Option<Status>,
}

impl Service {
    /// The current state of an exec.
    pub async fn exec(&self, by: &Principal, exec_id: &ExecId) -> Result<ExecView, Error> {
        Ok(self.recorded(by, exec_id).await?.into())
    }

    /// Waits until the exec has ended.
    pub async fn finished(&self, by: &Principal, exec_id: &ExecId) -> Result<ExecView, Error> {
        if let Some(running) = self.find_running(by, exec_id)
            && let Some(ended) = running.over().await
        {
            return Ok(ended.view.clone());
        }
        self.exec(by, exec_id).await
    }

    /// Newest first.
    pub async fn execs(
        &self,
        by: &Principal,
        filter: ExecFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<ExecSummary>, Error> {
        let ExecFilter { task_id, project_id, status } = filter;
        let filter = ExecListFilter { scope: by.scope(), task_id, project_id, status };
        Ok(self.inner.store.list(&filter, limit, cursor).await?)
    }

    /// Cancels a running or waiting exec and waits for its end. Fails with [`Error::AlreadyEnded`]
    /// if it ended by itself first.
    pub async fn cancel(&self, by: &Principal, exec_id: &ExecId) -> Result<ExecView, Error> {
        let Some(running) = self.find_running(by, exec_id) else {
            let exec = self.recorded(by, exec_id).await?;
            return Err(Error::AlreadyEnded(exec.summary.exec_id));
        };
        running.cancel(Cancellation::ByCaller);
        let view = self.finished(by, exec_id).await?;
        match view.summary.status {
            Status::Cancelled => Ok(view),
            // It ended by itself before the cancellation took effect.
            _ => Err(Error::AlreadyEnded(exec_id.clone())),
        }
    }

    pub(crate) fn find_running(&self, by: &Principal, exec_id: &ExecId) -> Option<Arc<RunningExec>> {
        let running =
            self.inner.registry.find(exec_id).filter(|running| by.sees(&running.user_id, &running.agent_id))?;
        // Its outcome is recorded, and it is about to leave the registry.
        (!running.is_over()).then_some(running)
    }
}
