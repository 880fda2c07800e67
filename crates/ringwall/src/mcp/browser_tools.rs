//! The browser tools: names, descriptions and argument schemas.

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::arguments::{read, schema};
use super::results::{ApprovalSummary, RunError};
use super::tools::{Effect, NetworkAccess, annotations};

/// The browser tools, one for each action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BrowserTool {
    Navigate,
    Click,
    Fill,
    Screenshot,
    Content,
    Close,
    WaitFor,
    Press,
    Select,
    Scroll,
    Back,
    Evaluate,
    Download,
    Upload,
    Pdf,
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

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only validates; the original JSON is passed on")]
struct NavigateArguments {
    /// Address to open: http, https or about:blank; in the sandbox browser also file:///workspace/…
    url: String,
    /// Timeout in seconds; default 30
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
    /// true: use the sandbox browser, which runs in the session's box with its files and network
    needs_file_access: Option<bool>,
    /// true: use the sandbox browser
    is_research: Option<bool>,
    /// Session whose browser to use; default the connection's session
    session_id: Option<String>,
}

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

arguments!(
    /// Exactly one of selector, ref and text names the element.
    ElementArguments {
        /// CSS selector of the element
        selector: Option<String>,
        /// Reference of the element, such as e12, from browser_content with format outline
        #[serde(rename = "ref")]
        reference: Option<String>,
        /// Text that the element shows
        text: Option<String>,
    }
);
arguments!(FillArguments {
    /// CSS selector of the field
    selector: Option<String>,
    /// Reference of the field, such as e12, from browser_content with format outline
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Text to put into the field in place of its content
    value: String,
});
arguments!(ScreenshotArguments {
    /// true: the whole page instead of the visible part
    full_page: Option<bool>,
    /// CSS selector, to capture one element
    selector: Option<String>,
    /// Reference such as e12, to capture one element
    #[serde(rename = "ref")]
    reference: Option<String>,
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
    #[serde(rename = "ref")]
    reference: Option<String>,
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
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Values or texts of the options to select
    values: Vec<String>,
});
arguments!(ScrollArguments {
    /// CSS selector of an element to scroll into view
    selector: Option<String>,
    /// Reference of an element to scroll into view, such as e12
    #[serde(rename = "ref")]
    reference: Option<String>,
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
    #[serde(rename = "ref")]
    reference: Option<String>,
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
    #[serde(rename = "ref")]
    reference: Option<String>,
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

impl BrowserTool {
    pub(super) const ALL: [Self; 15] = [
        Self::Navigate,
        Self::Click,
        Self::Fill,
        Self::Screenshot,
        Self::Content,
        Self::Close,
        Self::WaitFor,
        Self::Press,
        Self::Select,
        Self::Scroll,
        Self::Back,
        Self::Evaluate,
        Self::Download,
        Self::Upload,
        Self::Pdf,
    ];

    /// Name, action of the browser API, title, description and effect.
    const fn description(self) -> (&'static str, &'static str, &'static str, &'static str, Effect) {
        match self {
            Self::Navigate => (
                "browser_navigate",
                "navigate",
                "Open a page",
                "Opens a page in the session's browser and waits until it is loaded. The external browser (default) \
                 reaches the public internet; the sandbox browser (needs_file_access) runs in the session's box, with \
                 its files and network.",
                Effect::Moves,
            ),
            Self::Click => ("browser_click", "click", "Click", "Clicks an element of the page.", Effect::Changes),
            Self::Fill => (
                "browser_fill",
                "fill",
                "Fill in a field",
                "Types a text into a field of the page, in place of its content. Fields for passwords and payments need \
                 a person's approval.",
                Effect::Changes,
            ),
            Self::Screenshot => (
                "browser_screenshot",
                "screenshot",
                "Take a screenshot",
                "Takes a screenshot of the page or of one element.",
                Effect::Reads,
            ),
            Self::Content => (
                "browser_content",
                "get_content",
                "Read the page",
                "Reads the page as text, as HTML, or as an outline of the elements that can be acted on, with references \
                 for the other tools.",
                Effect::Reads,
            ),
            Self::Close => {
                ("browser_close", "close", "Close the browser", "Ends the session's browser.", Effect::Moves)
            }
            Self::WaitFor => (
                "browser_wait_for",
                "wait_for",
                "Wait",
                "Waits until an element or a text is there, or until the page is loaded.",
                Effect::Reads,
            ),
            Self::Press => {
                ("browser_press", "press", "Press a key", "Sends a key to the focused element.", Effect::Changes)
            }
            Self::Select => {
                ("browser_select", "select", "Select options", "Selects options of a list.", Effect::Changes)
            }
            Self::Scroll => (
                "browser_scroll",
                "scroll",
                "Scroll",
                "Scrolls to an element, or by a number of pixels.",
                Effect::Moves,
            ),
            Self::Back => ("browser_back", "back", "Go back", "Goes back to the previous page.", Effect::Moves),
            Self::Evaluate => (
                "browser_evaluate",
                "evaluate",
                "Run a script",
                "Runs JavaScript in the page and returns its value. It needs a person's approval.",
                Effect::Changes,
            ),
            Self::Download => (
                "browser_download",
                "download",
                "Download a file",
                "Downloads a file into data/ of the session's workspace.",
                Effect::Moves,
            ),
            Self::Upload => (
                "browser_upload",
                "upload",
                "Upload files",
                "Puts files of the session's workspace into a file field of the page.",
                Effect::Changes,
            ),
            Self::Pdf => (
                "browser_pdf",
                "pdf",
                "Print the page",
                "Saves the page as a PDF in data/ of the session's workspace.",
                Effect::Moves,
            ),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.description().0
    }

    pub(super) const fn action(self) -> &'static str {
        self.description().1
    }

    /// Validates the arguments and returns them unchanged.
    pub(super) fn check(self, arguments: Option<JsonObject>) -> Result<JsonObject, String> {
        fn validate<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<JsonObject, String> {
            read::<T>(arguments.clone())?;
            Ok(arguments.unwrap_or_default())
        }
        match self {
            Self::Navigate => validate::<NavigateArguments>(arguments),
            Self::Click => validate::<ElementArguments>(arguments),
            Self::Fill => validate::<FillArguments>(arguments),
            Self::Screenshot => validate::<ScreenshotArguments>(arguments),
            Self::Content => validate::<ContentArguments>(arguments),
            Self::WaitFor => validate::<WaitArguments>(arguments),
            Self::Press => validate::<PressArguments>(arguments),
            Self::Select => validate::<SelectArguments>(arguments),
            Self::Scroll => validate::<ScrollArguments>(arguments),
            Self::Evaluate => validate::<EvaluateArguments>(arguments),
            Self::Download => validate::<DownloadArguments>(arguments),
            Self::Upload => validate::<UploadArguments>(arguments),
            Self::Close | Self::Back | Self::Pdf => validate::<NoArguments>(arguments),
        }
    }

    pub(super) fn describe(self) -> Tool {
        let (name, _, title, description, effect) = self.description();
        let takes = match self {
            Self::Navigate => schema::<NavigateArguments>(),
            Self::Click => schema::<ElementArguments>(),
            Self::Fill => schema::<FillArguments>(),
            Self::Screenshot => schema::<ScreenshotArguments>(),
            Self::Content => schema::<ContentArguments>(),
            Self::WaitFor => schema::<WaitArguments>(),
            Self::Press => schema::<PressArguments>(),
            Self::Select => schema::<SelectArguments>(),
            Self::Scroll => schema::<ScrollArguments>(),
            Self::Evaluate => schema::<EvaluateArguments>(),
            Self::Download => schema::<DownloadArguments>(),
            Self::Upload => schema::<UploadArguments>(),
            Self::Close | Self::Back | Self::Pdf => schema::<NoArguments>(),
        };
        Tool::new(name, description, takes)
            .with_title(title)
            .with_raw_output_schema(schema::<BrowserSummary>())
            .with_annotations(annotations(title, effect, NetworkAccess::Open))
    }
}
