//! Following what is asked and answered, as it happens. What a follower may not see passes by unseen.

use std::collections::VecDeque;
use std::sync::Arc;

use ringwall_record::{ExecId, Holder};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::view::ApprovalView;
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

/// Who follows for the server itself.
const OWN: &str = "ringwall";

/// What somebody looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    Session(String),
    Exec(ExecId),
    /// Whatever the follower may see: a user's own.
    Own,
    /// For operators.
    All,
}

impl Watched {
    /// A session, whose id has to be one.
    pub fn session(id: &str) -> Result<Self, Error> {
        id.parse::<ringwall_workspace::SessionId>()?;
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

/// Nothing when the server stops.
pub(super) type News = Option<Announcement>;

#[derive(Debug, Clone)]
pub enum Announcement {
    Opened(Arc<ApprovalView>),
    Resolved(Arc<ApprovalView>),
}

/// Why there is nothing more to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// So far behind that some was missed. Whoever follows again sees what is open then.
    Behind,
    /// The server stops.
    Stopping,
}

/// What is open first, oldest first, and then what happens.
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

    /// May be given up and asked for again without missing anything.
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
    /// Everybody's, for a part of the server itself and no caller.
    pub fn announcements(&self) -> Following {
        let everything = Principal::new(OWN, Holder::Owner);
        self.inner.desk.follow(&everything, Watched::All)
    }

    /// Begins to follow.
    pub fn follow_approvals(&self, by: &Principal, watched: Watched) -> Result<Following, Error> {
        if watched == Watched::All {
            by.require_operator("follow everybody's approvals")?;
        }
        self.inner.registry.check_open()?;
        Ok(self.inner.desk.follow(by, watched))
    }
}
