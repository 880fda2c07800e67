//! Where a request came in, for the audit chain. It gives no right and takes none.
//!
//! What a client says of itself is its own word: it is kept short, without what could steer a reader, and under a name that
//! says so.

use std::net::SocketAddr;

use serde_json::{Value, json};

const MAX_NAME_LEN: usize = 80;
const MAX_VERSION: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The kind of door.
    pub door: &'static str,
    pub remote: Option<SocketAddr>,
    pub client: Option<ClientClaim>,
}

/// A program's name and version, as it gives them itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientClaim {
    name: String,
    version: String,
}

impl ClientClaim {
    pub fn new(name: &str, version: &str) -> Self {
        Self { name: short(name, MAX_NAME_LEN), version: short(version, MAX_VERSION) }
    }
}

impl Origin {
    /// Nobody's but the server's own.
    pub(crate) const INSIDE: Self = Self { door: "inside", remote: None, client: None };

    /// For the record of what it asks for.
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
    fn a_claim_is_short_and_says_that_it_is_one() {
        let client = Some(ClientClaim::new(&"x\u{1b}".repeat(1000), "1.0\0\n"));
        let note = Origin { door: "mcp", remote: None, client }.note();
        assert_eq!(note["client_says"], json!({ "name": "x".repeat(MAX_NAME_LEN), "version": "1.0" }));
        assert_eq!(Origin::INSIDE.note(), json!({ "door": "inside" }));
    }
}
