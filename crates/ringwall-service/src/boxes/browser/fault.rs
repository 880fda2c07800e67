//! Why an action failed. A fault is a result: it is returned to the client and recorded.

use ringwall_record::BrowserStatus;

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) status: BrowserStatus,
    pub(crate) message: String,
}

impl Fault {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { status: BrowserStatus::Failed, message: message.into() }
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self { status: BrowserStatus::Refused, message: message.into() }
    }
}

impl From<ringwall_browser::Error> for Fault {
    fn from(error: ringwall_browser::Error) -> Self {
        Self::failed(error.to_string())
    }
}

impl From<ringwall_executor::Error> for Fault {
    fn from(error: ringwall_executor::Error) -> Self {
        Self::failed(format!("the browser's box could not be made or used: {error}"))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Forbidden { .. } | Error::Denied { .. } => Self::refused(error.to_string()),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<ringwall_policy::Error> for Fault {
    fn from(error: ringwall_policy::Error) -> Self {
        Self::refused(error.to_string())
    }
}
