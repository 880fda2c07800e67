//! Errors of an agent's routes: the contract's message and its kind.

use ringwall_workspace::{Refusal, RefusalKind};

use crate::error::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AgentProblem {
    pub kind: ProblemKind,
    pub message: String,
}

/// HTTP maps each kind to a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    Invalid,
    Security,
    Missing,
    Timeout,
    Mismatch,
    TooLarge,
    Busy,
}

impl ProblemKind {
    /// The error code, for protocols that have one.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            ProblemKind::Invalid => "INVALID_ARGUMENT",
            ProblemKind::Security => "FORBIDDEN",
            ProblemKind::Missing => "NOT_FOUND",
            ProblemKind::Timeout => "TIMEOUT",
            ProblemKind::Mismatch => "CONFLICT",
            ProblemKind::TooLarge => "TOO_LARGE",
            ProblemKind::Busy => "BUSY",
        }
    }
}

impl Error {
    pub(crate) fn agent(kind: ProblemKind, message: impl Into<String>) -> Self {
        Error::Agent(AgentProblem { kind, message: message.into() })
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal.kind() {
            RefusalKind::Invalid => ProblemKind::Invalid,
            RefusalKind::Security => ProblemKind::Security,
            RefusalKind::Missing => ProblemKind::Missing,
            RefusalKind::Mismatch => ProblemKind::Mismatch,
            RefusalKind::TooLarge => ProblemKind::TooLarge,
            RefusalKind::Busy => ProblemKind::Busy,
        };
        Error::agent(kind, refusal.to_string())
    }
}
