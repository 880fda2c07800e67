//! Streams of opened and resolved questions, filtered by what the follower may see.

use std::collections::VecDeque;
use std::sync::Arc;

use ringwall_ids::{ExecId, SessionId};
use ringwall_record::Holder;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::view::ApprovalView;
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

/// The name of the server's own follower.
const OWN: &str = "ringwall";

/// Selects the questions that a follower gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    Session(String),
    Exec(ExecId),
    /// All that the follower may see: for a user, those of their agents.
    Own,
    /// All users' questions; requires an operator.
    All,
}

impl Watched {
    /// Fails if `id` is not a valid session id.
    pub fn session(id: &str) -> Result<Self, Error> {
        id.parse::<SessionId>()?;
        Ok(Self::Session(id.to_owned()))
    }

    pub(super) fn concerns(&self, by: &Principal, view: &ApprovalView) -> bool {
        let is_watched = match self {
            Watched::Session(session) => view.session_id == *session,
            Watched::Exec(exec_id) => view.exec_id == *exec_id,
            Watched::Own | Watched::All => true,
        };
        is_watched && by.sees(&view.user, &view.agent)
    }
}

/// `None` when the server stops.
pub(super) type News = Option<Announcement>;

#[derive(Debug, Clone)]
pub enum Announcement {
    Opened(Arc<ApprovalView>),
    Resolved(Arc<ApprovalView>),
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The follower was too slow and missed announcements. A new stream starts with the open
    /// questions.
    Behind,
    /// The server stops.
    Stopping,
}

/// A stream of the open questions, oldest first, followed by announcements.
#[derive(Debug)]
pub struct Following {
    by: Principal,
    watched: Watched,
    open: VecDeque<Arc<ApprovalView>>,
    news: broadcast::Receiver<News>,
}

impl Following {
    pub(super) fn new(
        by: Principal,
        watched: Watched,
        open: Vec<Arc<ApprovalView>>,
        news: broadcast::Receiver<News>,
    ) -> Self {
        Self { by, watched, open: open.into(), news }
    }

    /// Waits for the next announcement. Cancel-safe.
    pub async fn next(&mut self) -> Result<Announcement, Gone> {
        if let Some(view) = self.open.pop_front() {
            return Ok(Announcement::Opened(view));
        }
        loop {
            let announcement = match self.news.recv().await {
                Ok(Some(announcement)) => announcement,
                Ok(None) | Err(RecvError::Closed) => return Err(Gone::Stopping),
                Err(RecvError::Lagged(_)) => return Err(Gone::Behind),
            };
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            if self.watched.concerns(&self.by, view) {
                return Ok(announcement);
            }
        }
    }
}

impl Service {
    /// All users' questions, for the server's own components such as the webhook.
    pub fn announcements(&self) -> Following {
        let everything = Principal::new(OWN, Holder::Owner);
        self.inner.open_approvals.follow(&everything, Watched::All)
    }

    /// Fails if the server is stopping.
    pub fn follow_approvals(&self, by: &Principal, watched: Watched) -> Result<Following, Error> {
        if watched == Watched::All {
            by.require_operator("follow everybody's approvals")?;
        }
        self.inner.registry.check_open()?;
        Ok(self.inner.open_approvals.follow(by, watched))
    }
}
