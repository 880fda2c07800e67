//! Result of an action.
//!
//! All texts come from pages: bounded in length, but otherwise untrusted.

use serde_json::Value;

#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// URL of the page after the action.
    pub url: String,
    pub title: String,
    /// Depends on the action, see [`Action`](crate::Action).
    pub data: Value,
    /// A PNG.
    pub screenshot: Option<Vec<u8>>,
    /// A PDF.
    pub pdf: Option<Vec<u8>>,
    /// Downloads that ended since the last action, including those that the page started by itself.
    pub downloads: Vec<Downloaded>,
    /// The first dialogs that the page opened since the last action. All are answered at once.
    pub dialogs: Vec<Dialog>,
    /// Pages that the page opened since the last action, including those that were closed at once
    /// because of the limit on open pages.
    pub popups: u32,
}

/// Maximum size of a download. Larger ones are canceled.
pub const MAX_DOWNLOAD_BYTES: u64 = 64 << 20;

/// A download in `Files::downloads`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Downloaded {
    /// The suggested name, made safe as a file name.
    pub name: String,
    /// Path as Chromium sees it, with a name that Chromium generated. After a failure a part of the
    /// file may be there.
    pub path: String,
    pub end: DownloadEnd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownloadEnd {
    /// Size as Chromium reports it.
    Complete {
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
