//! The browser tools: their descriptions, argument schemas and results.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringwall_policy::BrowserKind;
use ringwall_service::{ApprovalView, BrowserAnswer, BrowserRequest, Error};
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject, Tool};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::arguments::{read, schema};
use super::call::{Call, Started};
use super::results::{ApprovalSummary, PENDING, RunError, RunSummary, tool_result};
use super::tools::{Effect, NetworkAccess, annotations};

const FAILED: &str = "FAILED";
const SUCCEEDED: &str = "SUCCEEDED";

/// One browser tool.
#[derive(Debug)]
pub(super) struct BrowserTool {
    pub(super) name: &'static str,
    /// The action of the browser API.
    action: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
    schema: fn() -> Arc<JsonObject>,
    validate: fn(Option<JsonObject>) -> Result<(), String>,
}

impl BrowserTool {
    const fn new<T: JsonSchema + DeserializeOwned>(
        name: &'static str,
        action: &'static str,
        title: &'static str,
        description: &'static str,
        effect: Effect,
    ) -> Self {
        Self { name, action, title, description, effect, schema: schema::<T>, validate: validate::<T> }
    }

    pub(super) fn describe(&self) -> Tool {
        Tool::new(self.name, self.description, (self.schema)())
            .with_title(self.title)
            .with_raw_output_schema(schema::<BrowserSummary>())
            .with_annotations(annotations(self.title, self.effect, NetworkAccess::Open))
    }

    /// Validates the arguments and returns them unchanged.
    pub(super) fn check(&self, arguments: Option<JsonObject>) -> Result<JsonObject, String> {
        (self.validate)(arguments.clone())?;
        Ok(arguments.unwrap_or_default())
    }
}

fn validate<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<(), String> {
    read::<T>(arguments).map(drop)
}

/// The browser tools, one for each action.
pub(super) static BROWSER_TOOLS: [BrowserTool; 15] = [
    BrowserTool::new::<NavigateArguments>(
        "browser_navigate",
        "navigate",
        "Open a page",
        "Opens a page in the session's browser and waits until it is loaded. The external browser (default) \
                 reaches the public internet; the sandbox browser (needs_file_access) runs in the session's box, with \
                 its files and network.",
        Effect::Moves,
    ),
    BrowserTool::new::<ElementArguments>(
        "browser_click",
        "click",
        "Click",
        "Clicks an element of the page.",
        Effect::Changes,
    ),
    BrowserTool::new::<FillArguments>(
        "browser_fill",
        "fill",
        "Fill in a field",
        "Types a text into a field of the page, in place of its content. Fields for passwords and payments need \
                 a person's approval.",
        Effect::Changes,
    ),
    BrowserTool::new::<ScreenshotArguments>(
        "browser_screenshot",
        "screenshot",
        "Take a screenshot",
        "Takes a screenshot of the page or of one element.",
        Effect::Reads,
    ),
    BrowserTool::new::<ContentArguments>(
        "browser_content",
        "get_content",
        "Read the page",
        "Reads the page as text, as HTML, or as an outline of the elements that can be acted on, with references \
                 for the other tools.",
        Effect::Reads,
    ),
    BrowserTool::new::<NoArguments>(
        "browser_close",
        "close",
        "Close the browser",
        "Ends the session's browser.",
        Effect::Moves,
    ),
    BrowserTool::new::<WaitArguments>(
        "browser_wait_for",
        "wait_for",
        "Wait",
        "Waits until an element or a text is there, or until the page is loaded.",
        Effect::Reads,
    ),
    BrowserTool::new::<PressArguments>(
        "browser_press",
        "press",
        "Press a key",
        "Sends a key to the focused element.",
        Effect::Changes,
    ),
    BrowserTool::new::<SelectArguments>(
        "browser_select",
        "select",
        "Select options",
        "Selects options of a list.",
        Effect::Changes,
    ),
    BrowserTool::new::<ScrollArguments>(
        "browser_scroll",
        "scroll",
        "Scroll",
        "Scrolls to an element, or by a number of pixels.",
        Effect::Moves,
    ),
    BrowserTool::new::<NoArguments>(
        "browser_back",
        "back",
        "Go back",
        "Goes back to the previous page.",
        Effect::Moves,
    ),
    BrowserTool::new::<EvaluateArguments>(
        "browser_evaluate",
        "evaluate",
        "Run a script",
        "Runs JavaScript in the page and returns its value. It needs a person's approval.",
        Effect::Changes,
    ),
    BrowserTool::new::<DownloadArguments>(
        "browser_download",
        "download",
        "Download a file",
        "Downloads a file into data/ of the session's workspace.",
        Effect::Moves,
    ),
    BrowserTool::new::<UploadArguments>(
        "browser_upload",
        "upload",
        "Upload files",
        "Puts files of the session's workspace into a file field of the page.",
        Effect::Changes,
    ),
    BrowserTool::new::<NoArguments>(
        "browser_pdf",
        "pdf",
        "Print the page",
        "Saves the page as a PDF in data/ of the session's workspace.",
        Effect::Moves,
    ),
];

macro_rules! arguments {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only validates; the original JSON is passed on")]
        struct $name {
            $($(#[$field_meta])* $field: $type,)*
            /// Session whose browser to use; default the connection's session
            session_id: Option<String>,
        }
    };
}

arguments!(NavigateArguments {
    /// Address to open: http, https or about:blank; in the sandbox browser also file:///workspace/…
    url: String,
    /// Timeout in seconds; default 30
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
    /// true: use the sandbox browser, which runs in the session's box with its files and network
    needs_file_access: Option<bool>,
    /// true: use the sandbox browser
    is_research: Option<bool>,
});
arguments!(
    /// Exactly one of selector, ref and text names the element.
    ElementArguments {
        /// CSS selector of the element
        selector: Option<String>,
        /// Reference of the element, such as e12, from browser_content with format outline
            r#ref: Option<String>,
        /// Text that the element shows
        text: Option<String>,
    }
);
arguments!(FillArguments {
    /// CSS selector of the field
    selector: Option<String>,
    /// Reference of the field, such as e12, from browser_content with format outline
    r#ref: Option<String>,
    /// Text to put into the field in place of its content
    value: String,
});
arguments!(ScreenshotArguments {
    /// true: the whole page instead of the visible part
    full_page: Option<bool>,
    /// CSS selector, to capture one element
    selector: Option<String>,
    /// Reference such as e12, to capture one element
    r#ref: Option<String>,
});
arguments!(ContentArguments {
    /// text (default), html, or outline: a list of the elements that can be acted on, with
    /// references
    format: Option<ContentFormat>,
});
arguments!(WaitArguments {
    /// CSS selector of an element to wait for
    selector: Option<String>,
    /// Reference of an element to wait for, such as e12
    r#ref: Option<String>,
    /// Text to wait for, anywhere in the page. Without selector, ref and text: waits until the page
    /// is loaded
    text: Option<String>,
    /// Timeout in seconds; default 30
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
});
arguments!(PressArguments {
    /// Key or combination of keys, such as Enter, a or Control+A
    key: String,
});
arguments!(SelectArguments {
    /// CSS selector of the list
    selector: Option<String>,
    /// Reference of the list, such as e12
    r#ref: Option<String>,
    /// Values or texts of the options to select
    values: Vec<String>,
});
arguments!(ScrollArguments {
    /// CSS selector of an element to scroll into view
    selector: Option<String>,
    /// Reference of an element to scroll into view, such as e12
    r#ref: Option<String>,
    /// Text to scroll into view
    text: Option<String>,
    /// Pixels to scroll to the right, instead of to an element
    x: Option<i32>,
    /// Pixels to scroll down, instead of to an element
    y: Option<i32>,
});
arguments!(EvaluateArguments {
    /// JavaScript expression. It runs only after a person has approved it
    script: String,
});
arguments!(DownloadArguments {
    /// Address to download
    url: Option<String>,
    /// Instead of url: CSS selector of an element to click
    selector: Option<String>,
    /// Instead of url: reference of an element to click, such as e12
    r#ref: Option<String>,
    /// Instead of url: text of an element to click
    text: Option<String>,
    /// Timeout in seconds; default 30
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
});
arguments!(UploadArguments {
    /// CSS selector of the file field
    selector: Option<String>,
    /// Reference of the file field, such as e12
    r#ref: Option<String>,
    /// Paths of the files, relative to the session's workspace
    files: Vec<String>,
});
arguments!(NoArguments {});

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum ContentFormat {
    Text,
    Html,
    Outline,
}

/// Result of a browser action.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct BrowserSummary {
    /// SUCCEEDED or FAILED; `approval_pending` while it waits for a person
    pub(super) status: String,
    /// Id of the action in the record
    pub(super) action_id: String,
    /// Result of the action, with `url` and `title` of the page
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<RunError>,
    /// The approval that it waits for
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<ApprovalSummary>,
}

impl Call<'_> {
    pub(super) async fn browse(
        &self,
        tool: &BrowserTool,
        mut arguments: JsonObject,
    ) -> Result<CallToolResponse, Error> {
        let mut take = |name: &str| arguments.remove(name).filter(|value| !value.is_null());
        let session = take("session_id").and_then(|session| session.as_str().map(str::to_owned));
        let flags = [take("needs_file_access"), take("is_research")];
        let has_flag = flags.iter().flatten().next().is_some();
        let is_sandbox = flags.iter().flatten().any(|flag| flag.as_bool() == Some(true));
        let kind = has_flag.then_some(if is_sandbox { BrowserKind::Sandbox } else { BrowserKind::External });
        arguments.retain(|_, value| !value.is_null());
        let request = BrowserRequest {
            session: self.caller.session_address(session),
            action: tool.action.to_owned(),
            params: Value::Object(arguments),
            kind,
        };
        let begun = self.service.begin_browser(&self.caller.principal, request).await?;
        self.wait_for_result(Started::Browser(begun)).await
    }
}

/// The result while the approval is open.
pub(super) fn pending(view: &ApprovalView, error: Option<RunError>) -> CallToolResult {
    let is_error = error.is_some();
    let summary = BrowserSummary {
        status: PENDING.to_owned(),
        action_id: view.exec_id.to_string(),
        data: None,
        error,
        approval: Some(ApprovalSummary::of(view)),
    };
    tool_result(vec![ContentBlock::text(RunSummary::pending(view).text())], &summary, is_error)
}

/// The result of an action for `approval_status`, in the form of an exec's result.
pub(super) fn summary(answer: BrowserAnswer) -> RunSummary {
    RunSummary {
        status: status(answer.success).to_owned(),
        exec_id: answer.action_id.to_string(),
        stdout: if answer.data.is_null() { String::new() } else { answer.data.to_string() },
        error: answer.error.map(failure),
        sandbox_type: "native".to_owned(),
        ..RunSummary::default()
    }
}

pub(super) fn result(answer: BrowserAnswer) -> CallToolResult {
    let BrowserAnswer { action_id, success, data, error, picture } = answer;
    let text = match (&error, &data) {
        (Some(error), _) => error.clone(),
        (None, Value::Object(data)) => text_of(data),
        (None, other) => other.to_string(),
    };
    let image = picture.map(|picture| ContentBlock::image(STANDARD.encode(picture), "image/png"));
    let summary = BrowserSummary {
        status: status(success).to_owned(),
        action_id: action_id.to_string(),
        data: match data {
            Value::Object(data) => Some(data),
            _ => None,
        },
        error: error.map(failure),
        approval: None,
    };
    tool_result(std::iter::once(ContentBlock::text(text)).chain(image).collect(), &summary, !success)
}

fn status(success: bool) -> &'static str {
    if success { SUCCEEDED } else { FAILED }
}

fn failure(message: String) -> RunError {
    RunError { code: FAILED.to_owned(), message }
}

/// The text of a result: the page's content after its address, or the whole object as JSON.
fn text_of(data: &JsonObject) -> String {
    match data.get("content").and_then(Value::as_str) {
        Some(content) => {
            let url = data.get("url").and_then(Value::as_str).unwrap_or_default();
            format!("{url}\n{content}")
        }
        None => Value::Object(data.clone()).to_string(),
    }
}
