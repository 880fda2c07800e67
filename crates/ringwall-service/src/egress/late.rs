//! Records connections in a session box that end after their exec. They are written in batches once
//! a second, so that a box which connects without end does not cause as many writes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringwall_executor::egress::Connection;
use ringwall_record::{AgentId, ExecId, UserId};
use tokio::sync::Notify;

use super::ask::Asking;
use super::gate::Notes;
use crate::error::causes;
use crate::service::{Inner, now};

/// Interval of writes.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Late {
    held: Mutex<BTreeMap<ExecId, (UserId, AgentId, Notes)>>,
    added: Notify,
}

impl Late {
    pub(super) fn add(&self, exec: &Asking, connection: Connection) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = || (exec.user_id.clone(), exec.agent_id.clone(), Notes::default());
        held.entry(exec.exec_id.clone()).or_insert_with(owned).2.add(connection);
        self.added.notify_one();
    }

    /// Returns one interval after something was added.
    pub(super) async fn due(&self) {
        self.added.notified().await;
        tokio::time::sleep(PAUSE).await;
    }

    pub(super) async fn record(&self, inner: &Inner) {
        let held = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        for (exec_id, (user, agent, notes)) in held {
            let recorded = inner.store.record_network(&exec_id, (user, agent), notes.to_record(), now());
            if let Err(error) = recorded.await {
                tracing::error!(%exec_id, error = %causes(&error), ?notes, "could not record a network");
            }
        }
    }
}
