//! Records connections in a session box that end after their exec. They are written in batches once
//! a second, so that a box which connects without end does not cause as many writes.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use ringwall_executor::egress::Connection;
use ringwall_ids::{AgentId, ExecId, UserId};
use tokio::sync::Notify;

use super::ask::Asking;
use super::gate::Notes;

/// Interval of writes.
const PAUSE: Duration = Duration::from_secs(1);

/// Connections of a box that ended after the exec in whose name they were asked for.
#[derive(Debug)]
pub(crate) struct LateNetwork {
    pub(crate) exec_id: ExecId,
    pub(crate) owner: (UserId, AgentId),
    pub(crate) notes: Notes,
}

/// Records them. It must not keep the server alive.
pub(crate) type RecordLate = Box<dyn Fn(Vec<LateNetwork>) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Debug, Default)]
pub(crate) struct Late {
    held: Mutex<BTreeMap<ExecId, (UserId, AgentId, Notes)>>,
    added: Notify,
}

impl Late {
    pub(super) fn add(&self, exec: &Asking, connection: Connection) {
        let mut held = self.held.lock();
        let owned = || (exec.user_id.clone(), exec.agent_id.clone(), Notes::default());
        held.entry(exec.exec_id.clone()).or_insert_with(owned).2.add(connection);
        self.added.notify_one();
    }

    /// Returns one interval after something was added.
    pub(super) async fn due(&self) {
        self.added.notified().await;
        tokio::time::sleep(PAUSE).await;
    }

    /// Everything that was added since the last call.
    pub(super) fn take(&self) -> Vec<LateNetwork> {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter()
            .map(|(exec_id, (user, agent, notes))| LateNetwork { exec_id, owner: (user, agent), notes })
            .collect()
    }
}
