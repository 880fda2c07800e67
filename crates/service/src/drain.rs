//! The stop of a server: nobody new, a while for those who run, then the end for the rest, all of it on record.

use std::sync::PoisonError;
use std::time::Duration;

use crate::live::Cancellation;
use crate::service::Service;

/// How long boxes that were killed may take to go, or not to come up, and their endings to be recorded.
const AFTERWARDS: Duration = Duration::from_secs(12);
const STOPPED: &str = "the server was stopped";

impl Service {
    /// Those who wait in line still get their turn before the deadline. What is asked of the service afterwards is
    /// refused.
    pub async fn drain(&self, deadline: Duration) {
        let registry = &self.inner.registry;
        registry.close();
        // Nobody can answer them in time any more: those who wait for a person end now.
        self.close_approvals(STOPPED).await;
        if tokio::time::timeout(deadline, registry.wait_until_empty()).await.is_err() {
            for live in registry.all() {
                live.cancel(Cancellation::ServerStops);
            }
            if tokio::time::timeout(AFTERWARDS, registry.wait_until_empty()).await.is_err() {
                tracing::error!(execs = registry.all().len(), "execs without a recorded ending will be LOST");
            }
        }
        self.inner.browsers.close(&self.inner).await;
        self.inner.boxes.stop().await;
        for task in [&self.inner.pruner, &self.inner.expirer, &self.inner.observer] {
            let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(task) = task {
                task.abort();
                // Aborted or not, it is gone then, and holds nothing of this server any more.
                let _ = task.await;
            }
        }
        self.expire_pending_approvals(STOPPED).await;
        self.inner.store.close().await;
    }
}
