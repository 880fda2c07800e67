//! Errors that callers get. They are transport-independent: each transport maps [`Error::code`].
//!
//! Messages contain no host paths. Causes that only the operator needs are logged where they occur.

use ringwall_ids::{ExecId, IdError, RandomError};
use ringwall_workspace::{FilesError, FilesErrorKind};

use codes::DISK_QUOTA;

/// Values of an exec's `error_reason.code` that several modules use.
pub(crate) mod codes {
    pub(crate) const BACKEND_UNAVAILABLE: &str = "BACKEND_UNAVAILABLE";
    pub(crate) const RUNTIME_ERROR: &str = "RUNTIME_ERROR";
    pub(crate) const DISK_QUOTA: &str = "DISK_QUOTA";
    pub(crate) const OOM: &str = "OOM";
    pub(crate) const SHARED_COUNTER: &str = "SHARED_COUNTER";
    pub(crate) const SESSION_BUSY: &str = "SESSION_BUSY";
    /// The session's box died while the process ran in it.
    pub(crate) const BOX_DIED: &str = "BOX_DIED";
    pub(crate) const POOL_FULL: &str = "POOL_FULL";
    pub(crate) const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a valid token is needed")]
    Unauthenticated,
    #[error("{why}")]
    Forbidden { why: String },
    #[error("there is no {what}")]
    NotFound { what: String },
    #[error("{message}")]
    InvalidArgument { message: String },
    #[error("{field}: {message}")]
    InvalidInput { field: String, message: String },
    /// The request is recorded as this exec, which never runs.
    #[error("{denial}")]
    Denied { denial: Box<ringwall_policy::Denial>, exec_id: ExecId },
    #[error("{message}")]
    Conflict { message: String },
    /// A settings key that can only be set in the start-up configuration.
    #[error("{message}")]
    SetAtStart { message: String, hint: String },
    #[error("this is the last valid owner token; without it nobody could manage this server")]
    LastOwner,
    #[error("the exec {0} has ended already")]
    AlreadyEnded(ExecId),
    #[error("too many approvals wait for an answer")]
    TooManyApprovals,
    #[error("too many unused tickets")]
    TooManyTickets,
    #[error("this approval request has expired")]
    ApprovalExpired,
    #[error("too many execs are waiting")]
    QueueFull,
    #[error("too many texts wait for assessment: at most {per_user} per user and {all} in total")]
    TooManyAssessments { per_user: u32, all: u32 },
    #[error("too many actions wait for this session's browser; wait until some of them have ended")]
    TooManyActions,
    /// The workspace has reached its disk quota, or the request would exceed it.
    #[error("{message}")]
    DiskQuota { message: String },
    #[error("the {backend} backend is not available: {why}")]
    BackendUnavailable { backend: String, why: String },
    /// All boxes are in use, and none became free before the timeout.
    #[error("{message}")]
    PoolFull { message: String },
    #[error("the server is stopping")]
    Stopping,
    #[error("the database cannot be read or written at the moment")]
    Busy(#[source] Box<ringwall_record::Error>),
    #[error("the manifest of the skill {id} is not valid: {}", reasons.join("; "))]
    InvalidManifest { id: String, reasons: Vec<String> },
    #[error("{message}")]
    Runtime { message: String },
    #[error(transparent)]
    Agent(#[from] AgentProblem),
    /// A start-up error; shown only to the operator who starts the server.
    #[error("could not {doing}")]
    Start {
        doing: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("another server uses this data directory")]
    DataInUse,
}

/// An error of the agent file and skill routes, with the message of the API contract.
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

/// The hint for a refused revocation.
const LAST_OWNER_HINT: &str = "create another owner token first: POST /api/tokens with {\"role\":\"owner\"}, or `ringwall token create --role owner`";

impl Error {
    /// The stable, machine-readable code.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Unauthenticated => "UNAUTHENTICATED",
            Error::Forbidden { .. } => "FORBIDDEN",
            Error::NotFound { .. } => "NOT_FOUND",
            Error::InvalidArgument { .. } => "INVALID_ARGUMENT",
            Error::InvalidInput { .. } => "INVALID_INPUT",
            Error::Denied { .. } => "POLICY_DENIED",
            Error::Conflict { .. } | Error::SetAtStart { .. } | Error::LastOwner | Error::AlreadyEnded(_) => "CONFLICT",
            Error::QueueFull | Error::TooManyActions | Error::TooManyAssessments { .. } => "QUEUE_FULL",
            Error::TooManyApprovals => "TOO_MANY_APPROVALS",
            Error::TooManyTickets => "TOO_MANY_TICKETS",
            Error::ApprovalExpired => "APPROVAL_EXPIRED",
            Error::DiskQuota { .. } => DISK_QUOTA,
            Error::BackendUnavailable { .. } => "BACKEND_UNAVAILABLE",
            Error::PoolFull { .. } => "POOL_FULL",
            Error::Stopping => "STOPPING",
            Error::Busy(_) => "BUSY",
            Error::InvalidManifest { .. } => "INVALID_MANIFEST",
            Error::Agent(problem) => problem.kind.code(),
            Error::Runtime { .. } | Error::Start { .. } | Error::DataInUse => "RUNTIME_ERROR",
        }
    }

    /// The next step for the caller.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::Unauthenticated => {
                "send the header `Authorization: Bearer <token>`; `ringwall token create` makes one"
            }
            Error::Denied { denial, .. } => return denial.hint.clone(),
            Error::SetAtStart { hint, .. } => return Some(hint.clone()),
            Error::LastOwner => LAST_OWNER_HINT,
            Error::TooManyTickets => "use the tickets, or wait 30 seconds until they expire",
            Error::TooManyApprovals => "answer some of them; list them with GET /api/approvals?status=pending",
            Error::TooManyAssessments { .. } => "wait until some are answered, or send texts of at most 8 KiB",
            Error::QueueFull => "wait until some of them have ended, or raise sandbox.max_queued_execs",
            Error::BackendUnavailable { backend, .. } if backend == "native" => {
                "`ringwall doctor` says what is missing"
            }
            Error::BackendUnavailable { backend, .. } if backend == "aio" => "omit the backend to use the default",
            Error::BackendUnavailable { backend, .. } if backend == "gvisor" => {
                "install runsc and run the server as root, or select the native backend"
            }
            Error::BackendUnavailable { .. } => "start the Docker daemon, or select the native backend",
            Error::Stopping => "send the request again when the server is back",
            Error::Busy(source) => return source.hint().map(str::to_owned),
            Error::InvalidManifest { .. } => {
                "correct the manifest.json in the skill's folder; it is read again at once"
            }
            Error::DataInUse => "stop it, or choose another directory with --data",
            Error::Start { source, .. } => {
                let executor =
                    source.downcast_ref::<ringwall_executor::Error>().and_then(ringwall_executor::Error::hint);
                let record = || {
                    source
                        .downcast_ref::<ringwall_record::Error>()
                        .and_then(ringwall_record::Error::hint)
                        .map(str::to_owned)
                };
                return executor.or_else(record);
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::InvalidArgument { message: message.into() }
    }

    pub(crate) fn agent(kind: ProblemKind, message: impl Into<String>) -> Self {
        Error::Agent(AgentProblem { kind, message: message.into() })
    }

    /// For `map_err`: an error of the operation `doing` at the start.
    pub(crate) fn start<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        doing: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Error::Start { doing, source: source.into() }
    }

    /// An internal error: the caller gets the failed operation, the log gets the cause.
    pub(crate) fn runtime(doing: &str, source: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error = %causes(source), "could not {doing}");
        Error::Runtime { message: format!("could not {doing}") }
    }
}

/// Formats an error and all of its sources on one line.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl From<IdError> for Error {
    fn from(error: IdError) -> Self {
        Error::invalid(error.to_string())
    }
}

impl From<RandomError> for Error {
    fn from(error: RandomError) -> Self {
        Error::runtime("make a random id or secret", &error)
    }
}

impl From<ringwall_record::Error> for Error {
    fn from(error: ringwall_record::Error) -> Self {
        use ringwall_record::Error as Of;
        match error {
            Of::Closed => Error::Stopping,
            Of::Id(_)
            | Of::NameMalformed { .. }
            | Of::CursorMalformed
            | Of::NulByte { .. }
            | Of::TextTooLong { .. }
            | Of::NumberTooLarge { .. } => Error::invalid(error.to_string()),
            Of::UnknownExec(exec_id) => Error::NotFound { what: format!("exec {exec_id}") },
            transient if transient.is_transient() => {
                tracing::warn!(error = %causes(&transient), "the database is not available");
                Error::Busy(Box::new(transient))
            }
            other => Error::runtime("use the record", &other),
        }
    }
}

impl From<ringwall_workspace::Error> for Error {
    fn from(error: ringwall_workspace::Error) -> Self {
        use ringwall_workspace::Error as Of;
        match error {
            Of::Id(_)
            | Of::PathMalformed { .. }
            | Of::InputTwice(_)
            | Of::InputBelowFile { .. }
            | Of::InputIsDirectory(_) => Error::invalid(error.to_string()),
            Of::Files(error) => error.into(),
            Of::ProjectMissing(id) => Error::NotFound { what: format!("project {id}") },
            Of::ExecMissing(id) => Error::NotFound { what: format!("file of the exec {id}") },
            Of::ArtifactMissing { path, .. } | Of::ArtifactIrregular { path, .. } => {
                Error::NotFound { what: format!("artifact {path}") }
            }
            Of::BaselinesUnreadable { .. } => {
                Error::runtime("read the skills that the users of this agent share", &error)
            }
            other => Error::runtime("use the files of the workspace", &other),
        }
    }
}

impl From<ringwall_policy::Error> for Error {
    fn from(error: ringwall_policy::Error) -> Self {
        Error::invalid(error.to_string())
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
