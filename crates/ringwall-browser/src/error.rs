//! What can go wrong at the window, each with what failed, on what, and what to do.
//!
//! Words of pages and of Chromium are quoted in here, cut to a bounded length.

use std::time::Duration;

use crate::action::FieldKind;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the browser is gone: {why}; the next action needs a new one")]
    Closed { why: String },
    #[error("the browser did not answer in time: {what} took longer than {:.1} s", limit.as_secs_f32())]
    TimedOut { what: String, limit: Duration },
    #[error("the page does not answer: a script of it keeps it busy; navigate to leave it")]
    Stuck,
    #[error("the page crashed; navigate opens a fresh one")]
    Crashed,
    #[error("the page closed itself or was closed; navigate opens a fresh one")]
    PageGone,
    #[error("the page went elsewhere meanwhile; get_content shows where it is now")]
    Moved,
    #[error("the browser refused {method}: {words}")]
    Refused { method: &'static str, words: String },
    #[error("the browser's answer to {method} could not be read: {why}")]
    Malformed { method: &'static str, why: String },
    #[error("{what} gave more than can be taken; ask for less, an element or a part of it")]
    TooLarge { what: String },
    #[error("could not open `{url}`: {words}")]
    NotOpened { url: String, words: String },
    #[error("`{url}` did not answer within {} s", limit.as_secs())]
    NoAnswer { url: String, limit: Duration },
    #[error("there is no page to go back to")]
    NoHistory,
    #[error("nothing matches {target}; get_content with format outline lists what is there")]
    NoElement { target: String },
    #[error("`{selector}` is not a selector of CSS: {words}")]
    Selector { selector: String, words: String },
    #[error(
        "{reference} is not of this page's last outline, or its element is gone; get_content with format outline gives new references"
    )]
    StaleReference { reference: String },
    #[error("`{reference}` is no reference; an outline's are e1, e2 and so on")]
    Reference { reference: String },
    #[error("{target} cannot be acted on: {why}")]
    NotReady { target: String, why: String },
    #[error("{target} is {found}, and not {wanted}")]
    OtherElement { target: String, found: String, wanted: &'static str },
    #[error("{target} is {found}, and {expected} was expected; nothing was typed")]
    OtherField { target: String, expected: FieldKind, found: FieldKind },
    #[error("the page is another one than the one that was asked about; nothing was done, send it again for this page")]
    OtherPage,
    #[error("{target} has no option `{option}`; it has {options}")]
    NoOption { target: String, option: String, options: String },
    #[error(
        "`{key}` is no key; a character, or a name such as Enter, Tab, Escape, ArrowDown, F5, alone or as in Control+A"
    )]
    Key { key: String },
    #[error("the script failed: {words}")]
    Script { words: String },
    #[error("{what} did not come within {:.1} s", limit.as_secs_f32())]
    NotSeen { what: String, limit: Duration },
    #[error("no download began within {} s; click the element instead if it leads to a page", limit.as_secs())]
    NoDownload { limit: Duration },
    #[error("the download failed: {why}")]
    DownloadFailed { why: &'static str },
    #[error("the page's answer could not be read: {why}")]
    Page { why: String },
}
