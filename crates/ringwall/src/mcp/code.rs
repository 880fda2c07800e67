//! Tool `run_code`: starts code, converts its result, and keeps running code while an approval is
//! open.
//!
//! The record does not contain the created files and the assessment. If a call returns
//! `approval_pending`, they are kept here for `approval_status` and for the repeated request, for
//! the last [`MAX_COUNT`] calls; after that the result has only what the record has.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringwall_policy::{Assessment, Locale};
use ringwall_service::{BrowserBegun, CodeBegun, CodeRan, CodeRequest, Error, ExecId, ExecView, Service};

use super::answers::{Failure, Noticed, Ran, Risk, forms};
use super::arguments::CodeArguments;
use super::run::SHOWN;
use super::who::Who;

/// Calls that wait for an approval, of all clients of this server.
const MAX_COUNT: usize = 1024;

/// Code and browser actions whose calls returned while an approval is open.
#[derive(Debug, Default)]
pub(super) struct Held {
    begun: Mutex<VecDeque<CodeBegun>>,
    browsers: Mutex<VecDeque<BrowserBegun>>,
}

impl Held {
    pub(super) fn keep(&self, begun: CodeBegun) {
        let mut held = self.lock();
        if held.iter().any(|known| known.exec_id == begun.exec_id) {
            return;
        }
        if held.len() >= MAX_COUNT {
            held.pop_front();
        }
        held.push_back(begun.set_aside());
    }

    /// Finds code by its exec id, or by the id of the exec with code that an approver changed.
    pub(super) fn find(&self, exec_id: &ExecId) -> Option<CodeBegun> {
        let held = self.lock();
        held.iter().find(|begun| begun.exec_id == *exec_id || begun.latest() == *exec_id).cloned()
    }

    /// Keeps a browser action.
    pub(super) fn keep_browser(&self, begun: BrowserBegun) {
        let mut held = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|known| known.action_id == begun.action_id) {
            return;
        }
        if held.len() >= MAX_COUNT {
            held.pop_front();
        }
        held.push_back(begun);
    }

    pub(super) fn find_browser(&self, action_id: &ExecId) -> Option<BrowserBegun> {
        let held = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().find(|begun| begun.action_id == *action_id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CodeBegun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn begin(service: &Service, who: &Who, asked: CodeArguments) -> Result<CodeBegun, Error> {
    let request = CodeRequest {
        session_id: who.session(asked.session_id),
        user_id: who.user(),
        agent_id: Some(who.agent()),
        code: asked.code,
        language: asked.language,
        timeout_s: asked.timeout,
        backend: asked.backend,
        max_memory_mb: asked.max_memory_mb,
        max_output_bytes: None,
        files: asked.files.into_iter().map(|file| (file.path, file.content.into_bytes())).collect(),
        context_id: asked.context_id,
        on_busy: ringwall_service::OnBusy::Wait,
    };
    service.begin_code(&who.principal, request).await
}

/// The result of code that has ended.
pub(super) async fn tell(service: &Service, who: &Who, view: &ExecView, begun: CodeBegun) -> Result<Ran, Error> {
    let ran = service.finish_code(&who.principal, begun, Locale::English).await?;
    Ok(told(view, ran))
}

fn told(view: &ExecView, ran: CodeRan) -> Ran {
    let code = view.error_reason.as_ref().map_or_else(|| view.summary.status.to_string(), |reason| reason.code.clone());
    let ((stdout, stdout_truncated), (stderr, stderr_truncated)) = (cut(ran.stdout), cut(ran.stderr));
    Ran {
        status: view.summary.status.to_string(),
        exec_id: ran.exec_id.to_string(),
        exit_code: view.summary.exit_code,
        stdout,
        stderr,
        stdout_truncated,
        stderr_truncated,
        error: ran.error.map(|message| Failure { code, message }),
        sandbox_type: ran.sandbox_type,
        execution_time_ms: ran.execution_time_ms,
        files_created_complete: ran.files_created.is_some(),
        files_created: ran.files_created.unwrap_or_default(),
        risk: Some(risk(&ran.assessment)),
        results: ran.results.as_deref().map(forms),
        ..Ran::default()
    }
}

fn risk(assessment: &Assessment) -> Risk {
    let findings = assessment.findings.iter();
    Risk {
        level: assessment.level.key().to_owned(),
        reason: assessment.reason(Locale::English),
        detected_patterns: findings
            .map(|one| Noticed {
                id: one.rule.id.to_owned(),
                line: one.line,
                message: one.message(Locale::English).to_owned(),
            })
            .collect(),
    }
}

/// Cuts a text to [`SHOWN`] bytes. Returns true if it was longer.
fn cut(mut text: String) -> (String, bool) {
    let most = usize::try_from(SHOWN).unwrap_or(usize::MAX);
    if text.len() <= most {
        return (text, false);
    }
    text.truncate(text.floor_char_boundary(most));
    (text, true)
}
