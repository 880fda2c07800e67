//! What a door hands over: an exec as it was asked for, nothing of it checked yet.

use std::collections::BTreeMap;

use ringwall_policy::Secret;

#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    /// The conversation's id stands in for an absent one.
    pub project_id: Option<String>,
    pub skill_id: Option<String>,
    pub kind: String,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, Secret>,
    /// Paths relative to `inputs/`, and their content.
    pub inputs: Vec<(String, Vec<u8>)>,
    pub overrides: Option<serde_json::Value>,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub backend: Option<String>,
    pub idempotency: Option<Idempotency>,
}

/// A key that makes a request happen once, and what tells whether the next one is the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
}
