//! What a browser can be asked to do, and on what.
//!
//! These are words only. The comment at each action says what `Answer::data` holds afterwards.

use std::fmt;
use std::time::Duration;

/// An element of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The first element that this selector finds.
    Css(String),
    /// One that the last outline named, such as `e12`.
    Reference(String),
    /// The innermost visible element with this text; those that can be clicked come first.
    Text(String),
    /// Whatever has the focus: that is where `Press` goes.
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

/// What is typed into a field, by what the field says of itself.
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

/// What fields are called that are for a password or a payment, where they do not say so otherwise. One word counts as a whole
/// word where it has up to four letters, and otherwise as a part of one; several as words in a row, also written together.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct FieldNames {
    pub passwords: Vec<String>,
    pub payments: Vec<String>,
}

#[derive(Debug, Clone)]
pub enum Action {
    /// `{"status": 200 | null, "loaded": true}`; `loaded` is false when the time was over before the page was whole.
    Navigate { url: String, timeout: Duration },
    /// `{"navigated": false}`
    Click { target: Target },
    /// Fails when the field is not of the expected kind at the moment of typing. `null`
    Fill { target: Target, text: String, expected: FieldKind },
    /// `null`, and `Answer::picture`, a PNG. A page too large for a picture is cut: `{"truncated": true}`
    Screenshot { of: Extent },
    /// `{"content": "…", "truncated": false}`
    Content { format: Format },
    /// `null`
    WaitFor { until: Until, timeout: Duration },
    /// A key by its name (`Enter`, `a`) or with others (`Control+Shift+K`), sent to what has the focus, which has to be of
    /// the expected kind. `{"navigated": false}`
    Press { key: String, expected: FieldKind },
    /// Options by their value or by their text; the field has to be of the expected kind. `{"selected": ["value", …]}`
    Select { target: Target, values: Vec<String>, expected: FieldKind },
    /// `{"x": 0, "y": 0}`, where the page is now.
    Scroll { to: Travel },
    /// `{"navigated": true}`
    Back,
    /// An expression, or a function body's value if it is a promise; `{"value": …}`
    Evaluate { script: String },
    /// Paths as Chromium sees them. `null`
    Upload { target: Target, paths: Vec<String> },
    /// `null`, and `Answer::downloads`.
    Download { from: Origin, timeout: Duration },
    /// `null`, and `Answer::document`.
    Pdf,
}

/// How much of a page is in its picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    Viewport,
    FullPage,
    Element(Target),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Text,
    Html,
    /// Roles, names, values and states, with references that a `Target` can name until the next outline.
    Outline,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Until {
    Element(Target),
    Text(String),
    Load,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Travel {
    To(Target),
    By { x: i32, y: i32 },
}

/// What a download comes from: an element to click, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Element(Target),
    Url(String),
}
