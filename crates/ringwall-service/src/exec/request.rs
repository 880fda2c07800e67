//! An exec request as the API received it, unchecked.

use std::collections::BTreeMap;

use ringwall_policy::Secret;

#[derive(Debug, Clone, Default)]
pub struct ExecRequest {
    pub user_id: Option<String>,
    pub agent_id: Option<String>,
    /// Default: `conversation_id`.
    pub project_id: Option<String>,
    pub skill_id: Option<String>,
    pub kind: String,
    pub command: String,
    pub args: Vec<String>,
    pub cwd: Option<String>,
    pub env: BTreeMap<String, Secret>,
    /// Path, relative to `inputs/`, and content.
    pub inputs: Vec<(String, Vec<u8>)>,
    pub overrides: Option<serde_json::Value>,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub backend: Option<String>,
    pub idempotency: Option<Idempotency>,
}

/// A key that makes a request run once, and the digest that identifies a repetition of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    /// SHA-256 of the body.
    pub body_digest: [u8; 32],
}
