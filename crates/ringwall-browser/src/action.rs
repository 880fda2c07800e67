//! Actions of a browser and their targets.
//!
//! The comment of each action shows `Answer::data` after it.

use std::fmt;
use std::time::Duration;

/// An element of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The first element that the selector matches.
    Css(String),
    /// A reference of the last outline, such as `e12`.
    Reference(String),
    /// A visible element with this text, ignoring letter case. In this order: a clickable element
    /// with exactly this text, a clickable one that contains it, any with exactly this text, any
    /// that contains it.
    Text(String),
    /// The focused element, to which `Press` sends its key.
    Focused,
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Css(selector) => write!(formatter, "`{selector}`"),
            Self::Reference(reference) => write!(formatter, "the reference {reference}"),
            Self::Text(text) => write!(formatter, "the text `{text}`"),
            Self::Focused => formatter.write_str("the focus"),
        }
    }
}

/// Kind of a field, derived from its type, attributes and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Ordinary,
    Password,
    Payment,
}

impl fmt::Display for FieldKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ordinary => "an ordinary field",
            Self::Password => "a password field",
            Self::Payment => "a payment field",
        })
    }
}

/// Names that mark a field as password or payment field if its type does not. A single word matches
/// whole words if it has up to four letters, otherwise any part of a word. Several words match
/// consecutive words, also if written together.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct FieldNames {
    pub passwords: Vec<String>,
    pub payments: Vec<String>,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// `{"status": 200 | null, "loaded": true}`; `loaded` is false if the time limit passed before
    /// the page's load event.
    Navigate { url: String, timeout: Duration },
    /// `{"navigated": false}`
    Click { target: Target },
    /// Fails if the field is not of the expected kind when the text is entered. `null`
    Fill { target: Target, text: String, expected: FieldKind },
    /// `{"truncated": false}`, and `Answer::screenshot`, a PNG. An area that is too large is cut:
    /// `{"truncated": true}`
    Screenshot { of: ScreenshotArea },
    /// `{"content": "…", "truncated": false}`
    Content { format: Format },
    /// `null`
    WaitFor { until: WaitCondition, timeout: Duration },
    /// A key by name (`Enter`, `a`) or with modifiers (`Control+Shift+K`), sent to the focused
    /// element, which must be of the expected kind. `{"navigated": false}`
    Press { key: String, expected: FieldKind },
    /// Options by value or by text; the field must be of the expected kind. `{"selected": ["value",
    /// …]}`
    Select { target: Target, values: Vec<String>, expected: FieldKind },
    /// `{"x": 0, "y": 0}`, the position after scrolling.
    Scroll { to: ScrollTarget },
    /// `{"navigated": true}`
    Back,
    /// Evaluates an expression; a promise is awaited. `{"value": …}`
    Evaluate { script: String },
    /// Paths as Chromium sees them. `null`
    Upload { target: Target, paths: Vec<String> },
    /// `null`, and `Answer::downloads`.
    Download { from: DownloadSource, timeout: Duration },
    /// `null`, and `Answer::pdf`.
    Pdf,
}

/// Part of the page in a screenshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScreenshotArea {
    Viewport,
    FullPage,
    Element(Target),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Html,
    /// Roles, names, values and states, with references for [`Target::Reference`] that are valid
    /// until the next outline.
    Outline,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitCondition {
    Element(Target),
    Text(String),
    Load,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrollTarget {
    Element(Target),
    By { x: i32, y: i32 },
}

/// Source of a download: an element to click, or a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownloadSource {
    Element(Target),
    Url(String),
}
