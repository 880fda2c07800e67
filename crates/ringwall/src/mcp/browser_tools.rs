//! The tools of a session's browser: their names, what they take, and what they say of themselves.

use rmcp::model::{JsonObject, Tool};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answers::{Asked, Failure};
use super::arguments::{read, schema};
use super::tools::{Effect, World, annotations};

/// What a tool asks of the browser.
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

/// What became of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct Browsed {
    /// SUCCEEDED or FAILED; `approval_pending` while a person is asked
    pub(super) status: String,
    /// Under which it is on record
    pub(super) action_id: String,
    /// What the action gives, with `url` and `title` of the page
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<JsonObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Failure>,
    /// What a person is asked
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) approval: Option<Asked>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read for its form; what is passed on is what was sent")]
struct NavigateArguments {
    /// http or https, or about:blank; file:///workspace/… in the sandbox browser
    url: String,
    /// How long it may take, in seconds; 30 unless said
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
    /// true for the sandbox browser, which is in the session's own box, sees its files and has its network
    needs_file_access: Option<bool>,
    /// true for the sandbox browser too
    is_research: Option<bool>,
    /// Whose browser it is; the client's own session unless said
    session_id: Option<String>,
}

macro_rules! arguments {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "read for its form; what is passed on is what was sent")]
        struct $name {
            $($(#[$field_meta])* $field: $type,)*
            /// Whose browser it is; the client's own session unless said
            session_id: Option<String>,
        }
    };
}

arguments!(
    /// One of them names the element.
    ElementArguments {
        /// A CSS selector
        selector: Option<String>,
        /// A reference like e12 from browser_content with format outline
        #[serde(rename = "ref")]
        reference: Option<String>,
        /// A text that the element shows
        text: Option<String>,
    }
);
arguments!(FillArguments {
    /// A CSS selector
    selector: Option<String>,
    /// A reference like e12 from browser_content with format outline
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// What the field is to hold
    value: String,
});
arguments!(ScreenshotArguments {
    /// The whole page instead of what is in view
    full_page: Option<bool>,
    /// A CSS selector, for one element
    selector: Option<String>,
    /// A reference like e12, for one element
    #[serde(rename = "ref")]
    reference: Option<String>,
});
arguments!(ContentArguments {
    /// text unless said; outline lists what can be acted on, with references
    format: Option<ContentFormat>,
});
arguments!(WaitArguments {
    /// A CSS selector
    selector: Option<String>,
    /// A reference like e12
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// A text anywhere in the page; without any of these, until the page is loaded
    text: Option<String>,
    /// In seconds; 30 unless said
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
});
arguments!(PressArguments {
    /// A key by its name, like Enter or a, or with others, like Control+A
    key: String,
});
arguments!(SelectArguments {
    /// A CSS selector
    selector: Option<String>,
    /// A reference like e12
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Options by their value or their text
    values: Vec<String>,
});
arguments!(ScrollArguments {
    /// A CSS selector of an element to be seen
    selector: Option<String>,
    /// A reference like e12
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// A text that is to be seen
    text: Option<String>,
    /// Or by so many pixels
    x: Option<i32>,
    y: Option<i32>,
});
arguments!(EvaluateArguments {
    /// An expression of JavaScript; a person is asked first
    script: String,
});
arguments!(DownloadArguments {
    /// An address
    url: Option<String>,
    /// Or an element to click: a CSS selector
    selector: Option<String>,
    /// A reference like e12
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// A text that the element shows
    text: Option<String>,
    /// In seconds; 30 unless said
    #[schemars(range(min = 1, max = 120))]
    timeout: Option<u64>,
});
arguments!(UploadArguments {
    /// A CSS selector of a file field
    selector: Option<String>,
    /// A reference like e12
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Paths relative to the session's workspace
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

    /// Its name, the action that it stands for, and how it introduces itself.
    const fn told(self) -> (&'static str, &'static str, &'static str, &'static str, Effect) {
        match self {
            Self::Navigate => (
                "browser_navigate",
                "navigate",
                "Open a page",
                "Opens a page in the session's browser and waits until it is loaded. The external browser reaches the \
                 public internet; the sandbox one (needs_file_access) is in the session's box.",
                Effect::Moves,
            ),
            Self::Click => ("browser_click", "click", "Click", "Clicks an element of the page.", Effect::Changes),
            Self::Fill => (
                "browser_fill",
                "fill",
                "Fill in a field",
                "Types into a field of the page, in place of what is there. For a password or a payment a person is asked \
                 first.",
                Effect::Changes,
            ),
            Self::Screenshot => {
                ("browser_screenshot", "screenshot", "Take a picture", "Takes a picture of the page.", Effect::Reads)
            }
            Self::Content => (
                "browser_content",
                "get_content",
                "Read the page",
                "Reads the page as text, as HTML, or as an outline of what can be acted on.",
                Effect::Reads,
            ),
            Self::Close => {
                ("browser_close", "close", "Close the browser", "Ends the session's browser.", Effect::Moves)
            }
            Self::WaitFor => (
                "browser_wait_for",
                "wait_for",
                "Wait",
                "Waits for an element or a text, or until the page is loaded.",
                Effect::Reads,
            ),
            Self::Press => {
                ("browser_press", "press", "Press a key", "Sends a key to what has the focus.", Effect::Changes)
            }
            Self::Select => {
                ("browser_select", "select", "Choose options", "Chooses options of a list.", Effect::Changes)
            }
            Self::Scroll => {
                ("browser_scroll", "scroll", "Scroll", "Scrolls to an element, or by some pixels.", Effect::Moves)
            }
            Self::Back => ("browser_back", "back", "Go back", "Goes back to the page before.", Effect::Moves),
            Self::Evaluate => (
                "browser_evaluate",
                "evaluate",
                "Run a script",
                "Runs JavaScript in the page and gives its value. A person is asked first.",
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
                "Gives files of the session's workspace to a file field of the page.",
                Effect::Changes,
            ),
            Self::Pdf => (
                "browser_pdf",
                "pdf",
                "Print the page",
                "Prints the page as a PDF into data/ of the session's workspace.",
                Effect::Moves,
            ),
        }
    }

    pub(super) const fn name(self) -> &'static str {
        self.told().0
    }

    pub(super) const fn action(self) -> &'static str {
        self.told().1
    }

    /// What was sent, if this tool takes it.
    pub(super) fn check(self, arguments: Option<JsonObject>) -> Result<JsonObject, String> {
        fn has_form<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<JsonObject, String> {
            read::<T>(arguments.clone())?;
            Ok(arguments.unwrap_or_default())
        }
        match self {
            Self::Navigate => has_form::<NavigateArguments>(arguments),
            Self::Click => has_form::<ElementArguments>(arguments),
            Self::Fill => has_form::<FillArguments>(arguments),
            Self::Screenshot => has_form::<ScreenshotArguments>(arguments),
            Self::Content => has_form::<ContentArguments>(arguments),
            Self::WaitFor => has_form::<WaitArguments>(arguments),
            Self::Press => has_form::<PressArguments>(arguments),
            Self::Select => has_form::<SelectArguments>(arguments),
            Self::Scroll => has_form::<ScrollArguments>(arguments),
            Self::Evaluate => has_form::<EvaluateArguments>(arguments),
            Self::Download => has_form::<DownloadArguments>(arguments),
            Self::Upload => has_form::<UploadArguments>(arguments),
            Self::Close | Self::Back | Self::Pdf => has_form::<NoArguments>(arguments),
        }
    }

    pub(super) fn describe(self) -> Tool {
        let (name, _, title, words, effect) = self.told();
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
        Tool::new(name, words, takes)
            .with_title(title)
            .with_raw_output_schema(schema::<Browsed>())
            .with_annotations(annotations(title, effect, World::Open))
    }
}
