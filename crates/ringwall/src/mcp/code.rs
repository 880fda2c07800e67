//! Tool `run_code`: starts code, converts its result, and keeps running code while an approval is
//! open.
//!
//! The record does not contain the created files and the assessment. If a call returns
//! `approval_pending`, they are kept here for `approval_status` and for the repeated request, for
//! the last [`MAX_COUNT`] calls; after that the result has only what the record has.

use std::collections::VecDeque;

use parking_lot::{Mutex, MutexGuard};
use ringwall_risk::{Assessment, Locale};
use ringwall_service::{BrowserBegun, CodeBegun, CodeRan, CodeRequest, Error, ExecId, ExecView, Service};

use super::arguments::CodeArguments;
use super::caller::Caller;
use super::follow::MAX_SHOWN_BYTES;
use super::results::{Risk, RiskFinding, RunError, RunSummary, forms};

/// Calls that wait for an approval, of all clients of this server.
const MAX_COUNT: usize = 1024;

/// Code and browser actions whose calls returned while an approval is open.
#[derive(Debug, Default)]
pub(super) struct PendingCalls {
    begun: Mutex<VecDeque<CodeBegun>>,
    browsers: Mutex<VecDeque<BrowserBegun>>,
}

impl PendingCalls {
    pub(super) fn keep(&self, begun: CodeBegun) {
        let mut pending_calls = self.lock();
        if pending_calls.iter().any(|known| known.exec_id == begun.exec_id) {
            return;
        }
        if pending_calls.len() >= MAX_COUNT {
            pending_calls.pop_front();
        }
        pending_calls.push_back(begun.set_aside());
    }

    /// Finds code by its exec id, or by the id of the exec with code that an approver changed.
    pub(super) fn find(&self, exec_id: &ExecId) -> Option<CodeBegun> {
        let pending_calls = self.lock();
        pending_calls.iter().find(|begun| begun.exec_id == *exec_id || begun.latest() == *exec_id).cloned()
    }

    /// Keeps a browser action.
    pub(super) fn keep_browser(&self, begun: BrowserBegun) {
        let mut pending_calls = self.browsers.lock();
        if pending_calls.iter().any(|known| known.action_id == begun.action_id) {
            return;
        }
        if pending_calls.len() >= MAX_COUNT {
            pending_calls.pop_front();
        }
        pending_calls.push_back(begun);
    }

    pub(super) fn find_browser(&self, action_id: &ExecId) -> Option<BrowserBegun> {
        let pending_calls = self.browsers.lock();
        pending_calls.iter().find(|begun| begun.action_id == *action_id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CodeBegun>> {
        self.begun.lock()
    }
}

pub(super) async fn begin(service: &Service, caller: &Caller, arguments: CodeArguments) -> Result<CodeBegun, Error> {
    let request = CodeRequest {
        session_id: caller.session(arguments.session_id),
        user_id: caller.user(),
        agent_id: Some(caller.agent()),
        code: arguments.code,
        language: arguments.language,
        timeout_s: arguments.timeout,
        backend: arguments.backend,
        max_memory_mb: arguments.max_memory_mb,
        max_output_bytes: None,
        files: arguments.files.into_iter().map(|file| (file.path, file.content.into_bytes())).collect(),
        context_id: arguments.context_id,
        on_busy: ringwall_service::OnBusy::Wait,
    };
    service.begin_code(&caller.principal, request).await
}

/// The result of code that has ended.
pub(super) async fn summarize(
    service: &Service,
    caller: &Caller,
    view: &ExecView,
    begun: CodeBegun,
) -> Result<RunSummary, Error> {
    let ran = service.finish_code(&caller.principal, begun, Locale::English).await?;
    Ok(run_summary(view, ran))
}

fn run_summary(view: &ExecView, ran: CodeRan) -> RunSummary {
    let code = view.error_reason.as_ref().map_or_else(|| view.summary.status.to_string(), |reason| reason.code.clone());
    let ((stdout, stdout_truncated), (stderr, stderr_truncated)) = (truncate(ran.stdout), truncate(ran.stderr));
    RunSummary {
        status: view.summary.status.to_string(),
        exec_id: ran.exec_id.to_string(),
        exit_code: view.summary.exit_code,
        stdout,
        stderr,
        stdout_truncated,
        stderr_truncated,
        error: ran.error.map(|message| RunError { code, message }),
        sandbox_type: ran.sandbox_type,
        execution_time_ms: ran.execution_time_ms,
        files_created_complete: ran.files_created.is_some(),
        files_created: ran.files_created.unwrap_or_default(),
        risk: Some(risk(&ran.assessment)),
        results: ran.results.as_deref().map(forms),
        ..RunSummary::default()
    }
}

fn risk(assessment: &Assessment) -> Risk {
    let findings = assessment.findings.iter();
    Risk {
        level: assessment.level.key().to_owned(),
        reason: assessment.reason(Locale::English),
        detected_patterns: findings
            .map(|one| RiskFinding {
                id: one.rule.id.to_owned(),
                line: one.line,
                message: one.message(Locale::English).to_owned(),
            })
            .collect(),
    }
}

/// Cuts a text to [`MAX_SHOWN_BYTES`] bytes. Returns true if it was longer.
fn truncate(mut text: String) -> (String, bool) {
    let max_bytes = usize::try_from(MAX_SHOWN_BYTES).unwrap_or(usize::MAX);
    if text.len() <= max_bytes {
        return (text, false);
    }
    text.truncate(text.floor_char_boundary(max_bytes));
    (text, true)
}
