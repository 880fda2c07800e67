//! Maps the end of an exec to one result, and records it.
//!
//! A cancellation takes precedence over everything, a timeout over what follows. Exit code 0 is a
//! success even if a process in the box ran out of memory. A full disk replaces the reason of a
//! failure; a refused host, a missing path, a missing network and too many artifacts become the
//! reason only if there is none.
//!
//! A failed write of the outcome is retried until it succeeds or the server stops. An exec without
//! a recorded outcome is LOST at the next start, and its end is not announced before. Values that
//! the database rejects are not retried: the exec is then recorded as FAILED without them.

use std::time::Duration;

use ringwall_executor::aio_service::AioError;
use ringwall_executor::{Ending, Outcome, Step};
use ringwall_ids::ExecId;
use ringwall_policy::HostPath;
use ringwall_record::{ExecOutcome, FinalStatus, FinishResult, NewExec, Reason, Scope, Status, Store, StoredOutput};
use ringwall_workspace::Extent;
use serde_json::Value;

use crate::boxes::CellAnswer;
use crate::error::causes;
use crate::error::codes::{
    BACKEND_UNAVAILABLE, BOX_DIED, DISK_QUOTA, INVALID_ARGUMENT, OOM, POOL_FULL, RUNTIME_ERROR, SESSION_BUSY,
    SHARED_COUNTER,
};
use crate::exec::registry::Cancellation;
use crate::exec::view::ExecView;
use crate::time::{milliseconds, now};

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;
const COMMAND_NOT_FOUND: i32 = 127;
const COMMAND_NOT_EXECUTABLE: i32 = 126;

const REPLACED: &str = "REPLACED";
/// Start of the recorded message; the id of the new exec follows.
const REPLACED_BY: &str = "a person edited its code, which runs as ";

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The only result of an exec. The database row, the API's view and the answer to code are made
/// from it.
#[derive(Debug)]
pub(crate) struct ExecResult {
    pub(crate) status: FinalStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<Reason>,
    /// `None` if no box started.
    pub(crate) run: Option<Box<RunSummary>>,
    pub(crate) notes: RunNotes,
}

#[derive(Debug)]
pub(crate) struct RunSummary {
    pub(crate) duration: Duration,
    /// The protections of the box, each with its state.
    pub(crate) protections: Value,
    pub(crate) cpu: Option<Duration>,
    pub(crate) peak_memory_bytes: Option<u64>,
    pub(crate) stdout: StoredOutput,
    pub(crate) stderr: StoredOutput,
}

/// Results of code that a waiting caller gets in addition to the record.
#[derive(Debug, Clone)]
pub(crate) struct RunNotes {
    pub(crate) created_files: CreatedFiles,
    /// The displayed values or the exception of code that ran in a context.
    pub(crate) cell: Option<CellAnswer>,
}

/// Files that code created. `None` if unknown: the session has too many files to compare, or they
/// could not be listed.
pub(crate) type CreatedFiles = Option<Vec<String>>;

impl Default for RunNotes {
    fn default() -> Self {
        Self { created_files: Some(Vec::new()), cell: None }
    }
}

impl ExecResult {
    fn new(status: FinalStatus, exit_code: Option<i32>, reason: Option<Reason>) -> Self {
        Self { status, exit_code, reason, run: None, notes: RunNotes::default() }
    }

    pub(crate) fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::new(FinalStatus::Failed, None, Some(reason(code, message)))
    }

    /// A failure of the server itself.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::failed(RUNTIME_ERROR, message)
    }

    pub(crate) fn cancelled(by: Cancellation) -> Self {
        let reason = match by {
            Cancellation::ByCaller => reason("CANCELLED", "the exec was cancelled"),
            Cancellation::HungUp => reason("HUNG_UP", "the client of the terminal disconnected"),
            Cancellation::ServerStops => reason("SERVER_STOPPED", "the server stopped before the exec had ended"),
        };
        Self::new(FinalStatus::Cancelled, None, Some(reason))
    }

    /// Nothing ran, because the policy or a person did not allow it.
    pub(crate) fn denied(code: &str, message: impl Into<String>) -> Self {
        Self::new(FinalStatus::PolicyDenied, None, Some(reason(code, message)))
    }

    /// A person edited the code; `next` runs the edited code.
    pub(crate) fn replaced_by(next: &ExecId) -> Self {
        Self::new(FinalStatus::Cancelled, None, Some(reason(REPLACED, format!("{REPLACED_BY}{next}"))))
    }

    /// The row for the record.
    pub(crate) fn to_row(&self) -> ExecOutcome {
        let run = self.run.as_deref();
        ExecOutcome {
            status: self.status,
            exit_code: self.exit_code,
            error_reason: self.reason.clone(),
            ended_at: now(),
            duration_ms: run.map(|run| milliseconds(run.duration)),
            protections: run.map(|run| run.protections.clone()),
            stdout: run.map_or(StoredOutput::Complete, |run| run.stdout),
            stderr: run.map_or(StoredOutput::Complete, |run| run.stderr),
            cpu_ms: run.and_then(|run| run.cpu).map(milliseconds),
            max_rss_bytes: run.and_then(|run| run.peak_memory_bytes),
        }
    }

    pub(crate) fn of_outcome(outcome: &Outcome, timeout_ms: u64, memory_mb: u64) -> Self {
        let exit_code = Some(outcome.exit_code());
        match outcome.ending {
            Ending::TimedOut => {
                let message = format!("timed out (limit {timeout_ms} ms)");
                Self::new(FinalStatus::Timeout, None, Some(reason("TIMEOUT", message)))
            }
            Ending::Exited(0) => Self::new(FinalStatus::Succeeded, exit_code, None),
            Ending::Exited(_) | Ending::Signalled(_) | Ending::Stopped(_) if outcome.out_of_memory => {
                let message = format!("ran out of memory (limit {memory_mb} MB)");
                Self::new(FinalStatus::Failed, exit_code, Some(reason(OOM, message)))
            }
            Ending::OverCounters => {
                let message = "the box was ended: it held more epoll watches, or unreceived descriptors sent over Unix \
                               sockets, than one box may take from the user that the server runs as; hold fewer, or run \
                               the server as root";
                Self::new(FinalStatus::Failed, exit_code, Some(reason(SHARED_COUNTER, message)))
            }
            Ending::Exited(_) | Ending::Signalled(_) => Self::new(FinalStatus::Failed, exit_code, None),
            Ending::Stopped(_) => {
                let message = "the box was killed from outside, not by its command";
                Self::new(FinalStatus::Failed, exit_code, Some(reason(RUNTIME_ERROR, message)))
            }
        }
    }

    /// Sets the reason for a box that was stopped because of a full disk. An exec that succeeded or
    /// timed out in the same moment is unchanged.
    pub(crate) fn with_full_disk(self, full: Option<String>) -> Self {
        match full {
            Some(words) if self.status == FinalStatus::Failed => {
                let message = format!("the box was ended, because its workspace exceeded its disk quota. {words}");
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
            _ => Self::failed(RUNTIME_ERROR, "the box could not be created; see the server's log"),
        }
    }

    /// Adds the refused host as the reason of a failure that has none.
    pub(crate) fn with_refused_host(self, host: Option<String>) -> Self {
        match (self.status, &self.reason, host) {
            (FinalStatus::Failed, None, Some(host)) => {
                let message = format!(
                    "the command failed after its connection to {host} was refused; GET /sandbox/execs/{{id}}/network \
                     shows why. An operator allows hosts with the setting net.allow"
                );
                Self { reason: Some(reason("NET_REFUSED", message)), ..self }
            }
            _ => self,
        }
    }

    /// Adds the missing path as the reason of a failure that has none. An allowed path that does
    /// not exist is not mounted, so the command cannot create it.
    pub(crate) fn with_missing_path(self, path: Option<HostPath>) -> Self {
        match (self.status, &self.reason, path) {
            (FinalStatus::Failed, None, Some(path)) => {
                let message = format!(
                    "the command failed, and it names {path}, which is allowed but does not exist; to create it, allow \
                     its parent directory"
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
                let message = "the command failed; it uses a program that needs a network, and its box has none. An \
                               operator allows hosts with the settings net.mode and net.allow";
                Self { reason: Some(reason("NO_NETWORK", message)), ..self }
            }
            _ => self,
        }
    }

    /// The reason that too many artifacts give to an exec that has no other.
    pub(crate) fn excess(&self, extent: Extent, max_bytes: u64) -> Option<Reason> {
        let message = match extent {
            Extent::Within => return None,
            Extent::NamesExceeded => "the command left more files than are stored".to_owned(),
            Extent::BytesExceeded => format!("the artifacts are larger than the limit of {max_bytes} bytes"),
        };
        self.reason.is_none().then(|| reason("ARTIFACTS_LIMIT", message))
    }
}

/// The exec that replaced the one which ended with `reason`, if it was replaced.
pub(crate) fn replacement(reason: &Reason) -> Option<ExecId> {
    let Reason { code, message } = reason;
    message.strip_prefix(REPLACED_BY).filter(|_| code == REPLACED)?.parse().ok()
}

/// Writes the outcome. Returns the ended exec; `None` if the record was closed, has no such intent,
/// or rejects even the minimal outcome.
pub(crate) async fn write(store: &Store, intent: &NewExec, mut row: ExecOutcome) -> Option<ExecView> {
    let exec_id = &intent.exec_id;
    let (mut is_minimal, mut pause) = (false, FIRST_PAUSE);
    loop {
        let error = match store.finish(intent, &row).await {
            Ok(FinishResult::Recorded) => return Some(ExecView::ended(intent, &row)),
            Ok(FinishResult::AlreadyEnded(_)) => {
                return store.exec(exec_id, &Scope::All).await.ok().flatten().map(ExecView::from);
            }
            Err(error) => error,
        };
        match after(&error, is_minimal) {
            // The intent was unconfirmed and turned out not to be recorded.
            Next::GiveUp if matches!(error, ringwall_record::Error::UnknownExec(_)) => return None,
            Next::GiveUp => {
                let (status, error) = (Status::from(row.status), causes(&error));
                tracing::error!(%exec_id, %status, %error, "could not record an outcome; the exec will be LOST");
                return None;
            }
            Next::Minimal => {
                tracing::error!(%exec_id, error = %causes(&error), "the database rejects an outcome; recording FAILED");
                (row, is_minimal) = (minimal(&row), true);
            }
            Next::Retry => {
                tracing::error!(%exec_id, error = %causes(&error), "could not record an outcome; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
}

/// The next step after the database refused an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Retry,
    /// Retry with only the fields that any database row can hold.
    Minimal,
    GiveUp,
}

fn after(error: &ringwall_record::Error, is_minimal: bool) -> Next {
    match error {
        ringwall_record::Error::UnknownExec(_) | ringwall_record::Error::Closed => Next::GiveUp,
        error if !error.is_invalid_input() => Next::Retry,
        _ if is_minimal => Next::GiveUp,
        _ => Next::Minimal,
    }
}

/// A minimal outcome in place of one that the database rejects. Its status is FAILED in any case.
fn minimal(row: &ExecOutcome) -> ExecOutcome {
    let result = ExecResult::internal("the database rejected the details of this outcome; see the server's log");
    ExecOutcome { ended_at: row.ended_at, stdout: row.stdout, stderr: row.stderr, ..result.to_row() }
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
    fn box_ending_maps_to_status_code_and_reason() {
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
    fn artifacts_limit_is_the_reason_only_without_another() {
        let excess = |ending, extent| {
            let reason = ExecResult::of_outcome(&outcome(ending, false), 1000, 64).excess(extent, 10);
            reason.map(|reason| reason.code)
        };
        let limit = Some("ARTIFACTS_LIMIT".to_owned());
        assert_eq!(excess(Ending::Exited(0), Extent::BytesExceeded), limit);
        assert_eq!(excess(Ending::Exited(2), Extent::BytesExceeded), limit);
        assert_eq!(excess(Ending::TimedOut, Extent::BytesExceeded), None);
        assert_eq!(excess(Ending::Exited(0), Extent::Within), None);
    }

    #[test]
    fn full_disk_is_the_reason_of_a_failure_only() {
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
    fn host_view_timeout_has_a_hint() {
        let result =
            ExecResult::of_error(&ringwall_executor::Error::HostViewTimeout { timeout: Duration::from_secs(30) });
        let reason = result.reason.unwrap();
        assert_eq!(reason.code, RUNTIME_ERROR);
        assert!(reason.message.contains("longer than 30 s") && reason.message.contains("network mount"), "{reason:?}");
    }

    #[test]
    fn start_failure_shows_no_host_path() {
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

    #[test]
    fn permanent_error_is_not_retried() {
        use ringwall_record::Error;
        let [number, text] = [Error::NumberTooLarge { column: "max_rss_bytes" }, Error::NulByte { column: "reason" }];
        for error in [number, text] {
            assert_eq!((after(&error, false), after(&error, true)), (Next::Minimal, Next::GiveUp), "{error}");
        }
        assert_eq!((after(&Error::Busy, false), after(&Error::Busy, true)), (Next::Retry, Next::Retry));
        assert_eq!(after(&Error::Closed, false), Next::GiveUp);
    }

    #[test]
    fn minimal_outcome_drops_values_that_a_database_rejects() {
        let row = ExecOutcome { max_rss_bytes: Some(u64::MAX), ..ExecResult::failed("X", "a\0b").to_row() };
        let minimal = minimal(&row);
        assert_eq!((minimal.max_rss_bytes, minimal.cpu_ms, minimal.exit_code), (None, None, None));
        assert!(minimal.error_reason.is_some_and(|it| it.code == RUNTIME_ERROR && !it.message.contains('\0')));
    }

    #[test]
    fn replaced_exec_names_its_replacement() {
        let next: ExecId = "e_0123456789abcdef0123456789abcdef".parse().unwrap();
        let reason = ExecResult::replaced_by(&next).reason.unwrap();
        assert_eq!(replacement(&reason), Some(next));
        assert_eq!(replacement(&Reason { code: "CANCELLED".to_owned(), ..reason }), None);
    }
}
