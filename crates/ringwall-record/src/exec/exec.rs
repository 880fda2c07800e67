//! One exec, as it is intended, ended and read back.
//!
//! Environment values have no place here: only the names of variables are ever handed in. What is JSON in the database
//! is checked to be JSON on the way in by its type, and on the way out by reading it.

use serde_json::Value as Json;

use crate::digest::Digest;
use crate::exec::status::{EndedAs, Status};
use crate::id::{AgentId, ExecId, UserId};
use crate::timestamp::Timestamp;

/// What is about to run, or was not allowed to.
#[derive(Debug, Clone)]
pub struct NewExec {
    pub exec_id: ExecId,
    pub user_id: UserId,
    pub agent_id: AgentId,
    /// Who asked: the id of the token. Idempotency keys are per caller.
    pub caller: String,
    /// Where it came in, for the audit chain alone.
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

/// A key that makes a request happen once, and the digest that tells whether the next one is the same request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    pub body_digest: Digest,
}

/// How an exec enters the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Queued,
    AwaitingApproval,
    Running {
        started_at: Timestamp,
    },
    /// It never runs: intent and ending are one.
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

/// Why an exec ended as it did, where its exit code does not say.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Reason {
    pub code: String,
    pub message: String,
}

/// Whether a stream was kept whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Whole,
    Truncated,
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Ending {
    pub status: EndedAs,
    pub exit_code: Option<i32>,
    pub error_reason: Option<Reason>,
    pub ended_at: Timestamp,
    /// Measured on a clock that does not jump, so not the difference of two moments.
    pub duration_ms: Option<u64>,
    /// What held the box.
    pub protections: Option<Json>,
    pub stdout: Kept,
    pub stderr: Kept,
    pub cpu_ms: Option<u64>,
    pub max_rss_bytes: Option<u64>,
}

/// The answer to an intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// It is on disk; it may run.
    Recorded,
    /// The caller has used this key before. Nothing was recorded, and nothing may run.
    Known { exec_id: ExecId, body_digest: Digest },
}

/// The answer to an ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Recorded,
    /// Somebody ended it first; that ending stands.
    EndedBefore(Status),
}

/// One line of a list. The long columns are left out: a page of them would have no bound worth the name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = ExecSummary)]
pub struct Summary {
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

/// What an exec was asked to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    pub user_id: UserId,
    pub args: Vec<String>,
    pub cwd: String,
    /// Whether it is a piece of code, and no line for a shell.
    pub is_code: bool,
}

/// Everything that is known of one exec.
#[derive(Debug, Clone, PartialEq)]
pub struct Exec {
    pub summary: Summary,
    /// The number of its intent in the audit chain.
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
    pub stdout: Kept,
    pub stderr: Kept,
    pub cpu_ms: Option<u64>,
    pub max_rss_bytes: Option<u64>,
}
