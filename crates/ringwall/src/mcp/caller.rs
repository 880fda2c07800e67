//! The caller of a request: its principal, and the user, agent and session that its tools work for.
//!
//! Over HTTP both come from the authenticated request, never from the MCP session. On standard
//! streams the principal is the owner of the data directory.

use std::net::SocketAddr;

use axum::http::request::Parts;
use ringwall_service::{Address, ClientClaim, Holder, Origin, Principal, SessionAddress};
use rmcp::ErrorData;
use rmcp::model::{Extensions, Implementation};
use serde::{Deserialize, Serialize};

use crate::http::ClientConnection;

/// The default agent and session.
pub(crate) const DEFAULT: &str = "default";

/// The user, agent and session of a connection, from the query of its URL or from the command line.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scope {
    pub(crate) user: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) session: Option<String>,
}

/// The caller of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) scope: Scope,
}

impl Caller {
    pub(crate) fn local(principal: Principal, scope: Scope) -> Self {
        Self { principal, scope }
    }

    /// Adds the client's name and version as it claims them, and its address.
    pub(super) fn with_client(self, client: Option<&Implementation>, remote: Option<SocketAddr>) -> Self {
        let client = client.map(|client| ClientClaim::new(&client.name, &client.version));
        Self { principal: self.principal.through(Origin { door: "mcp", remote, client }), ..self }
    }

    /// The caller of a request over HTTP, and its address.
    pub(super) fn from_extensions(extensions: &Extensions) -> Result<(Self, Option<SocketAddr>), ErrorData> {
        let found = extensions.get::<Parts>().and_then(|parts| {
            let principal = parts.extensions.get::<Principal>()?.clone();
            let scope = parts.extensions.get::<Scope>()?.clone();
            let remote = parts.extensions.get::<ClientConnection>().map(|caller| caller.remote);
            Some((Self { principal, scope }, remote))
        });
        found.ok_or_else(|| ErrorData::internal_error("the request has no principal", None))
    }

    pub(super) fn user(&self) -> Option<String> {
        self.scope.user.clone()
    }

    /// The named agent; without one the agent of an agent's token, or the default.
    pub(super) fn agent(&self) -> String {
        match (&self.scope.agent, self.principal.holder()) {
            (Some(agent), _) => agent.clone(),
            (None, Holder::Agent(_, own)) => own.to_string(),
            (None, Holder::Owner | Holder::Operator | Holder::User(_)) => DEFAULT.to_owned(),
        }
    }

    pub(super) fn session(&self, named: Option<String>) -> String {
        named.or_else(|| self.scope.session.clone()).unwrap_or_else(|| DEFAULT.to_owned())
    }

    pub(super) fn session_address(&self, named: Option<String>) -> SessionAddress {
        SessionAddress { session_id: self.session(named), user_id: self.user(), agent_id: Some(self.agent()) }
    }

    pub(super) fn address(&self) -> Address {
        Address { user: self.user(), agent: self.agent() }
    }

    /// True if the principal may answer approvals: every one but an agent.
    pub(super) fn may_answer(&self) -> bool {
        match self.principal.holder() {
            Holder::Owner | Holder::Operator | Holder::User(_) => true,
            Holder::Agent(..) => false,
        }
    }
}
