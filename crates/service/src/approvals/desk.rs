//! The questions that are open in this process: who waits for each, until when, and who is told of it.
//!
//! Bounded in number, per user and in bytes, so that an agent which asks without end fills neither memory nor the
//! person's screen. Opening and closing are announced under the same lock under which somebody begins to follow, so
//! that a follower misses none and sees none twice.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use record::ApprovalId;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::Instant;

use super::follow::{Announcement, Following, News, Watched};
use super::question::{Decision, StillStands};
use super::view::ApprovalView;
use crate::error::Error;
use crate::principal::Principal;

const MOST_OPEN: usize = 2048;
const MOST_OPEN_OF_ONE: usize = 512;
const MOST_BYTES: usize = 64 << 20;
/// Announcements that a follower may be behind. Whoever is further behind begins again.
const BEHIND: usize = 1024;

#[derive(Debug)]
pub(crate) struct Desk {
    held: Mutex<Held>,
    news: broadcast::Sender<News>,
    /// Rings when the next deadline may be another.
    pub(super) deadlines_changed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    open: HashMap<ApprovalId, Entry>,
    deadlines: BTreeSet<(Instant, ApprovalId)>,
    bytes: usize,
    is_closed: bool,
}

struct Entry {
    open: Arc<Open>,
    deadline: Instant,
    told: Option<oneshot::Sender<Decision>>,
    /// Whether it is on record, and so may be seen.
    is_announced: bool,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Entry").field("id", &self.open.view.id).finish_non_exhaustive()
    }
}

/// One open question.
pub(super) struct Open {
    pub(super) view: Arc<ApprovalView>,
    pub(super) still_stands: StillStands,
    /// Held by whoever settles it, from the first look to the commit.
    pub(super) settling: tokio::sync::Mutex<()>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { held: Mutex::default(), news: broadcast::Sender::new(BEHIND), deadlines_changed: Notify::new() }
    }
}

impl Desk {
    /// Takes a question in. It is not announced yet.
    pub(super) fn take(&self, open: Arc<Open>, deadline: Instant) -> Result<oneshot::Receiver<Decision>, Error> {
        let (told, decision) = oneshot::channel();
        let mut held = self.lock();
        if held.is_closed {
            return Err(Error::Stopping);
        }
        let view = &open.view;
        let of_one = held.open.values().filter(|other| other.open.view.user == view.user).count();
        let bytes = held.bytes + view.size();
        if held.open.len() >= MOST_OPEN || of_one >= MOST_OPEN_OF_ONE || bytes > MOST_BYTES {
            return Err(Error::TooManyApprovals);
        }
        held.bytes = bytes;
        held.deadlines.insert((deadline, view.id.clone()));
        let entry = Entry { deadline, told: Some(told), is_announced: false, open: open.clone() };
        held.open.insert(open.view.id.clone(), entry);
        drop(held);
        self.deadlines_changed.notify_one();
        Ok(decision)
    }

    /// It is on record: everybody may see it.
    pub(super) fn announce(&self, id: &ApprovalId) {
        let mut held = self.lock();
        if let Some(entry) = held.open.get_mut(id) {
            entry.is_announced = true;
            // Nobody may be following.
            let _ = self.news.send(Some(Announcement::Opened(entry.open.view.clone())));
        }
    }

    pub(super) fn find(&self, id: &ApprovalId) -> Option<Arc<Open>> {
        self.lock().open.get(id).map(|entry| entry.open.clone())
    }

    /// Lets go of a question, with what became of it: whoever waits is told, and whoever follows.
    pub(super) fn close_one(&self, id: &ApprovalId, resolved: Option<Arc<ApprovalView>>, decision: Decision) {
        let mut held = self.lock();
        let Some(mut entry) = held.open.remove(id) else { return };
        held.deadlines.remove(&(entry.deadline, id.clone()));
        held.bytes = held.bytes.saturating_sub(entry.open.view.size());
        if let Some(view) = resolved.filter(|_| entry.is_announced) {
            let _ = self.news.send(Some(Announcement::Resolved(view)));
        }
        if let Some(told) = entry.told.take() {
            // Whoever asked may have stopped waiting.
            let _ = told.send(decision);
        }
    }

    /// Those whose time is up, and when the next one's is.
    pub(super) fn due(&self, at: Instant) -> (Vec<ApprovalId>, Option<Instant>) {
        let mut held = self.lock();
        let mut due = Vec::new();
        while let Some((deadline, _)) = held.deadlines.first()
            && *deadline <= at
        {
            due.extend(held.deadlines.pop_first().map(|(_, id)| id));
        }
        (due, held.deadlines.first().map(|(deadline, _)| *deadline))
    }

    /// Nobody asks any more, and nothing is open: those who wait are told so.
    pub(super) fn close(&self) {
        let mut held = self.lock();
        let left = std::mem::replace(&mut *held, Held { is_closed: true, ..Held::default() });
        for told in left.open.into_values().filter_map(|entry| entry.told) {
            let _ = told.send(Decision::Cancelled);
        }
        let _ = self.news.send(None);
    }

    /// Everything that is open of what the asker may see, and what comes after it.
    pub(super) fn follow(&self, by: &Principal, watched: Watched) -> Following {
        let held = self.lock();
        let news = self.news.subscribe();
        let all = held.open.values().filter(|entry| entry.is_announced).map(|entry| &entry.open.view);
        let mut open: Vec<_> = all.filter(|view| watched.concerns(by, view)).cloned().collect();
        open.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Following::new(by.clone(), watched, open, news)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
