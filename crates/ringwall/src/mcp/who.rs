//! On whose behalf a request is made, and about which files: known for every request anew.
//!
//! Over HTTP both come with the request itself, after the gate and the question for a token; a session's id names nobody. On
//! standard streams it is whoever owns the data directory.

use std::net::SocketAddr;

use axum::http::request::Parts;
use rmcp::ErrorData;
use rmcp::model::Extensions;
use serde::Deserialize;
use service::{Address, Holder, Origin, Principal, SessionAddress};

use crate::http::Caller;

/// The agent, and the session, that are meant where nobody says one.
pub(crate) const USUAL: &str = "default";

/// Which workspace a connection is about, as its URL or the command line says.
#[derive(Debug, Clone, Default, Deserialize)]
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
        Self { principal: principal.coming_from(origin(None)), scope }
    }

    /// Whoever sent the request over HTTP.
    pub(super) fn of(extensions: &Extensions) -> Result<Self, ErrorData> {
        let found = extensions.get::<Parts>().and_then(|parts| {
            let principal = parts.extensions.get::<Principal>()?.clone();
            let scope = parts.extensions.get::<Scope>()?.clone();
            let remote = parts.extensions.get::<Caller>().map(|caller| caller.remote);
            Some(Self { principal: principal.coming_from(origin(remote)), scope })
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
            (None, Holder::Owner | Holder::Operator | Holder::User(_)) => USUAL.to_owned(),
        }
    }

    pub(super) fn session(&self, named: Option<String>) -> String {
        named.or_else(|| self.scope.session.clone()).unwrap_or_else(|| USUAL.to_owned())
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

fn origin(remote: Option<SocketAddr>) -> Origin {
    Origin { door: "mcp", remote }
}
