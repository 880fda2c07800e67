//! Resolves the session that a request names and checks that the caller may use it.
//!
//! A session that the caller may not use is reported as not found.

use ringwall_ids::SessionId;
use ringwall_record::SessionKey;

use crate::auth::principal::Principal;
use crate::error::Error;

/// The session of a request, as the request names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionAddress {
    pub session_id: String,
    /// If missing: the caller's own user, or `default` for owners and operators.
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
}

impl SessionAddress {
    /// Checks the id and the caller's rights. The session may not exist.
    pub(crate) fn resolve(&self, by: &Principal) -> Result<SessionKey, Error> {
        let session_id: SessionId = self.session_id.parse()?;
        let named = by.workspace(self.user_id.as_deref(), self.agent_id.as_deref());
        let (user_id, agent_id) = named.map_err(|error| match error {
            Error::Forbidden { .. } => no_session(&session_id),
            other => other,
        })?;
        Ok(SessionKey { user_id, agent_id, session_id })
    }
}

pub(crate) fn no_session(id: &SessionId) -> Error {
    Error::NotFound { what: format!("session {id}") }
}
