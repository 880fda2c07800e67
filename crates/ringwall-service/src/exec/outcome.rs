//! Maps the end of an exec to one status and at most one reason. Pure functions.
//!
//! A cancellation takes precedence over everything, a timeout over what follows. Exit code 0 is a
//! success even if a process in the box ran out of memory. A full disk replaces the reason of a
//! failure; a refused host, a missing path, a missing network and too many artifacts become the
//! reason only if there is none.

use ringwall_executor::aio_service::AioError;
use ringwall_executor::{Ending, Outcome, Step};
use ringwall_policy::HostPath;
use ringwall_record::{FinalStatus, Reason};
use ringwall_workspace::Extent;

use crate::error::codes::{
    BACKEND_UNAVAILABLE, BOX_DIED, DISK_QUOTA, INVALID_ARGUMENT, OOM, POOL_FULL, RUNTIME_ERROR, SESSION_BUSY,
    SHARED_COUNTER,
};
use crate::exec::registry::Cancellation;

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;
const COMMAND_NOT_FOUND: i32 = 127;
const COMMAND_NOT_EXECUTABLE: i32 = 126;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExecResult {
    pub(crate) status: FinalStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<Reason>,
}

impl ExecResult {
    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self { status: FinalStatus::Failed, exit_code: None, reason: Some(reason(code, message)) }
    }

    pub(crate) fn cancelled(by: Cancellation) -> Self {
        let reason = match by {
            Cancellation::ByCaller => reason("CANCELLED", "it was cancelled"),
            Cancellation::HungUp => reason("HUNG_UP", "nobody is at its terminal any more"),
            Cancellation::ServerStops => reason("SERVER_STOPPED", "the server was stopped before it had ended"),
        };
        Self { status: FinalStatus::Cancelled, exit_code: None, reason: Some(reason) }
    }

    /// Nothing ran, because the policy or a person did not allow it.
    pub(crate) fn denied(code: &str, message: impl Into<String>) -> Self {
        Self { status: FinalStatus::PolicyDenied, exit_code: None, reason: Some(reason(code, message)) }
    }

    pub(crate) fn of_outcome(outcome: &Outcome, timeout_ms: u64, memory_mb: u64) -> Self {
        let exit_code = Some(outcome.exit_code());
        match outcome.ending {
            Ending::TimedOut => {
                let message = format!("it ran longer than the {timeout_ms} ms that it may");
                Self { status: FinalStatus::Timeout, exit_code: None, reason: Some(reason("TIMEOUT", message)) }
            }
            Ending::Exited(0) => Self { status: FinalStatus::Succeeded, exit_code, reason: None },
            Ending::Exited(_) | Ending::Signalled(_) | Ending::Stopped(_) if outcome.out_of_memory => {
                let message = format!("it needed more than the {memory_mb} MB of memory that it may have");
                Self { status: FinalStatus::Failed, exit_code, reason: Some(reason(OOM, message)) }
            }
            Ending::OverCounters => {
                let message = "the box was ended: it held more epoll watches, or unreceived descriptors sent over Unix \
                               sockets, than one box may take from the user that the server runs as; hold fewer, or run \
                               the server as root";
                Self { status: FinalStatus::Failed, exit_code, reason: Some(reason(SHARED_COUNTER, message)) }
            }
            Ending::Exited(_) | Ending::Signalled(_) => Self { status: FinalStatus::Failed, exit_code, reason: None },
            Ending::Stopped(_) => {
                let message = "the box was killed from outside, not by its command";
                Self { status: FinalStatus::Failed, exit_code, reason: Some(reason(RUNTIME_ERROR, message)) }
            }
        }
    }

    /// Sets the reason for a box that was stopped because of a full disk. An exec that succeeded or
    /// timed out in the same moment is unchanged.
    pub(crate) fn with_full_disk(self, full: Option<String>) -> Self {
        match full {
            Some(words) if self.status == FinalStatus::Failed => {
                let message = format!("the box was ended, because its workspace took too much of the disk. {words}");
                Self { reason: Some(reason(DISK_QUOTA, message)), ..self }
            }
            Some(_) | None => self,
        }
    }

    /// The result of a box that failed to start or run. Messages contain no host path.
    pub(crate) fn of_error(error: &ringwall_executor::Error) -> Self {
        use ringwall_executor::Error as Of;
        match error {
            Of::BackendUnavailable { why, .. } => Self::failed(BACKEND_UNAVAILABLE, why.clone()),
            Of::NoTerminal => Self::failed(BACKEND_UNAVAILABLE, with_hint(error)),
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
            Of::EgressWithheld { .. } => {
                Self::failed(BACKEND_UNAVAILABLE, format!("{error}; {}", error.hint().unwrap_or_default()))
            }
            Of::EnvironmentNotForDocker { .. } => Self::failed(INVALID_ARGUMENT, error.to_string()),
            // Its messages contain neither a host path nor the address of the service.
            Of::Aio(error) => Self::failed(code_of(error), format!("{error}; {}", error.hint())),
            Of::DirectoryMissing(path) | Of::NotADirectory(path) | Of::DirectoryIsLink(path)
                if path.starts_with("/workspace") =>
            {
                Self::failed(INVALID_ARGUMENT, format!("cwd: {error}"))
            }
            // The last step before the command is entering its directory. A box may have removed
            // that directory or never created it.
            Of::Setup(failure)
                if failure.step == Step::StartCommand
                    && failure.subject.starts_with("/workspace")
                    && [ENOENT, EACCES, ENOTDIR, ELOOP].contains(&failure.errno) =>
            {
                let wrong = std::io::Error::from_raw_os_error(failure.errno);
                Self::failed(INVALID_ARGUMENT, format!("cwd: {} cannot be entered: {wrong}", failure.subject))
            }
            Of::SessionBusy | Of::BoxPaused | Of::OtherLanguage { .. } => Self::failed(SESSION_BUSY, with_hint(error)),
            Of::PoolFull | Of::TooManyProcesses { .. } => Self::failed(POOL_FULL, with_hint(error)),
            Of::PoolStopped => Self::cancelled(Cancellation::ServerStops),
            // Reported by the session box; contains no host path.
            Of::BoxDied { .. } => Self::failed(BOX_DIED, with_hint(error)),
            Of::NotForThisBox { .. } => Self::failed(RUNTIME_ERROR, with_hint(error)),
            Of::NoAnswer { .. } => Self::failed(RUNTIME_ERROR, format!("{error}; try again")),
            Of::HostViewTimeout { .. } => Self::failed(RUNTIME_ERROR, with_hint(error)),
            _ => Self::failed(RUNTIME_ERROR, "the box could not be made; the server's log says why"),
        }
    }

    /// Adds the refused host as the reason of a failure that has none.
    pub(crate) fn with_refused_host(self, host: Option<String>) -> Self {
        match (self.status, &self.reason, host) {
            (FinalStatus::Failed, None, Some(host)) => {
                let message = format!(
                    "it failed, and its box was refused a connection to {host}; GET /sandbox/execs/{{id}}/network says \
                     why, and an operator allows hosts with the setting net.allow"
                );
                Self { reason: Some(reason("NET_REFUSED", message)), ..self }
            }
            _ => self,
        }
    }

    /// Adds the missing path as the reason of a failure that has none. An allowed path that does
    /// not exist is not mounted, so the command cannot create it.
    pub(crate) fn with_unseen(self, path: Option<HostPath>) -> Self {
        match (self.status, &self.reason, path) {
            (FinalStatus::Failed, None, Some(path)) => {
                let message = format!(
                    "it failed, and it names {path}, which is allowed and not there; for something to be made, the \
                     directory in which it is to be has to be allowed"
                );
                Self { reason: Some(reason("PATH_MISSING", message)), ..self }
            }
            _ => self,
        }
    }

    /// Adds the missing network as the reason of a failure that has none.
    pub(crate) fn without_network(self) -> Self {
        match (self.status, &self.reason) {
            (FinalStatus::Failed, None) => {
                let message = "it failed, and it names a program that needs a network, which its box does not have; an \
                               operator allows hosts with the settings net.mode and net.allow";
                Self { reason: Some(reason("NO_NETWORK", message)), ..self }
            }
            _ => self,
        }
    }

    /// Artifacts over the limit fail an exec that has no other reason.
    pub(crate) fn with_extent(self, extent: Extent, bytes_max: u64) -> Self {
        let message = match extent {
            Extent::Within => return self,
            Extent::NamesExceeded => "it left more files than are kept".to_owned(),
            Extent::BytesExceeded => format!("its artifacts are more than the {bytes_max} bytes that they may be"),
        };
        match self.reason {
            Some(_) => self,
            None => Self { status: FinalStatus::Failed, reason: Some(reason("ARTIFACTS_LIMIT", message)), ..self },
        }
    }
}

fn code_of(error: &AioError) -> &'static str {
    match error {
        AioError::Unreachable { .. }
        | AioError::TooLate { .. }
        | AioError::KeyRefused
        | AioError::Redirected { .. }
        | AioError::NotUnderstood { .. }
        | AioError::Failed { .. }
        | AioError::Refused { .. }
        | AioError::Malformed { .. }
        | AioError::Overdue => BACKEND_UNAVAILABLE,
        AioError::NotForService(_) => INVALID_ARGUMENT,
        AioError::TooLarge { .. } => "OUTPUT_LIMIT",
        AioError::AddressMalformed(_) | AioError::KeyMalformed | AioError::Unclear(_) | AioError::Streams(_) => {
            RUNTIME_ERROR
        }
    }
}

fn with_hint(error: &ringwall_executor::Error) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"))
}

fn reason(code: &str, message: impl Into<String>) -> Reason {
    Reason { code: code.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_executor::Usage;
    use std::time::Duration;

    fn outcome(ending: Ending, out_of_memory: bool) -> Outcome {
        let (duration, usage) = (Duration::ZERO, Usage::default());
        Outcome { ending, out_of_memory, duration, usage, protections: vec![], steps: vec![] }
    }

    fn code(result: &ExecResult) -> &str {
        result.reason.as_ref().map_or("", |reason| reason.code.as_str())
    }

    #[test]
    fn every_ending_has_its_words() {
        for (ending, out_of_memory, status, exit_code, reason) in [
            (Ending::Exited(0), false, FinalStatus::Succeeded, Some(0), ""),
            // A process in the box was killed for memory, but the command succeeded.
            (Ending::Exited(0), true, FinalStatus::Succeeded, Some(0), ""),
            (Ending::Exited(3), false, FinalStatus::Failed, Some(3), ""),
            (Ending::Exited(137), true, FinalStatus::Failed, Some(137), "OOM"),
            (Ending::Signalled(9), true, FinalStatus::Failed, Some(137), "OOM"),
            (Ending::Signalled(11), false, FinalStatus::Failed, Some(139), ""),
            (Ending::Stopped(9), false, FinalStatus::Failed, Some(137), RUNTIME_ERROR),
            (Ending::Stopped(9), true, FinalStatus::Failed, Some(137), "OOM"),
            (Ending::TimedOut, false, FinalStatus::Timeout, None, "TIMEOUT"),
            (Ending::OverCounters, false, FinalStatus::Failed, Some(137), SHARED_COUNTER),
            (Ending::TimedOut, true, FinalStatus::Timeout, None, "TIMEOUT"),
        ] {
            let result = ExecResult::of_outcome(&outcome(ending, out_of_memory), 1000, 64);
            assert_eq!((result.status, result.exit_code, code(&result)), (status, exit_code, reason), "{ending:?}");
        }
    }

    #[test]
    fn too_many_artifacts_fail_what_has_no_reason_of_its_own() {
        let result =
            |ending| ExecResult::of_outcome(&outcome(ending, false), 1000, 64).with_extent(Extent::BytesExceeded, 10);
        let succeeded = result(Ending::Exited(0));
        assert_eq!((succeeded.status, succeeded.exit_code), (FinalStatus::Failed, Some(0)));
        assert_eq!(code(&succeeded), "ARTIFACTS_LIMIT");
        assert_eq!(code(&result(Ending::Exited(2))), "ARTIFACTS_LIMIT");
        assert_eq!(code(&result(Ending::TimedOut)), "TIMEOUT");
        let within = ExecResult::of_outcome(&outcome(Ending::Exited(0), false), 1, 1);
        assert_eq!(within.clone().with_extent(Extent::Within, 10), within);
    }

    #[test]
    fn a_full_disk_explains_what_failed() {
        let result = |ending| {
            let result = ExecResult::of_outcome(&outcome(ending, false), 1000, 64);
            result.with_full_disk(Some("Full.".to_owned()))
        };
        let ended = result(Ending::Stopped(9));
        assert_eq!((ended.status, ended.exit_code, code(&ended)), (FinalStatus::Failed, Some(137), DISK_QUOTA));
        assert_eq!(code(&result(Ending::Exited(0))), "");
        assert_eq!(code(&result(Ending::TimedOut)), "TIMEOUT");
    }

    #[test]
    fn unread_host_view_is_told_with_its_hint() {
        let result =
            ExecResult::of_error(&ringwall_executor::Error::HostViewTimeout { timeout: Duration::from_secs(30) });
        let reason = result.reason.unwrap();
        assert_eq!(reason.code, RUNTIME_ERROR);
        assert!(reason.message.contains("longer than 30 s") && reason.message.contains("network mount"), "{reason:?}");
    }

    #[test]
    fn no_path_of_the_host_is_told() {
        let secret = std::path::PathBuf::from("/var/lib/ringwall/workspaces/u/a");
        for error in [
            ringwall_executor::Error::DirectoryMissing(secret.clone()),
            ringwall_executor::Error::DirectoryReplaced(secret.clone()),
            ringwall_executor::Error::OwnData(secret),
            ringwall_executor::Error::JailDied,
        ] {
            let result = ExecResult::of_error(&error);
            assert_eq!(code(&result), RUNTIME_ERROR);
            assert!(result.reason.is_some_and(|reason| !reason.message.contains("/var")));
        }
        let cwd = ExecResult::of_error(&ringwall_executor::Error::DirectoryMissing("/workspace/work/x".into()));
        assert_eq!(code(&cwd), INVALID_ARGUMENT);
    }
}
