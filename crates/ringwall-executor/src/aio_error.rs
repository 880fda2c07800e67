//! Errors of an AIO service, each with the request and a remedy.
//!
//! Text of the service is shortened and shown without control characters. No message contains its
//! address or our key.

use std::time::Duration;

/// Bytes read of an answer: more than what a command prints between two requests.
pub(crate) const MAX_ANSWER: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum AioError {
    #[error("the address of an AIO service {0}")]
    AddressMalformed(&'static str),
    #[error("the key of the AIO service contains characters that an HTTP header cannot contain")]
    KeyMalformed,
    #[error("could not reach the AIO service to {action}: {why}")]
    Unreachable { action: &'static str, why: String },
    #[error("the AIO service did not {action} within {} s", timeout.as_secs())]
    TooLate { action: &'static str, timeout: Duration },
    #[error("the AIO service does not accept our key")]
    KeyRefused,
    #[error("the AIO service answered the request to {action} with a redirect, which is not followed")]
    Redirected { action: &'static str },
    #[error("the AIO service rejected the request to {action} as invalid: {words}")]
    NotUnderstood { action: &'static str, words: String },
    #[error("the AIO service answered the request to {action} with status {status}: {words}")]
    Failed { action: &'static str, status: u16, words: String },
    #[error("the AIO service could not {action}: {words}")]
    Refused { action: &'static str, words: String },
    #[error("the AIO service answered the request to {action} with more than {} MiB", MAX_ANSWER >> 20)]
    TooLarge { action: &'static str },
    #[error("the AIO service gave an unexpected answer to the request to {action}: {words}")]
    Malformed { action: &'static str, words: String },
    #[error("the AIO service did not report whether it started the command; the command was killed")]
    Unclear(#[source] Box<AioError>),
    #[error("the AIO service did not report the end of the killed command")]
    Overdue,
    #[error("the AIO service cannot be given {0}")]
    NotForService(&'static str),
    #[error("could not write the command's output to its pipes")]
    Streams(#[source] std::io::Error),
}

impl AioError {
    /// Advice for the operator.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::AddressMalformed(_) => "aio.url is like http://127.0.0.1:8080 or https://aio.example",
            Self::KeyMalformed => "set aio.key to the SANDBOX_API_KEY of the service",
            Self::Unreachable { .. } | Self::TooLate { .. } => {
                "check that it runs and is reachable from this host: `curl $URL/v1/sandbox`"
            }
            Self::KeyRefused => "set aio.key to the SANDBOX_API_KEY of the service",
            Self::Redirected { .. } => "set aio.url to the target of the redirect",
            Self::NotUnderstood { .. } | Self::Malformed { .. } => {
                "check that aio.url is the address of an AIO service, of a version with /v1/bash"
            }
            Self::Failed { .. } | Self::Refused { .. } => "see the log of the service",
            Self::TooLarge { .. } => "write large output to a file",
            Self::Unclear(_) | Self::Overdue => "check on the service whether the command still runs",
            Self::NotForService(_) => "use the native backend",
            Self::Streams(_) => "check the server's limit of open files",
        }
    }

    /// True if the same request may succeed later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::TooLate { .. } | Self::Failed { status: 502..=504, .. } => true,
            Self::AddressMalformed(_)
            | Self::KeyMalformed
            | Self::KeyRefused
            | Self::Redirected { .. }
            | Self::NotUnderstood { .. }
            | Self::Failed { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::Unclear(_)
            | Self::Overdue
            | Self::NotForService(_)
            | Self::Streams(_) => false,
        }
    }
}
