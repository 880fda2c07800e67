//! Resolves the session that a request names and checks that the caller may use it.
//!
//! A session id is unique within a user and agent. A session that the caller may not use is
//! reported as not found.

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

/// A checked session id. The session may not exist.
#[derive(Debug, Clone)]
pub(crate) struct SessionRef {
    pub(crate) name: SessionKey,
    pub(crate) id: SessionId,
}

impl SessionRef {
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

pub(crate) fn no_session(id: &SessionId) -> Error {
    Error::NotFound { what: format!("session {id}") }
}
