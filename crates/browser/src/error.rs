//! What can go wrong at the window, each with what failed, on what, and what to do.
//!
//! Words of pages and of Chromium are quoted in here, cut to a bounded length.

use std::time::Duration;

use crate::action::FieldKind;

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("the browser is gone: {why}; the next action needs a new one")]
    Closed { why: String },
    #[error("{what} took longer than {} s", limit.as_secs())]
    TimedOut { what: String, limit: Duration },
    #[error("nothing matches {target}; get_content with format outline lists what is there")]
    NoElement { target: String },
    #[error("{field} is {found}, and {expected} was expected")]
    OtherField { field: String, expected: FieldKind, found: FieldKind },
}
