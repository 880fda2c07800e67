//! The origin of a request, for the audit log only. It has no effect on permissions.
//!
//! The client's name and version are unverified claims. They are shortened, control characters are
//! removed, and the audit entry stores them as `client_says`.

use std::net::SocketAddr;

use serde_json::{Value, json};

const MAX_NAME_LEN: usize = 80;
const MAX_VERSION_LEN: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The kind of transport.
    pub door: &'static str,
    pub remote: Option<SocketAddr>,
    pub client: Option<ClientClaim>,
}

/// The name and version that a client claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientClaim {
    name: String,
    version: String,
}

impl ClientClaim {
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: short(name, MAX_NAME_LEN), version: short(version, MAX_VERSION_LEN) }
    }
}

impl Origin {
    /// Actions of the server itself.
    pub(crate) const INSIDE: Self = Self { door: "inside", remote: None, client: None };

    /// The JSON form in audit entries.
    pub(crate) fn note(&self) -> Value {
        let mut note = json!({ "door": self.door });
        if let Some(remote) = self.remote {
            note["remote"] = remote.to_string().into();
        }
        if let Some(client) = &self.client {
            note["client_says"] = json!({ "name": client.name, "version": client.version });
        }
        note
    }
}

fn short(text: &str, longest: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(longest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_claim_is_shortened_and_marked() {
        let client = Some(ClientClaim::new(&"x\u{1b}".repeat(1000), "1.0\0\n"));
        let note = Origin { door: "mcp", remote: None, client }.note();
        assert_eq!(note["client_says"], json!({ "name": "x".repeat(MAX_NAME_LEN), "version": "1.0" }));
        assert_eq!(Origin::INSIDE.note(), json!({ "door": "inside" }));
    }
}
