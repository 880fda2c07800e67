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
    #[error("the key of an AIO service has characters that no header can hold")]
    KeyMalformed,
    #[error("the AIO service could not be asked to {asked}: {why}")]
    Unreachable { asked: &'static str, why: String },
    #[error("the AIO service was asked to {asked} and did not answer within {} s", timeout.as_secs())]
    TooLate { asked: &'static str, timeout: Duration },
    #[error("the AIO service does not accept our key")]
    KeyRefused,
    #[error("the AIO service was asked to {asked} and sends us elsewhere")]
    Redirected { asked: &'static str },
    #[error("the AIO service did not understand that it was to {asked}: {words}")]
    NotUnderstood { asked: &'static str, words: String },
    #[error("the AIO service was asked to {asked} and answered with status {status}: {words}")]
    Failed { asked: &'static str, status: u16, words: String },
    #[error("the AIO service could not {asked}: {words}")]
    Refused { asked: &'static str, words: String },
    #[error("the AIO service was asked to {asked} and answered with more than {} MiB", MAX_ANSWER >> 20)]
    TooLarge { asked: &'static str },
    #[error("the AIO service was asked to {asked} and answered with something else: {words}")]
    Malformed { asked: &'static str, words: String },
    #[error("the AIO service did not say whether it has begun the command, which was told to end")]
    Unclear(#[source] Box<AioError>),
    #[error("the AIO service was told to end the command and did not say that it has ended")]
    Overdue,
    #[error("the AIO service cannot be given {0}")]
    NotForService(&'static str),
    #[error("could not pass on what the command prints")]
    Streams(#[source] std::io::Error),
}

impl AioError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::AddressMalformed(_) => "aio.url is like http://127.0.0.1:8080 or https://aio.example",
            Self::KeyMalformed => "aio.key is what the service was started with, as SANDBOX_API_KEY",
            Self::Unreachable { .. } | Self::TooLate { .. } => {
                "look whether it runs and can be reached from here; `curl $URL/v1/sandbox` asks the same"
            }
            Self::KeyRefused => "compare aio.key with what the service was started with, SANDBOX_API_KEY",
            Self::Redirected { .. } => "name the address that it leads to as aio.url",
            Self::NotUnderstood { .. } | Self::Malformed { .. } => {
                "look whether aio.url leads to an AIO service, and to a version with /v1/bash"
            }
            Self::Failed { .. } | Self::Refused { .. } => "the service's own log says more",
            Self::TooLarge { .. } => "write what is so large into a file instead of printing it",
            Self::Unclear(_) | Self::Overdue => "look into the service whether anything of it is left",
            Self::NotForService(_) => "use the native backend",
            Self::Streams(_) => "the limit on open files may be reached",
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
