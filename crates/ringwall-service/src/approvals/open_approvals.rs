//! The open questions of this process, with their waiting execs, deadlines and followers.
//!
//! Limited in number, per user and in bytes, so that an agent that asks in a loop exhausts neither
//! memory nor its approver. A follower subscribes under the same lock that announces questions, so
//! it gets each announcement exactly once. A follower gets only the questions that it may see.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ringwall_ids::{ApprovalId, ExecId, UserId};
use ringwall_record::Holder;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::time::Instant;

use super::question::{Decision, StillStands};
use super::view::ApprovalView;
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;

const MAX_OPEN: usize = 2048;
const MAX_OPEN_PER_USER: usize = 512;
const MAX_BYTES: usize = 64 << 20;
/// Number of announcements that a follower may lag behind. A slower one gets [`StreamEnd::Lagged`]
/// and must reconnect.
const MAX_LAG: usize = 1024;

pub(crate) struct OpenApprovals {
    held: Mutex<Held>,
    news: broadcast::Sender<News>,
    /// Notified when a question is added, so that the expiry task recomputes the next deadline.
    pub(super) deadlines_changed: Notify,
}

#[derive(Default)]
struct Held {
    open: HashMap<ApprovalId, Entry>,
    deadlines: BTreeSet<(Instant, ApprovalId)>,
    is_closed: bool,
}

struct Entry {
    open: Arc<Open>,
    decision: oneshot::Sender<Decision>,
    /// Set after the question is committed; only then it is shown.
    is_announced: bool,
}

/// One open question.
pub(super) struct Open {
    pub(super) view: Arc<ApprovalView>,
    pub(super) still_stands: StillStands,
    /// Monotonic, so that changing the wall clock expires nothing.
    pub(super) deadline: Instant,
    /// Held while an answer is checked and committed.
    pub(super) settling: tokio::sync::Mutex<()>,
}

/// Selects the questions that a follower gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalTopic {
    Session(String),
    Exec(ExecId),
    /// All that the follower may see: for a user, those of their agents.
    Own,
    /// All users' questions; requires an operator.
    All,
}

impl ApprovalTopic {
    /// Fails if `id` is not a valid session id.
    pub fn session(id: &str) -> Result<Self, Error> {
        id.parse::<ringwall_ids::SessionId>()?;
        Ok(Self::Session(id.to_owned()))
    }

    fn concerns(&self, by: &Principal, view: &ApprovalView) -> bool {
        let is_watched = match self {
            ApprovalTopic::Session(session) => view.session_id == *session,
            ApprovalTopic::Exec(exec_id) => view.exec_id == *exec_id,
            ApprovalTopic::Own | ApprovalTopic::All => true,
        };
        is_watched && by.sees(&view.user, &view.agent)
    }
}

/// `None` when the server stops.
type News = Option<Announcement>;

#[derive(Debug, Clone)]
pub enum Announcement {
    Opened(Arc<ApprovalView>),
    Resolved(Arc<ApprovalView>),
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The follower was too slow and missed announcements. A new stream starts with the open
    /// questions.
    Lagged,
    /// The server stops.
    Stopping,
}

/// A stream of the open questions, oldest first, followed by announcements.
#[derive(Debug)]
pub struct ApprovalStream {
    by: Principal,
    topic: ApprovalTopic,
    open: VecDeque<Arc<ApprovalView>>,
    news: broadcast::Receiver<News>,
}

impl ApprovalStream {
    /// Waits for the next announcement. Cancel-safe.
    pub async fn next(&mut self) -> Result<Announcement, StreamEnd> {
        if let Some(view) = self.open.pop_front() {
            return Ok(Announcement::Opened(view));
        }
        loop {
            let announcement = match self.news.recv().await {
                Ok(Some(announcement)) => announcement,
                Ok(None) | Err(RecvError::Closed) => return Err(StreamEnd::Stopping),
                Err(RecvError::Lagged(_)) => return Err(StreamEnd::Lagged),
            };
            let (Announcement::Opened(view) | Announcement::Resolved(view)) = &announcement;
            if self.topic.concerns(&self.by, view) {
                return Ok(announcement);
            }
        }
    }
}

impl Default for OpenApprovals {
    fn default() -> Self {
        Self { held: Mutex::default(), news: broadcast::Sender::new(MAX_LAG), deadlines_changed: Notify::new() }
    }
}

impl OpenApprovals {
    /// Adds a question without announcing it. Fails if a limit is reached.
    pub(super) fn take(&self, open: Arc<Open>) -> Result<oneshot::Receiver<Decision>, Error> {
        let (sender, decision) = oneshot::channel();
        let mut held = self.lock();
        if held.is_closed {
            return Err(Error::Stopping);
        }
        let view = &open.view;
        let of_user = held.open.values().filter(|other| other.open.view.user == view.user).count();
        let bytes = held.open.values().map(|other| other.open.view.size()).sum::<usize>() + view.size();
        if held.open.len() >= MAX_OPEN || of_user >= MAX_OPEN_PER_USER || bytes > MAX_BYTES {
            return Err(Error::TooManyApprovals);
        }
        let id = view.id.clone();
        held.deadlines.insert((open.deadline, id.clone()));
        held.open.insert(id, Entry { decision: sender, is_announced: false, open });
        drop(held);
        self.deadlines_changed.notify_one();
        Ok(decision)
    }

    /// Announces a question that has been committed.
    pub(super) fn announce(&self, id: &ApprovalId) {
        let mut held = self.lock();
        if let Some(entry) = held.open.get_mut(id) {
            entry.is_announced = true;
            // Fails if there are no followers.
            let _ = self.news.send(Some(Announcement::Opened(entry.open.view.clone())));
        }
    }

    pub(super) fn find(&self, id: &ApprovalId) -> Option<Arc<Open>> {
        self.lock().open.get(id).map(|entry| entry.open.clone())
    }

    /// Removes a question and sends the result to the waiting exec and to the followers.
    pub(super) fn close_one(&self, id: &ApprovalId, resolved: Option<Arc<ApprovalView>>, decision: Decision) {
        let mut held = self.lock();
        let Some(entry) = held.open.remove(id) else { return };
        held.deadlines.remove(&(entry.open.deadline, id.clone()));
        if let Some(view) = resolved.filter(|_| entry.is_announced) {
            let _ = self.news.send(Some(Announcement::Resolved(view)));
        }
        // Fails if the exec no longer waits.
        let _ = entry.decision.send(decision);
    }

    /// Removes the deadlines up to `at`. Returns their questions and the next deadline.
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

    /// All open questions, announced or not.
    pub(super) fn all(&self) -> Vec<Arc<Open>> {
        self.lock().open.values().map(|entry| entry.open.clone()).collect()
    }

    /// The number of announced open questions per user.
    pub(crate) fn counts_by_user(&self) -> HashMap<UserId, u32> {
        let mut counts = HashMap::new();
        for entry in self.lock().open.values().filter(|entry| entry.is_announced) {
            *counts.entry(entry.open.view.user.clone()).or_default() += 1;
        }
        counts
    }

    /// Closes all questions and rejects new ones. Waiting execs get `Cancelled`; followers get the
    /// resolved questions, then the end.
    pub(super) fn close(&self, resolved: impl Fn(&ApprovalView) -> ApprovalView) {
        let mut held = self.lock();
        let left = std::mem::replace(&mut *held, Held { is_closed: true, ..Held::default() });
        for entry in left.open.into_values() {
            if entry.is_announced {
                let _ = self.news.send(Some(Announcement::Resolved(Arc::new(resolved(&entry.open.view)))));
            }
            let _ = entry.decision.send(Decision::Cancelled);
        }
        let _ = self.news.send(None);
    }

    /// Subscribes a follower: first the open questions that `by` may see, then announcements.
    pub(super) fn follow(&self, by: &Principal, topic: ApprovalTopic) -> ApprovalStream {
        let held = self.lock();
        let news = self.news.subscribe();
        let all = held.open.values().filter(|entry| entry.is_announced).map(|entry| &entry.open.view);
        let mut open: Vec<_> = all.filter(|view| topic.concerns(by, view)).cloned().collect();
        open.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        ApprovalStream { by: by.clone(), topic, open: open.into(), news }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

impl Service {
    /// All users' questions, for the server's own components such as the webhook.
    pub fn announcements(&self) -> ApprovalStream {
        self.inner.open_approvals.follow(&Principal::new("ringwall", Holder::Owner), ApprovalTopic::All)
    }

    /// Fails if the server is stopping.
    pub fn follow_approvals(&self, by: &Principal, topic: ApprovalTopic) -> Result<ApprovalStream, Error> {
        if topic == ApprovalTopic::All {
            by.require_operator("follow the approvals of all users")?;
        }
        self.inner.registry.check_open()?;
        Ok(self.inner.open_approvals.follow(by, topic))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringwall_record::{Approval, ApprovalKind, ApprovalStatus, Digest, Holder, NewApproval, RiskLevel, Timestamp};

    use super::super::view::shared;
    use super::*;

    fn open(number: u32, user: &str, command: &str) -> Arc<Open> {
        due(number, user, command, Instant::now() + Duration::from_secs(60))
    }

    fn due(number: u32, user: &str, command: &str, deadline: Instant) -> Arc<Open> {
        let asked = NewApproval {
            id: format!("a_{number:016x}").parse().unwrap(),
            kind: ApprovalKind::Path,
            exec_id: "e_0123456789abcdef".parse().unwrap(),
            user_id: user.parse().unwrap(),
            agent_id: "a".parse().unwrap(),
            session_id: "s".to_owned(),
            command: command.to_owned(),
            code: None,
            requested_paths: Vec::new(),
            blocked_paths: Vec::new(),
            risk_level: RiskLevel::Low,
            patterns: Vec::new(),
            files: Default::default(),
            digest: Digest::ZERO,
            asked_by: String::new(),
            created_at: Timestamp::from_milliseconds(number.into()),
            expires_at: Timestamp::from_milliseconds(0),
        };
        let status = ApprovalStatus::Pending;
        let view = shared(Approval { asked, status, answered_at: None, answered_by: None, reason: None });
        let still_stands: StillStands = Arc::new(|| Box::pin(std::future::ready(true)));
        Arc::new(Open { view, still_stands, deadline, settling: tokio::sync::Mutex::default() })
    }

    fn owner() -> Principal {
        Principal::new("t", Holder::Owner)
    }

    /// The numbers of the next `count` announcements, negative for resolved questions.
    async fn numbers(following: &mut ApprovalStream, count: usize) -> Vec<i64> {
        let mut numbers = Vec::new();
        for _ in 0..count {
            numbers.push(match following.next().await.unwrap() {
                Announcement::Opened(view) => view.created_at.milliseconds(),
                Announcement::Resolved(view) => -view.created_at.milliseconds(),
            });
        }
        numbers
    }

    #[tokio::test]
    async fn follower_gets_each_announcement_exactly_once() {
        let open_approvals = OpenApprovals::default();
        let [one, two, three] = [1, 2, 3].map(|number| open(number, "u", ""));
        let decision = open_approvals.take(one.clone()).unwrap();
        open_approvals.take(two.clone()).unwrap();
        open_approvals.announce(&one.view.id);
        // The second question is not committed yet, so it is not shown.
        let mut following = open_approvals.follow(&owner(), ApprovalTopic::All);
        open_approvals.announce(&two.view.id);
        open_approvals.close_one(&one.view.id, Some(one.view.clone()), Decision::Expired);
        assert_eq!(numbers(&mut following, 3).await, [1, 2, -1]);
        assert_eq!(decision.await, Ok(Decision::Expired));
        // A question that was never announced is not announced as resolved.
        open_approvals.take(three.clone()).unwrap();
        open_approvals.close_one(&three.view.id, Some(three.view.clone()), Decision::Cancelled);
        assert_eq!(numbers(&mut open_approvals.follow(&owner(), ApprovalTopic::All), 1).await, [2]);
        open_approvals.close(ApprovalView::clone);
        assert_eq!(numbers(&mut following, 1).await, [-2]);
        assert_eq!(following.next().await.unwrap_err(), StreamEnd::Stopping);
        assert!(matches!(open_approvals.take(three), Err(Error::Stopping)));
    }

    #[tokio::test]
    async fn slow_follower_is_disconnected() {
        let open_approvals = OpenApprovals::default();
        let one = open(1, "u", "");
        open_approvals.take(one.clone()).unwrap();
        let mut following = open_approvals.follow(&owner(), ApprovalTopic::All);
        (0..=MAX_LAG).for_each(|_| open_approvals.announce(&one.view.id));
        assert_eq!(following.next().await.unwrap_err(), StreamEnd::Lagged);
    }

    #[tokio::test(start_paused = true)]
    async fn deadlines_are_due_in_order() {
        let (open_approvals, now) = (OpenApprovals::default(), Instant::now());
        for (number, seconds) in [(1, 30), (2, 10), (3, 20)] {
            open_approvals.take(due(number, "u", "", now + Duration::from_secs(seconds))).unwrap();
        }
        let ids = |due: Vec<ApprovalId>| due.iter().map(|id| id.as_str().ends_with('2')).collect::<Vec<_>>();
        assert_eq!(open_approvals.due(now), (vec![], Some(now + Duration::from_secs(10))));
        let (due, next) = open_approvals.due(now + Duration::from_secs(20));
        assert_eq!((ids(due), next), (vec![true, false], Some(now + Duration::from_secs(30))));
        assert_eq!(open_approvals.due(now + Duration::from_secs(30)).1, None);
    }

    #[tokio::test]
    async fn questions_beyond_a_limit_are_refused() {
        let open_approvals = OpenApprovals::default();
        let many = u32::try_from(MAX_OPEN_PER_USER).unwrap();
        for number in 0..many {
            open_approvals.take(open(number, "u", "")).unwrap();
        }
        assert!(matches!(open_approvals.take(open(many, "u", "")), Err(Error::TooManyApprovals)));
        open_approvals.take(open(many, "v", "")).unwrap();
        let long = "x".repeat(MAX_BYTES);
        assert!(matches!(open_approvals.take(open(many + 1, "w", &long)), Err(Error::TooManyApprovals)));
        open_approvals.close_one(&open(0, "u", "").view.id, None, Decision::Cancelled);
        open_approvals.take(open(many + 2, "u", "")).unwrap();
    }
}
