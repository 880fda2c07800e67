//! Errors of the agent file and skill routes: the message that the API contract specifies and its
//! kind.

use ringwall_workspace::{FilesError, FilesErrorKind};

use super::Error;

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

impl From<FilesError> for Error {
    fn from(error: FilesError) -> Self {
        let kind = match error.kind() {
            FilesErrorKind::Invalid => ProblemKind::Invalid,
            FilesErrorKind::Security => ProblemKind::Security,
            FilesErrorKind::Missing => ProblemKind::Missing,
            FilesErrorKind::Mismatch => ProblemKind::Mismatch,
            FilesErrorKind::TooLarge => ProblemKind::TooLarge,
            FilesErrorKind::Busy => ProblemKind::Busy,
        };
        Error::agent(kind, error.to_string())
    }
}
