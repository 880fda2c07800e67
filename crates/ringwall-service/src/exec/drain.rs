//! Stops the server: refuses new execs, waits for running ones until a deadline, then kills the
//! rest. Every exec gets a recorded outcome.

use std::time::Duration;

use crate::exec::registry::Cancellation;
use crate::service::Service;

/// Time for killed boxes to end and for their outcomes to be recorded.
const AFTERWARDS: Duration = Duration::from_secs(12);
const STOPPED: &str = "the server was stopped";

impl Service {
    /// Queued execs may still start before the deadline. Later requests are refused.
    pub async fn drain(&self, deadline: Duration) {
        let registry = &self.inner.registry;
        registry.close();
        // Approvals are closed now, which ends the execs that wait for one.
        self.close_approvals(STOPPED).await;
        // These do not end by themselves, so waiting would only use up the deadline.
        for running in registry.all().into_iter().filter(|running| running.lasts()) {
            running.cancel(Cancellation::ServerStops);
        }
        if tokio::time::timeout(deadline, registry.wait_until_empty()).await.is_err() {
            for running in registry.all() {
                running.cancel(Cancellation::ServerStops);
            }
            // Stopping the session boxes kills the processes inside them.
            let emptied = async { tokio::join!(self.inner.boxes.stop(), registry.wait_until_empty()) };
            if tokio::time::timeout(AFTERWARDS, emptied).await.is_err() {
                tracing::error!(execs = registry.all().len(), "execs without a recorded ending will be LOST");
            }
        }
        // A browser in a paused box cannot react to a close request; it ends with its box.
        tokio::join!(self.inner.browsers.close(&self.inner.store), self.inner.boxes.stop());
        let background = std::mem::take(&mut *self.inner.background.lock());
        for task in background {
            task.abort();
            // After this the task holds no reference to the server.
            let _ = task.await;
        }
        self.expire_pending_approvals(STOPPED).await;
        self.inner.store.close().await;
    }
}
