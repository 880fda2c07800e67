//! Browser tools: starts an action and waits for its end or for an approval that the client's user
//! cannot give.
//!
//! Cancelling the request cancels the action.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringwall_policy::BrowserKind;
use ringwall_service::{
    Announcement, ApprovalTopic, ApprovalView, BrowserAnswer, BrowserBegun, BrowserRequest, Error, SessionAddress,
    StreamEnd,
};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject};
use serde_json::Value;

use super::browser_tools::{BrowserSummary, BrowserTool};
use super::call::{CANCELLED, Call};
use super::elicitation::{self, AskMethod, UserAnswer};
use super::results::{ApprovalSummary, PENDING, RunError, RunSummary, error_result};

const FAILED: &str = "FAILED";
const SUCCEEDED: &str = "SUCCEEDED";

impl Call<'_> {
    pub(super) async fn browse(&self, tool: BrowserTool, mut arguments: JsonObject) -> Result<CallToolResponse, Error> {
        let mut take = |name: &str| arguments.remove(name).filter(|value| !value.is_null());
        let session = take("session_id").and_then(|session| session.as_str().map(str::to_owned));
        let flags = [take("needs_file_access"), take("is_research")];
        let has_flag = flags.iter().flatten().next().is_some();
        let is_sandbox = flags.iter().flatten().any(|flag| flag.as_bool() == Some(true));
        let kind = has_flag.then_some(if is_sandbox { BrowserKind::Sandbox } else { BrowserKind::External });
        arguments.retain(|_, value| !value.is_null());
        let request = BrowserRequest {
            session: SessionAddress {
                session_id: self.caller.session(session),
                user_id: self.caller.user(),
                agent_id: Some(self.caller.agent()),
            },
            action: tool.action().to_owned(),
            params: Value::Object(arguments),
            kind,
        };
        let begun = self.service.begin_browser(&self.caller.principal, request).await?;
        self.wait_for_browser(begun).await
    }

    /// Waits until the action has ended or needs an approval from elsewhere.
    pub(super) async fn wait_for_browser(&self, begun: BrowserBegun) -> Result<CallToolResponse, Error> {
        let topic = || ApprovalTopic::Exec(begun.action_id.clone());
        let mut following = Some(self.service.follow_approvals(&self.caller.principal, topic())?);
        loop {
            let news = async {
                match &mut following {
                    Some(following) => following.next().await,
                    None => std::future::pending().await,
                }
            };
            let view = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => {
                    begun.cancel();
                    return Ok(error_result(CANCELLED).into());
                }
                answer = self.service.finish_browser(&begun) => return Ok(browser_result(answer?).into()),
                news = news => match news {
                    Ok(Announcement::Opened(view)) => view,
                    Ok(Announcement::Resolved(_)) => continue,
                    // A new subscription begins with the approvals that are open.
                    Err(StreamEnd::Lagged) => {
                        following = Some(self.service.follow_approvals(&self.caller.principal, topic())?);
                        continue;
                    }
                    Err(StreamEnd::Stopping) => {
                        following = None;
                        continue;
                    }
                },
            };
            match AskMethod::of(self.caller, self.context) {
                AskMethod::Unavailable => return Ok(self.browser_pending(begun, &view, None).into()),
                AskMethod::Result => {
                    let result = self.seal.result(self.caller, self.tool, &view);
                    self.pending_calls.keep_browser(begun);
                    return Ok(result.into());
                }
                AskMethod::Request => {}
            }
            let answer = tokio::select! {
                biased;
                () = self.context.ct.cancelled() => {
                    begun.cancel();
                    return Ok(error_result(CANCELLED).into());
                }
                answer = self.service.finish_browser(&begun) => return Ok(browser_result(answer?).into()),
                answer = elicitation::ask(self.context, &view) => answer,
            };
            let submitted = match answer {
                UserAnswer::None | UserAnswer::Missing => return Ok(self.browser_pending(begun, &view, None).into()),
                UserAnswer::Answer(given) => {
                    elicitation::submit(self.service, self.caller, view.id.as_str(), given).await
                }
            };
            if let Err(error) = submitted {
                return Ok(self.browser_pending(begun, &view, Some(&error)).into());
            }
        }
    }

    /// The result while the approval is open. `why` is the reason if the client's own answer was
    /// rejected.
    pub(super) fn browser_pending(
        &self,
        begun: BrowserBegun,
        view: &ApprovalView,
        why: Option<&Error>,
    ) -> CallToolResult {
        let summary = BrowserSummary {
            status: PENDING.to_owned(),
            action_id: begun.action_id.to_string(),
            data: None,
            error: why.map(|error| RunError { code: error.code().to_owned(), message: error.to_string() }),
            approval: Some(ApprovalSummary::of(view)),
        };
        self.pending_calls.keep_browser(begun);
        result(vec![ContentBlock::text(RunSummary::pending(view).text())], &summary, why.is_some())
    }

    /// The state of an action for `approval_status`, in the form of an exec's result.
    pub(super) async fn browser_state(&self, begun: &BrowserBegun, view: &ApprovalView) -> Result<RunSummary, Error> {
        if !begun.is_over() {
            return Ok(RunSummary::pending(view));
        }
        let answer = self.service.finish_browser(begun).await?;
        let status = if answer.success { SUCCEEDED } else { FAILED };
        Ok(RunSummary {
            status: status.to_owned(),
            exec_id: answer.action_id.to_string(),
            stdout: if answer.data.is_null() { String::new() } else { answer.data.to_string() },
            error: answer.error.map(|message| RunError { code: FAILED.to_owned(), message }),
            sandbox_type: "native".to_owned(),
            ..RunSummary::default()
        })
    }
}

fn browser_result(answer: BrowserAnswer) -> CallToolResult {
    let BrowserAnswer { action_id, success, data, error, picture } = answer;
    let mut content = match (&error, &data) {
        (Some(error), _) => vec![ContentBlock::text(error.clone())],
        (None, Value::Object(data)) => vec![ContentBlock::text(text_of(data))],
        (None, other) => vec![ContentBlock::text(other.to_string())],
    };
    content.extend(picture.map(|picture| ContentBlock::image(STANDARD.encode(picture), "image/png")));
    let summary = BrowserSummary {
        status: if success { SUCCEEDED } else { FAILED }.to_owned(),
        action_id: action_id.to_string(),
        data: match data {
            Value::Object(data) => Some(data),
            _ => None,
        },
        error: error.map(|message| RunError { code: FAILED.to_owned(), message }),
        approval: None,
    };
    result(content, &summary, !success)
}

/// The text of a result: the page's content after its address, or the whole object as JSON.
fn text_of(data: &JsonObject) -> String {
    match data.get("content").and_then(Value::as_str) {
        Some(content) => {
            let place = data.get("url").and_then(Value::as_str).unwrap_or_default();
            format!("{place}\n{content}")
        }
        None => Value::Object(data.clone()).to_string(),
    }
}

fn result(content: Vec<ContentBlock>, summary: &BrowserSummary, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(content);
    result.structured_content = serde_json::to_value(summary).ok();
    result.is_error = Some(is_error);
    result
}
