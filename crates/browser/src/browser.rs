//! A Chromium at the other end of two streams.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::action::{Action, FieldKind, Target};
use crate::answer::Answer;
use crate::error::Error;

/// Where files go, as Chromium sees it.
#[derive(Debug, Clone)]
pub struct Files {
    /// A directory that is there already.
    pub downloads: String,
}

/// Actions wait for one another: there is one page that is seen.
#[derive(Debug)]
pub struct Browser {}

impl Browser {
    /// Takes what Chromium writes and what it reads, and waits until it has a page.
    pub async fn connect(
        _from: impl AsyncRead + Send + Unpin + 'static,
        _to: impl AsyncWrite + Send + Unpin + 'static,
        _files: Files,
    ) -> Result<Self, Error> {
        Err(Error::Closed { why: "it was never there".to_owned() })
    }

    pub async fn perform(&self, _action: Action) -> Result<Answer, Error> {
        Err(Error::Closed { why: "it was never there".to_owned() })
    }

    /// What would be typed into: asked before a `Fill` or a `Press`, which then fail if it has become another.
    pub async fn field(&self, _target: &Target) -> Result<FieldKind, Error> {
        Err(Error::Closed { why: "it was never there".to_owned() })
    }

    pub fn is_alive(&self) -> bool {
        false
    }

    /// Waits until Chromium is gone, however it went.
    pub async fn closed(&self) {}

    /// Asks Chromium to end, waits a moment, and lets go of its streams.
    pub async fn close(self) {}
}
