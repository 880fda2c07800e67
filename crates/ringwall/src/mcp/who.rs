//! On whose behalf a request is made, and about which files: known for every request anew.
//!
//! Over HTTP both come with the request itself, after the gate and the question for a token; a session's id names nobody. On
//! standard streams it is whoever owns the data directory.

use std::net::SocketAddr;

use axum::http::request::Parts;
use ringwall_service::{Address, ClientClaim, Holder, Origin, Principal, SessionAddress};
use rmcp::ErrorData;
use rmcp::model::{Extensions, Implementation};
use serde::{Deserialize, Serialize};

use crate::http::Caller;

/// The agent, and the session, that are meant where nobody says one.
pub(crate) const DEFAULT: &str = "default";

/// Which workspace a connection is about, as its URL or the command line says.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scope {
    pub(crate) user: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) session: Option<String>,
}

/// Whoever makes a request.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) principal: Principal,
    pub(crate) scope: Scope,
}

impl Who {
    pub(crate) fn local(principal: Principal, scope: Scope) -> Self {
        Self { principal, scope }
    }

    /// The same, with what their client says of itself.
    pub(super) fn with(self, client: Option<&Implementation>, remote: Option<SocketAddr>) -> Self {
        let client = client.map(|client| ClientClaim::new(&client.name, &client.version));
        Self { principal: self.principal.through(Origin { door: "mcp", remote, client }), ..self }
    }

    /// Whoever sent the request over HTTP, and from where.
    pub(super) fn of(extensions: &Extensions) -> Result<(Self, Option<SocketAddr>), ErrorData> {
        let found = extensions.get::<Parts>().and_then(|parts| {
            let principal = parts.extensions.get::<Principal>()?.clone();
            let scope = parts.extensions.get::<Scope>()?.clone();
            let remote = parts.extensions.get::<Caller>().map(|caller| caller.remote);
            Some((Self { principal, scope }, remote))
        });
        found.ok_or_else(|| ErrorData::internal_error("nobody knows who sent this request", None))
    }

    pub(super) fn user(&self) -> Option<String> {
        self.scope.user.clone()
    }

    /// An agent's token is of one agent, so that nothing else has to be named.
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

    /// Whether a question can be put to them: an agent never answers.
    pub(super) fn may_answer(&self) -> bool {
        match self.principal.holder() {
            Holder::Owner | Holder::Operator | Holder::User(_) => true,
            Holder::Agent(..) => false,
        }
    }
}
