//! Finds the files of a session and the times of its creation and last use.

use std::path::PathBuf;

use ringwall_record::SessionKey;
use ringwall_workspace::{SessionTimes, Workspace};

use crate::blocking;
use crate::error::Error;
use crate::service::Service;
use crate::session_ref::SessionRef;

impl Service {
    /// The session's working directory. It may not exist yet.
    pub(crate) fn session_work(&self, place: &SessionRef) -> PathBuf {
        let workspace = self.inner.workspaces_path.join(place.name.user_id.as_str()).join(place.name.agent_id.as_str());
        workspace.join("sessions").join(place.id.as_str()).join("work")
    }

    pub(crate) async fn session_workspace(&self, name: &SessionKey) -> Result<Workspace, Error> {
        let owner = self.owner_of(&name.user_id, &name.agent_id).await?;
        blocking::in_place(|| Ok(self.inner.workspaces.workspace(&name.user_id, &name.agent_id, owner)?)).await
    }

    /// When a session was created and last used; `None` if it does not exist.
    pub(crate) async fn session_times(&self, place: &SessionRef) -> Result<Option<SessionTimes>, Error> {
        let workspace = self.session_workspace(&place.name).await?;
        blocking::in_place(|| Ok(workspace.session_times(&place.id)?)).await
    }
}
