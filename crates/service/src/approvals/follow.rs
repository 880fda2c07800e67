//! Following what is asked and answered, as it happens. What a follower may not see passes by unseen.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::view::ApprovalView;
use crate::error::Error;
use crate::principal::Principal;
use crate::service::Service;

/// What somebody looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    Session(String),
    /// For operators.
    All,
}

impl Watched {
    pub(super) fn concerns(&self, by: &Principal, view: &ApprovalView) -> bool {
        let is_watched = match self {
            Watched::Session(session) => view.session_id == *session,
            Watched::All => true,
        };
        is_watched && by.sees(&view.user, &view.agent)
    }
}

#[derive(Debug, Clone)]
pub enum Announcement {
    Opened(Arc<ApprovalView>),
    Resolved(Arc<ApprovalView>),
}

/// What is open first, oldest first, and then what happens.
#[derive(Debug)]
pub struct Following {
    by: Principal,
    watched: Watched,
    open: VecDeque<Arc<ApprovalView>>,
    news: broadcast::Receiver<Announcement>,
}

impl Following {
    pub(super) fn new(
        by: Principal,
        watched: Watched,
        open: Vec<Arc<ApprovalView>>,
        news: broadcast::Receiver<Announcement>,
    ) -> Self {
        Self { by, watched, open: open.into(), news }
    }

    /// Nothing when the follower is so far behind that it missed some: whoever follows again sees what is open then.
    pub async fn next(&mut self) -> Option<Announcement> {
        if let Some(view) = self.open.pop_front() {
            return Some(Announcement::Opened(view));
        }
        loop {
            let announcement = self.news.recv().await.ok()?;
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            if self.watched.concerns(&self.by, view) {
                return Some(announcement);
            }
        }
    }
}

impl Service {
    /// Begins to follow.
    pub fn follow_approvals(&self, by: &Principal, watched: Watched) -> Result<Following, Error> {
        if watched == Watched::All {
            by.require_operator("follow everybody's approvals")?;
        }
        Ok(self.inner.desk.follow(by, watched))
    }
}
