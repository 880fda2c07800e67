//! Results of tools: an object with a published schema, and the same as text for clients that read
//! only text.
//!
//! A command that exits with another code than 0 is a normal result. A result is marked as an error
//! if the command did not run or was ended from outside.

use std::sync::{Arc, LazyLock};

use ringwall_risk::{Assessment, Locale};
use ringwall_service::{ApprovalKind, ApprovalView, Bundle, CodeRan, Error, ExecView, OutputPart, Service, Status};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::arguments::schema;

/// The status of an exec or browser action that waits for an approval.
pub(super) const PENDING: &str = "approval_pending";

const IMAGE: &str = "image/png";
/// Limit of each output stream in a result, in bytes. The whole output is a resource.
const MAX_SHOWN_BYTES: usize = 256 * 1024;
/// Limit of the JSON in results of code. Parsed, it takes up to a hundred times as much memory.
const MAX_JSON_BYTES: usize = 128 * 1024;

/// The forms of one value, by MIME type.
type Forms = std::collections::BTreeMap<String, Value>;

/// Parses the results of code. JSON strings are always kept, because they take no more memory
/// parsed; other forms are left out beyond [`MAX_JSON_BYTES`].
fn forms(results: &[Bundle]) -> Vec<Forms> {
    let mut room = MAX_JSON_BYTES;
    let mut value = |form: &str| {
        if !form.starts_with('"') {
            room = room.checked_sub(form.len())?;
        }
        serde_json::from_str(form).ok()
    };
    let mut forms_of =
        |bundle: &Bundle| bundle.forms().filter_map(|(mime, form)| Some((mime.to_owned(), value(form)?))).collect();
    results.iter().map(&mut forms_of).collect()
}

/// The output schema of the tools that run something.
pub(super) static RUN_SUMMARY_SCHEMA: LazyLock<Arc<JsonObject>> = LazyLock::new(schema::<RunSummary>);

/// Result of code, a command or a skill.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(super) struct RunSummary {
    /// SUCCEEDED, FAILED, TIMEOUT, POLICY_DENIED, CANCELLED or LOST; `approval_pending` while it
    /// waits for a person
    pub(super) status: String,
    pub(super) exec_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// True if stdout is longer than shown here; the resource ringwall://execs/{exec_id}/stdout has
    /// all that was kept
    pub(super) stdout_truncated: bool,
    /// True if stderr is longer than shown here; the resource ringwall://execs/{exec_id}/stderr has
    /// all that was kept
    pub(super) stderr_truncated: bool,
    /// Why it did not run or was ended
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunError>,
    /// URIs of the files that it left, as resources
    pub(super) artifacts: Vec<String>,
    /// Files that the code created, relative to the session's workspace
    pub(super) files_created: Vec<String>,
    /// `false` if the created files are unknown, because the session has more than 20,000 files or
    /// could not be read
    pub(super) files_created_complete: bool,
    /// With context_id: the displayed values, each by MIME type. Images are separate content
    /// blocks; JSON beyond 128 KiB is left out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) results: Option<Vec<Forms>>,
    /// Static analysis of the code
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) risk: Option<Risk>,
    /// Backend of the box: native, docker, gvisor or aio
    pub(super) sandbox_type: String,
    pub(super) execution_time_ms: u64,
    /// The approval that it waits for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<ApprovalSummary>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RunError {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Risk {
    /// safe, low, medium, high or critical
    pub(super) level: String,
    pub(super) reason: String,
    pub(super) detected_patterns: Vec<RiskFinding>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct RiskFinding {
    pub(super) id: String,
    pub(super) line: usize,
    pub(super) message: String,
}

/// An approval.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct ApprovalSummary {
    pub(super) approval_id: String,
    /// pending, approved, remembered, denied, expired or cancelled
    pub(super) status: String,
    /// path, risk or network
    pub(super) kind: String,
    pub(super) risk_level: String,
    /// The paths, or the host, that are not allowed yet
    pub(super) blocked_paths: Vec<String>,
    /// Findings of the static analysis
    pub(super) patterns: Vec<String>,
    pub(super) expires_at: String,
    /// Reason that the person gave with the answer
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// An approval and the state of its exec.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ApprovalState {
    pub(super) approval: ApprovalSummary,
    /// The exec or browser action that waits for the approval, or that ran with it
    pub(super) exec: RunSummary,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Content {
    pub(super) content: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Paths {
    pub(super) paths: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct DoneMessage {
    pub(super) message: String,
}

impl Risk {
    fn of(assessment: &Assessment) -> Self {
        let finding = |one: &ringwall_risk::Finding| RiskFinding {
            id: one.rule.id.to_owned(),
            line: one.line,
            message: one.message(Locale::English).to_owned(),
        };
        Self {
            level: assessment.level.key().to_owned(),
            reason: assessment.reason(Locale::English),
            detected_patterns: assessment.findings.iter().map(finding).collect(),
        }
    }
}

impl ApprovalSummary {
    pub(super) fn of(view: &ApprovalView) -> Self {
        let text = |value: serde_json::Value| value.as_str().map(str::to_owned).unwrap_or_else(|| value.to_string());
        Self {
            approval_id: view.id.to_string(),
            status: view.status.to_string(),
            kind: view.kind.to_string(),
            risk_level: text(serde_json::json!(view.risk_level)),
            blocked_paths: view.blocked_paths.clone(),
            patterns: view.patterns.clone(),
            expires_at: text(serde_json::json!(view.expires_at)),
            reason: view.reason.clone(),
        }
    }
}

impl RunSummary {
    /// The result of an exec, as far as it has come.
    pub(super) async fn of_exec(service: &Service, view: &ExecView) -> Result<Self, Error> {
        let error = view.error_reason.as_ref();
        let mut summary = Self {
            status: view.summary.status.to_string(),
            exec_id: view.summary.exec_id.to_string(),
            exit_code: view.summary.exit_code,
            error: error.map(|reason| RunError { code: reason.code.clone(), message: reason.message.clone() }),
            sandbox_type: view.summary.backend.clone(),
            execution_time_ms: view.summary.duration_ms.unwrap_or(0),
            ..Self::default()
        };
        // An exec that never ran has no output.
        if view.summary.started_at.is_some() && view.protections.is_some() {
            let [stdout, stderr] = service.printed(view, MAX_SHOWN_BYTES as u64).await?;
            (summary.stdout_truncated, summary.stderr_truncated) = (is_cut(&stdout), is_cut(&stderr));
            (summary.stdout, summary.stderr) = (stdout.into_text(), stderr.into_text());
        }
        Ok(summary)
    }

    pub(super) fn of_code(view: &ExecView, ran: CodeRan) -> Self {
        let status = view.summary.status.to_string();
        let code = view.error_reason.as_ref().map_or_else(|| status.clone(), |reason| reason.code.clone());
        let ((stdout, stdout_truncated), (stderr, stderr_truncated)) = (truncate(ran.stdout), truncate(ran.stderr));
        Self {
            status,
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
            risk: Some(Risk::of(&ran.assessment)),
            results: ran.results.as_deref().map(forms),
            ..Self::default()
        }
    }

    /// The result while a person is asked.
    pub(super) fn pending(view: &ApprovalView) -> Self {
        Self {
            status: PENDING.to_owned(),
            exec_id: view.exec_id.to_string(),
            approval: Some(ApprovalSummary::of(view)),
            ..Self::default()
        }
    }

    /// True if the command exited by itself, with any code, or has no error.
    fn is_normal(&self) -> bool {
        let ended = [Status::Succeeded, Status::Failed].map(|status| status.to_string());
        self.exit_code.is_some() && ended.contains(&self.status) || self.error.is_none()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(approval) = &self.approval
            && self.status == PENDING
        {
            let what = match approval.kind == ApprovalKind::Network.to_string() {
                true => "this running command may connect to a host",
                false => "this may run",
            };
            text = format!(
                "{PENDING}: a person is asked whether {what} (approval {}, until {}). Poll approval_status with this \
                 approval_id for the result; do not run it again.\n",
                approval.approval_id, approval.expires_at
            );
            for path in &approval.blocked_paths {
                text.push_str(&format!("not allowed yet: {path}\n"));
            }
            return text;
        }
        text.push_str(&self.stdout);
        for result in self.results.iter().flatten().filter_map(|bundle| bundle.get("text/plain")?.as_str()) {
            text.push_str(&format!("{}{result}\n", line_end(&text)));
        }
        if !self.stderr.is_empty() {
            text.push_str(&format!("{}[stderr]\n{}", line_end(&text), self.stderr));
        }
        if let Some(failure) = &self.error {
            text.push_str(&format!("{}[{}] {}\n", line_end(&text), self.status, failure.message));
        }
        if self.stdout_truncated || self.stderr_truncated {
            let rest = format!("ringwall://execs/{}/stdout and …/stderr", self.exec_id);
            text.push_str(&format!("{}[truncated; read {rest}]\n", line_end(&text)));
        }
        match self.exit_code {
            Some(code) if code != 0 => text.push_str(&format!("{}[exit code {code}]\n", line_end(&text))),
            Some(_) | None => {}
        }
        text
    }

    pub(super) fn into_result(mut self) -> CallToolResult {
        let images: Vec<ContentBlock> = self.results.iter_mut().flatten().filter_map(take_image).collect();
        let links = self.artifacts.iter().map(|uri| {
            let name = uri.rsplit('/').next().unwrap_or(uri);
            ContentBlock::resource_link(Resource::new(uri, name))
        });
        let content = std::iter::once(ContentBlock::text(self.text())).chain(images).chain(links).collect();
        tool_result(content, &self, !self.is_normal())
    }
}

/// Removes the image from a result: it becomes a content block of its own.
fn take_image(bundle: &mut Forms) -> Option<ContentBlock> {
    match bundle.remove(IMAGE) {
        Some(Value::String(image)) => Some(ContentBlock::image(image, IMAGE)),
        Some(_) | None => None,
    }
}

fn is_cut(part: &OutputPart) -> bool {
    part.truncated || part.total > part.bytes.len() as u64
}

/// Cuts a text to [`MAX_SHOWN_BYTES`] bytes. Returns true if it was longer.
fn truncate(mut text: String) -> (String, bool) {
    let is_longer = text.len() > MAX_SHOWN_BYTES;
    text.truncate(text.floor_char_boundary(MAX_SHOWN_BYTES));
    (text, is_longer)
}

fn line_end(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') { "" } else { "\n" }
}

/// A result as text and as an object.
pub(super) fn answer(text: impl Into<String>, object: &impl Serialize) -> CallToolResult {
    tool_result(vec![ContentBlock::text(text)], object, false)
}

pub(super) fn tool_result(content: Vec<ContentBlock>, object: &impl Serialize, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(content);
    result.structured_content = serde_json::to_value(object).ok();
    result.is_error = Some(is_error);
    result
}

/// The result for an error of the service, with code and hint.
pub(super) fn service_error(error: &Error) -> CallToolResult {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    error_result(format!("{error} ({}){hint}", error.code()))
}

pub(super) fn error_result(message: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}
