//! From what a request names to a session: who may, which ids, where its files are.
//!
//! Ids are a user's and an agent's own: another user's session of the same id is another session, and one that is not the
//! asker's does not exist for them.

use std::path::PathBuf;

use ringwall_record::SessionKey;
use ringwall_workspace::{SessionId, SessionTimes, Workspace};

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

/// Which session a request is about, as it names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionAddress {
    pub session_id: String,
    /// The caller's own where none is named; `default` for those who are nobody's.
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
}

/// A session's name, checked. It may not be there.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) name: SessionKey,
    pub(crate) id: SessionId,
}

impl Place {
    pub(crate) fn read(by: &Principal, address: &SessionAddress) -> Result<Self, Error> {
        let id: SessionId = address.session_id.parse()?;
        let named = by.workspace(address.user_id.as_deref(), address.agent_id.as_deref());
        let (user_id, agent_id) = named.map_err(|error| match error {
            Error::Forbidden { .. } => no_session(&id),
            other => other,
        })?;
        Ok(Self { name: SessionKey { user_id, agent_id, session_id: id.to_string() }, id })
    }
}

impl Service {
    /// Where a session's files are or will be.
    pub(crate) fn session_work(&self, place: &Place) -> PathBuf {
        let workspace = self.inner.workspaces_path.join(place.name.user_id.as_str()).join(place.name.agent_id.as_str());
        workspace.join("sessions").join(place.id.as_str()).join("work")
    }

    pub(crate) async fn session_workspace(&self, name: &SessionKey) -> Result<Workspace, Error> {
        let owner = self.owner_of(&name.user_id, &name.agent_id).await?;
        let (user, agent) = (name.user_id.as_str().parse()?, name.agent_id.as_str().parse()?);
        Self::blocking(|| Ok(self.inner.workspaces.workspace(&user, &agent, owner)?)).await
    }

    /// When a session was made and last used, if it is there.
    pub(crate) async fn session_times(&self, place: &Place) -> Result<Option<SessionTimes>, Error> {
        let workspace = self.session_workspace(&place.name).await?;
        Self::blocking(|| Ok(workspace.session_times(&place.id)?)).await
    }
}

pub(crate) fn no_session(id: &SessionId) -> Error {
    Error::NotFound { what: format!("session {id}") }
}
