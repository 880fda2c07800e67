//! The stop of a server: nobody new, a while for those who run, then the end for the rest, all of it on record.

use std::sync::PoisonError;
use std::time::Duration;

use crate::exec::registry::Cancellation;
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
        // What does not end by itself is not waited for.
        for live in registry.all().into_iter().filter(|live| live.lasts()) {
            live.cancel(Cancellation::ServerStops);
        }
        if tokio::time::timeout(deadline, registry.wait_until_empty()).await.is_err() {
            for live in registry.all() {
                live.cancel(Cancellation::ServerStops);
            }
            // Nobody has to be asked to end what is in a session's box: it goes with that.
            let emptied = async { tokio::join!(self.inner.boxes.stop(), registry.wait_until_empty()) };
            if tokio::time::timeout(AFTERWARDS, emptied).await.is_err() {
                tracing::error!(execs = registry.all().len(), "execs without a recorded ending will be LOST");
            }
        }
        // A browser in a box that stands still would not hear that it is to end; it ends with its box.
        tokio::join!(self.inner.browsers.close(&self.inner.store), self.inner.boxes.stop());
        for task in [&self.inner.pruner, &self.inner.expirer, &self.inner.observer, &self.inner.measurer] {
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
