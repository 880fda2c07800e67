//! Types of one exec: intent, outcome, and the row that is read back.
//!
//! Of the environment only the names of variables are stored, never their values.

use ringwall_ids::{AgentId, ExecId, UserId};
use serde_json::Value as Json;

use crate::digest::Digest;
use crate::exec::status::{FinalStatus, Status};
use crate::timestamp::Timestamp;

/// An exec to record before it runs, or one that was denied.
#[derive(Debug, Clone)]
pub struct NewExec {
    pub exec_id: ExecId,
    pub user_id: UserId,
    pub agent_id: AgentId,
    /// The id of the token. Idempotency keys are per caller.
    pub caller: String,
    /// The origin of the request; stored in the audit entry only.
    pub from: Json,
    pub idempotency: Option<Idempotency>,
    pub project_id: String,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub skill_id: Option<String>,
    pub backend: String,
    pub image: Option<String>,
    pub cmd: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub env_keys: Vec<String>,
    /// The effective policy.
    pub policy_snapshot: Json,
    pub artifacts_path: String,
    pub created_at: Timestamp,
    pub start: Start,
}

/// A client's key for one request, and the digest of the body, to detect that the key is reused for
/// another request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    pub body_digest: Digest,
}

/// The first state of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Queued,
    AwaitingApproval,
    Running {
        started_at: Timestamp,
    },
    /// Never runs: its intent is also its outcome.
    Denied(Reason),
}

impl Start {
    pub const fn status(&self) -> Status {
        match self {
            Start::Queued => Status::Queued,
            Start::AwaitingApproval => Status::AwaitingApproval,
            Start::Running { .. } => Status::Running,
            Start::Denied(_) => Status::PolicyDenied,
        }
    }
}

/// Why the exec ended this way; absent if the exit code says it
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

/// How much of an output stream is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredOutput {
    Complete,
    Truncated,
}

/// The outcome of an exec.
#[derive(Debug, Clone)]
pub struct ExecOutcome {
    pub status: FinalStatus,
    pub exit_code: Option<i32>,
    pub error_reason: Option<Reason>,
    pub ended_at: Timestamp,
    /// Measured on a monotonic clock, so it can differ from `ended_at` minus `started_at`.
    pub duration_ms: Option<u64>,
    /// The protections of the box, as JSON.
    pub protections: Option<Json>,
    pub stdout: StoredOutput,
    pub stderr: StoredOutput,
    pub cpu_ms: Option<u64>,
    pub max_rss_bytes: Option<u64>,
}

/// The answer to [`crate::Store::intend`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IntentResult {
    /// The intent is on disk; the exec may run.
    Recorded,
    /// The caller has used this idempotency key before. Nothing was recorded, and nothing may run.
    Known { exec_id: ExecId, body_digest: Digest },
}

/// The answer to [`crate::Store::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishResult {
    Recorded,
    /// The exec has an outcome already, which stays.
    AlreadyEnded(Status),
}

/// An exec in a list, without its arguments, policy and other long columns
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct ExecSummary {
    pub exec_id: ExecId,
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub project_id: String,
    pub task_id: Option<String>,
    pub conversation_id: Option<String>,
    pub skill_id: Option<String>,
    pub backend: String,
    pub status: Status,
    pub exit_code: Option<i32>,
    pub created_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub duration_ms: Option<u64>,
    pub artifacts_path: String,
}

/// The command of an exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecCommand {
    pub user_id: UserId,
    pub args: Vec<String>,
    pub cwd: String,
    /// The exec runs code, not a command line.
    pub is_code: bool,
}

/// One exec with all its columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    pub summary: ExecSummary,
    /// The number of its intent's entry in the audit chain.
    pub seq: i64,
    pub caller: String,
    pub idempotency: Option<Idempotency>,
    pub image: Option<String>,
    pub cmd: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub env_keys: Vec<String>,
    pub policy_snapshot: Json,
    pub protections: Option<Json>,
    pub error_reason: Option<Reason>,
    pub stdout: StoredOutput,
    pub stderr: StoredOutput,
    pub cpu_ms: Option<u64>,
    pub max_rss_bytes: Option<u64>,
}
