//! What tools answer: as an object whose schema is published, and as text for those who read only that.
//!
//! A command that failed is an answer; an error is what kept it from running to an end of its own.

use std::sync::{Arc, LazyLock};

use ringwall_service::{ApprovalKind, ApprovalView, Bundle, Status};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Resource};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::arguments::schema;

/// The status of something that waits for a person.
pub(super) const PENDING: &str = "approval_pending";

const PICTURE: &str = "image/png";
/// So much JSON of what code gave becomes values here, which take up to a hundred times that room.
const MAX_JSON: usize = 128 * 1024;

/// One value in several forms, by their MIME types.
pub(super) type Forms = std::collections::BTreeMap<String, Value>;

/// What code gave, as values. Text takes no more room than it had; of the rest as much as there is room for.
pub(super) fn forms(results: &[Bundle]) -> Vec<Forms> {
    let mut room = MAX_JSON;
    let mut value = |form: &str| {
        if !form.starts_with('"') {
            room = room.checked_sub(form.len())?;
        }
        serde_json::from_str(form).ok()
    };
    let mut told =
        |bundle: &Bundle| bundle.forms().filter_map(|(mime, form)| Some((mime.to_owned(), value(form)?))).collect();
    results.iter().map(&mut told).collect()
}

/// The schema of the answer that most tools give.
pub(super) static RAN: LazyLock<Arc<JsonObject>> = LazyLock::new(schema::<Ran>);

/// What became of something that was to run.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(super) struct Ran {
    /// SUCCEEDED, FAILED, TIMEOUT, POLICY_DENIED, CANCELLED, LOST; `approval_pending` while a person is asked
    pub(super) status: String,
    pub(super) exec_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// Whether more was printed than is shown here; the resource ringwall://execs/{exec_id}/stdout has the rest
    pub(super) stdout_truncated: bool,
    pub(super) stderr_truncated: bool,
    /// What kept it from running, or ended it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Failure>,
    /// Resources that it left
    pub(super) artifacts: Vec<String>,
    /// Files that code made, relative to the session's workspace
    pub(super) files_created: Vec<String>,
    /// `false` where there are too many to say
    pub(super) files_created_complete: bool,
    /// What code in a context gave, by MIME type. Pictures are blocks of the answer's content; long JSON is left out
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) results: Option<Vec<Forms>>,
    /// What code could do, by its text alone
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) risk: Option<Risk>,
    /// Who made its box: native, docker, gvisor or aio
    pub(super) sandbox_type: String,
    pub(super) execution_time_ms: u64,
    /// What a person is asked
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<Asked>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Failure {
    pub(super) code: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Risk {
    /// safe, low, medium, high or critical
    pub(super) level: String,
    pub(super) reason: String,
    pub(super) detected_patterns: Vec<Noticed>,
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Noticed {
    pub(super) id: String,
    pub(super) line: usize,
    pub(super) message: String,
}

/// A question to a person.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Asked {
    pub(super) approval_id: String,
    /// pending, approved, remembered, denied, expired or cancelled
    pub(super) status: String,
    /// path, risk or network
    pub(super) kind: String,
    pub(super) risk_level: String,
    /// The paths, or the host, that nobody has allowed
    pub(super) blocked_paths: Vec<String>,
    pub(super) patterns: Vec<String>,
    pub(super) expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Where a question stands, and what became of what it was about.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Standing {
    pub(super) approval: Asked,
    /// What waits for the answer, or ran with it
    pub(super) exec: Ran,
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
pub(super) struct Done {
    pub(super) message: String,
}

impl Asked {
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

impl Ran {
    /// It waits for a person, and the caller is told how to learn what they say.
    pub(super) fn pending(view: &ApprovalView) -> Self {
        Self {
            status: PENDING.to_owned(),
            exec_id: view.exec_id.to_string(),
            approval: Some(Asked::of(view)),
            ..Self::default()
        }
    }

    /// Whether it ended, or goes on, in a way of its own.
    fn is_its_own(&self) -> bool {
        let ended = [Status::Succeeded, Status::Failed].map(|status| status.to_string());
        self.exit_code.is_some() && ended.contains(&self.status) || self.error.is_none()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        if let Some(asked) = &self.approval
            && self.status == PENDING
        {
            let what = match asked.kind == ApprovalKind::Network.to_string() {
                true => "this, which runs, may connect to a host",
                false => "this may run",
            };
            text = format!(
                "{PENDING}: a person is asked whether {what} (approval {}, until {}). Call approval_status with this \
                 approval_id to learn what became of it; do not run it again.\n",
                asked.approval_id, asked.expires_at
            );
            for path in &asked.blocked_paths {
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
            text.push_str(&format!("{}[cut off; the rest is in {rest}]\n", line_end(&text)));
        }
        match self.exit_code {
            Some(code) if code != 0 => text.push_str(&format!("{}[exit code {code}]\n", line_end(&text))),
            Some(_) | None => {}
        }
        text
    }

    pub(super) fn into_result(mut self) -> CallToolResult {
        let pictures: Vec<ContentBlock> = self.results.iter_mut().flatten().filter_map(take_picture).collect();
        let links = self.artifacts.iter().map(|uri| {
            let name = uri.rsplit('/').next().unwrap_or(uri);
            ContentBlock::resource_link(Resource::new(uri, name))
        });
        let content = std::iter::once(ContentBlock::text(self.text())).chain(pictures).chain(links).collect();
        told(content, &self, !self.is_its_own())
    }
}

/// A picture is shown, and not told as text a second time.
fn take_picture(bundle: &mut Forms) -> Option<ContentBlock> {
    match bundle.remove(PICTURE) {
        Some(Value::String(picture)) => Some(ContentBlock::image(picture, PICTURE)),
        Some(_) | None => None,
    }
}

fn line_end(text: &str) -> &'static str {
    if text.is_empty() || text.ends_with('\n') { "" } else { "\n" }
}

/// An answer in both forms.
pub(super) fn answer(text: impl Into<String>, object: &impl Serialize) -> CallToolResult {
    told(vec![ContentBlock::text(text)], object, false)
}

fn told(content: Vec<ContentBlock>, object: &impl Serialize, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(content);
    result.structured_content = serde_json::to_value(object).ok();
    result.is_error = Some(is_error);
    result
}

/// What a tool could not do, in words that help whoever asked.
pub(super) fn failed(error: &ringwall_service::Error) -> CallToolResult {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    refused(format!("{error} ({}){hint}", error.code()))
}

pub(super) fn refused(message: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message)])
}
