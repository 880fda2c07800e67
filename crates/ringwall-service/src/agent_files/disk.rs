//! Disk quotas of workspaces and sessions, as the settings define them.

use ringwall_ids::{AgentId, SessionId, UserId};
use ringwall_record::Store;
use ringwall_workspace::{Usage, Workspace};

use super::open::Agent;
use crate::disk::{Disk, MIB};
use crate::error::Error;
use crate::service::Service;

impl Service {
    /// The quota of a workspace.
    fn workspace_quota(&self) -> Usage {
        let settings = self.settings_now().workspace;
        Usage { bytes: u64::from(settings.quota_mb.get()) * MIB, files: settings.quota_files.get().into() }
    }

    /// Rejects a large command if recording it would exceed the workspace's quota.
    /// Concurrent requests see the same figure, so together they can exceed the quota.
    pub(crate) async fn check_room_on_record(
        &self,
        user: &UserId,
        agent: &AgentId,
        words: &[String],
    ) -> Result<(), Error> {
        let size: usize = words.iter().map(String::len).sum();
        if size <= Store::MAX_UNCOUNTED_BYTES {
            return Ok(());
        }
        let recorded = self.inner.store.recorded_bytes(user, agent).await?;
        self.inner.quotas.set_recorded(user, agent, recorded);
        self.inner.quotas.check_room_on_record(user, agent, size as u64, self.workspace_quota())
    }

    /// Reads the recorded bytes of all workspaces, at the start and after retention.
    pub(crate) async fn load_recorded(&self) -> Result<(), Error> {
        for (user, agent, bytes) in self.inner.store.all_recorded_bytes().await? {
            self.inner.quotas.set_recorded(&user, &agent, bytes);
        }
        Ok(())
    }

    pub(crate) fn disk(&self, user: &UserId, agent: &AgentId, workspace: &Workspace) -> Disk {
        Disk::of_workspace(&self.inner.quotas, user, agent, workspace, self.workspace_quota())
    }

    /// The quota of a session, in addition to that of its workspace.
    pub(crate) fn session_disk(&self, disk: &Disk, session: &SessionId) -> Disk {
        disk.of_session(session, u64::from(self.settings_now().sessions.max_mb.get()) * MIB)
    }

    pub(super) fn disk_of(&self, agent: &Agent) -> Disk {
        self.disk(&agent.user, &agent.agent, agent.tree.workspace())
    }
}
