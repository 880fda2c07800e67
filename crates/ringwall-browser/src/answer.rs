//! What a browser answers.
//!
//! Every text in it is a page's: bounded in length, and otherwise whatever a stranger chose to write.

use serde_json::Value;

#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Where the page is after the action.
    pub url: String,
    pub title: String,
    /// By action, see `Action`.
    pub data: Value,
    /// A PNG.
    pub picture: Option<Vec<u8>>,
    /// A PDF.
    pub document: Option<Vec<u8>>,
    /// Downloads that ended since the last action, whoever began them.
    pub downloads: Vec<Downloaded>,
    /// Dialogs that the page opened since the last action; they were answered at once.
    pub dialogs: Vec<Dialog>,
    /// Pages that this one opened since the last action; the newest is the one that is seen.
    pub popups: u32,
}

/// How many bytes a file has at most that is downloaded. One that turns out to be larger is broken off.
pub const MAX_DOWNLOAD_BYTES: u64 = 64 << 20;

/// A file in `Files::downloads`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// What the server would call it, as a file can be called.
    pub name: String,
    /// Where it lies as Chromium sees it, under a name that Chromium made up; of one that is not whole, where a part of it may.
    pub path: String,
    pub end: DownloadEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadEnd {
    /// With so many bytes, as Chromium says.
    Whole {
        bytes: u64,
    },
    Failed {
        why: &'static str,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    pub kind: DialogKind,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DialogKind {
    Alert,
    Confirm,
    Prompt,
    /// Leaving the page; the only kind that is accepted.
    Beforeunload,
}
