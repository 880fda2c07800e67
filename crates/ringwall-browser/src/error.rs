//! Errors of browser actions.
//!
//! They quote texts of pages and of Chromium, cut to a bounded length.

use std::time::Duration;

use crate::action::FieldKind;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the browser has ended: {why}; the next action needs a new one")]
    Closed { why: String },
    #[error("the browser did not answer in time: {what} took longer than {:.1} s", limit.as_secs_f32())]
    TimedOut { what: String, limit: Duration },
    #[error("the page does not respond because a script keeps it busy; navigate to another page")]
    Stuck,
    #[error("the page crashed; navigate opens a fresh one")]
    Crashed,
    #[error("the page closed itself or was closed; navigate opens a fresh one")]
    PageGone,
    #[error("the page navigated during the action; get_content shows the current page")]
    Moved,
    #[error("the browser refused {method}: {message}")]
    Refused { method: &'static str, message: String },
    #[error("the browser's answer to {method} could not be read: {why}")]
    Malformed { method: &'static str, why: String },
    #[error("the result of {what} is too large; request an element or a smaller part")]
    TooLarge { what: String },
    #[error("could not open `{url}`: {message}")]
    NotOpened { url: String, message: String },
    #[error("`{url}` did not answer within {} s", limit.as_secs())]
    NoAnswer { url: String, limit: Duration },
    #[error("there is no page to go back to")]
    NoHistory,
    #[error("nothing matches {target}; get_content with format outline lists what is there")]
    NoElement { target: String },
    #[error("`{selector}` is not a valid CSS selector: {message}")]
    Selector { selector: String, message: String },
    #[error(
        "{reference} is not of this page's last outline, or its element is gone; get_content with format outline gives new references"
    )]
    StaleReference { reference: String },
    #[error("`{reference}` is not a reference; an outline's references are e1, e2 and so on")]
    Reference { reference: String },
    #[error("{target} cannot be acted on: {why}")]
    NotReady { target: String, why: String },
    #[error("{target} is {found}, not {wanted}")]
    OtherElement { target: String, found: String, wanted: &'static str },
    #[error("{target} is {found}, but {expected} was expected; nothing was entered")]
    OtherField { target: String, expected: FieldKind, found: FieldKind },
    #[error("the page changed since the action was checked; nothing was done; send the action again for this page")]
    OtherPage,
    #[error("{target} has no option `{option}`; it has {options}")]
    NoOption { target: String, option: String, options: String },
    #[error(
        "`{key}` is not a key; use a character or a name such as Enter, Tab, Escape, ArrowDown, F5, alone or with modifiers as in Control+A"
    )]
    Key { key: String },
    #[error("the script failed: {message}")]
    Script { message: String },
    #[error("{what} did not appear within {:.1} s", limit.as_secs_f32())]
    NotSeen { what: String, limit: Duration },
    #[error("no download started within {} s; if the element leads to a page, click it instead", limit.as_secs())]
    NoDownload { limit: Duration },
    #[error("the download failed: {why}")]
    DownloadFailed { why: &'static str },
    #[error("the page's answer could not be read: {why}")]
    Page { why: String },
}
