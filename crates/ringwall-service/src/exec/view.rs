//! An exec as the API returns it. Field names are the JSON names.

use ringwall_record::{Exec, ExecOutcome, ExecSummary, NewExec, Reason, Start, StoredOutput};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::error::Error;
use crate::error::codes::{BACKEND_UNAVAILABLE, DISK_QUOTA, INVALID_ARGUMENT, POOL_FULL, RUNTIME_ERROR, SESSION_BUSY};

/// Everything that callers can know of one exec.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ExecView {
    #[serde(flatten)]
    pub summary: ExecSummary,
    pub image: Option<String>,
    pub cmd: String,
    pub args: Vec<String>,
    pub cwd: String,
    pub env_keys: Vec<String>,
    /// The policy in force, and for each limit the layer that set it
    #[schema(value_type = Object)]
    pub policy_snapshot: Value,
    /// What held the box, each with its state
    #[schema(value_type = Option<Vec<Object>>)]
    pub protections: Option<Value>,
    pub error_reason: Option<Reason>,
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub usage: Usage,
}

/// Unknown values are null.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    pub cpu_ms: Option<u64>,
    /// The most memory that the box had at once
    pub max_rss_bytes: Option<u64>,
}

impl ExecView {
    /// The API error for an exec whose command never ran: its backend is unavailable, its box could
    /// not be created, the disk or the pool is full, or its inputs or directory are invalid. The
    /// exec is recorded as FAILED.
    pub fn failure(&self) -> Option<Error> {
        let reason = self.error_reason.as_ref().filter(|_| self.summary.exit_code.is_none())?;
        match reason.code.as_str() {
            BACKEND_UNAVAILABLE => {
                Some(Error::BackendUnavailable { backend: self.summary.backend.clone(), why: reason.message.clone() })
            }
            DISK_QUOTA => Some(Error::DiskQuota { message: reason.message.clone() }),
            INVALID_ARGUMENT => Some(Error::invalid(reason.message.clone())),
            SESSION_BUSY => Some(Error::Conflict { message: reason.message.clone() }),
            POOL_FULL => Some(Error::PoolFull { message: reason.message.clone() }),
            RUNTIME_ERROR => Some(Error::Runtime { message: reason.message.clone() }),
            _ => None,
        }
    }

    pub(crate) fn ended(exec: &NewExec, outcome: &ExecOutcome) -> Self {
        let started_at = match exec.start {
            Start::Running { started_at } => Some(started_at),
            Start::Queued | Start::AwaitingApproval | Start::Denied(_) => None,
        };
        Self {
            summary: ExecSummary {
                exec_id: exec.exec_id.clone(),
                user_id: exec.user_id.clone(),
                agent_id: exec.agent_id.clone(),
                project_id: exec.project_id.clone(),
                task_id: exec.task_id.clone(),
                conversation_id: exec.conversation_id.clone(),
                skill_id: exec.skill_id.clone(),
                backend: exec.backend.clone(),
                status: outcome.status.into(),
                exit_code: outcome.exit_code,
                created_at: exec.created_at,
                started_at,
                ended_at: Some(outcome.ended_at),
                duration_ms: outcome.duration_ms,
                artifacts_path: exec.artifacts_path.clone(),
            },
            image: exec.image.clone(),
            cmd: exec.cmd.clone(),
            args: exec.args.clone(),
            cwd: exec.cwd.clone(),
            env_keys: exec.env_keys.clone(),
            policy_snapshot: exec.policy_snapshot.clone(),
            protections: outcome.protections.clone(),
            error_reason: outcome.error_reason.clone(),
            stdout_truncated: outcome.stdout == StoredOutput::Truncated,
            stderr_truncated: outcome.stderr == StoredOutput::Truncated,
            usage: Usage { cpu_ms: outcome.cpu_ms, max_rss_bytes: outcome.max_rss_bytes },
        }
    }
}

impl From<Exec> for ExecView {
    fn from(exec: Exec) -> Self {
        Self {
            summary: exec.summary,
            image: exec.image,
            cmd: exec.cmd,
            args: exec.args,
            cwd: exec.cwd,
            env_keys: exec.env_keys,
            policy_snapshot: exec.policy_snapshot,
            protections: exec.protections,
            error_reason: exec.error_reason,
            stdout_truncated: exec.stdout == StoredOutput::Truncated,
            stderr_truncated: exec.stderr == StoredOutput::Truncated,
            usage: Usage { cpu_ms: exec.cpu_ms, max_rss_bytes: exec.max_rss_bytes },
        }
    }
}
