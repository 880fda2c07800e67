//! How an exec ended, in the words of the record: one status, at most one reason.
//!
//! Pure. The order of the rules is the order of what a caller wants to know first: that somebody ended it, that it took
//! too long, that it ran out of memory, that it left too much, and only then what it said itself.

use executor::{Ending, Outcome};
use record::{EndedAs, Reason};
use workspace::Extent;

use crate::live::Cancellation;

pub(crate) const BACKEND_UNAVAILABLE: &str = "BACKEND_UNAVAILABLE";
pub(crate) const RUNTIME_ERROR: &str = "RUNTIME_ERROR";
const COMMAND_NOT_FOUND: i32 = 127;
const COMMAND_NOT_EXECUTABLE: i32 = 126;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) status: EndedAs,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<Reason>,
}

impl Told {
    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self { status: EndedAs::Failed, exit_code: None, reason: Some(reason(code, message)) }
    }

    pub(crate) fn cancelled(by: Cancellation) -> Self {
        let reason = match by {
            Cancellation::ByCaller => reason("CANCELLED", "it was cancelled"),
            Cancellation::ServerStops => reason("SERVER_STOPPED", "the server was stopped before it had ended"),
        };
        Self { status: EndedAs::Cancelled, exit_code: None, reason: Some(reason) }
    }

    pub(crate) fn of_outcome(outcome: &Outcome, timeout_ms: u64, memory_mb: u64) -> Self {
        let exit_code = Some(outcome.exit_code());
        match outcome.ending {
            Ending::TimedOut => {
                let message = format!("it ran longer than the {timeout_ms} ms that it may");
                Self { status: EndedAs::Timeout, exit_code: None, reason: Some(reason("TIMEOUT", message)) }
            }
            Ending::Exited(0) => Self { status: EndedAs::Succeeded, exit_code, reason: None },
            Ending::Exited(_) | Ending::Signalled(_) | Ending::Stopped(_) if outcome.out_of_memory => {
                let message = format!("it needed more than the {memory_mb} MB of memory that it may have");
                Self { status: EndedAs::Failed, exit_code, reason: Some(reason("OOM", message)) }
            }
            Ending::Exited(_) | Ending::Signalled(_) | Ending::Stopped(_) => {
                Self { status: EndedAs::Failed, exit_code, reason: None }
            }
        }
    }

    /// What went wrong with the box, without a path of the host.
    pub(crate) fn of_error(error: &executor::Error) -> Self {
        use executor::Error as Of;
        match error {
            Of::BackendUnavailable { why, .. } => Self::failed(BACKEND_UNAVAILABLE, why.clone()),
            Of::ProtectionMissing { .. } | Of::DockerImageMissing(_) => {
                Self::failed(BACKEND_UNAVAILABLE, error.to_string())
            }
            Of::CommandNotFound { .. } => {
                Self { exit_code: Some(COMMAND_NOT_FOUND), ..Self::failed("COMMAND_NOT_FOUND", error.to_string()) }
            }
            Of::CommandNotExecutable { .. } => Self {
                exit_code: Some(COMMAND_NOT_EXECUTABLE),
                ..Self::failed("COMMAND_NOT_EXECUTABLE", error.to_string())
            },
            Of::EnvironmentNotForDocker { .. } => Self::failed("INVALID_ARGUMENT", error.to_string()),
            Of::DirectoryMissing(path) | Of::NotADirectory(path) | Of::DirectoryIsLink(path)
                if path.starts_with("/workspace") =>
            {
                Self::failed("INVALID_ARGUMENT", format!("cwd: {error}"))
            }
            Of::Setup(failure) if failure.subject.starts_with("/workspace") => {
                Self::failed(RUNTIME_ERROR, format!("the box could not be made: {}", failure))
            }
            _ => Self::failed(RUNTIME_ERROR, "the box could not be made; the server's log says why"),
        }
    }

    /// Too many artifacts make a failure of what ended by itself.
    pub(crate) fn with_extent(self, extent: Extent, bytes_max: u64) -> Self {
        let message = match extent {
            Extent::Within => return self,
            Extent::NamesExceeded => "it left more files than are kept".to_owned(),
            Extent::BytesExceeded => format!("its artifacts are more than the {bytes_max} bytes that they may be"),
        };
        match self.reason {
            Some(_) => self,
            None => Self { status: EndedAs::Failed, reason: Some(reason("ARTIFACTS_LIMIT", message)), ..self },
        }
    }
}

fn reason(code: &str, message: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), message: message.into() }
}
