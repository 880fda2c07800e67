//! Detects changes of the tool list and notifies clients (`notifications/tools/list_changed`).
//!
//! One task reads the skills once a second while any client waits, instead of watching files, which
//! can miss changes. The last list sent is remembered per client.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use ringwall_service::{Error, PathControl, Principal, Service};
use rmcp::model::Tool;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;

use super::skills;
use super::tools::NetworkAccess;

const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Between two checks that a client is still connected and its token still valid.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// A digest of the tool list. Of the built-in tools only the descriptions about the network and the
/// host's files change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListDigest(u64);

impl ListDigest {
    pub(super) fn of(skills: &[Tool], network: NetworkAccess, paths: PathControl) -> Self {
        let mut hasher = DefaultHasher::new();
        (network, paths).hash(&mut hasher);
        for tool in skills {
            serde_json::to_string(tool).unwrap_or_default().hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

/// Returns `None` if the list cannot be read now, which does not count as a change.
type ReadList = dyn Fn() -> BoxFuture<'static, Option<ListDigest>> + Send + Sync;

/// The latest digest, and the task that updates it.
pub(super) struct ToolListWatcher {
    read_list: Box<ReadList>,
    latest: watch::Sender<Option<ListDigest>>,
    is_running: Mutex<bool>,
}

impl std::fmt::Debug for ToolListWatcher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ToolListWatcher").finish_non_exhaustive()
    }
}

impl ToolListWatcher {
    pub(super) fn new(service: Service) -> Arc<Self> {
        Self::reading_with(move || {
            let service = service.clone();
            Box::pin(async move {
                let network = service.net_mode().into();
                let paths = service.path_control().await.ok()?;
                skills::described(&service).await.ok().map(|tools| ListDigest::of(&tools, network, paths))
            })
        })
    }

    fn reading_with(
        read_list: impl Fn() -> BoxFuture<'static, Option<ListDigest>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            read_list: Box::new(read_list),
            latest: watch::Sender::new(None),
            is_running: Mutex::default(),
        })
    }

    /// Updates the digest.
    pub(super) fn note(&self, seen: ListDigest) {
        self.latest.send_if_modified(|latest| latest.replace(seen) != Some(seen));
    }

    async fn read_now(&self) {
        if let Some(seen) = (self.read_list)().await {
            self.note(seen);
        }
    }

    /// Subscribes to changes and starts the task if it does not run.
    fn subscribe(self: &Arc<Self>) -> watch::Receiver<Option<ListDigest>> {
        let mut is_running = self.is_running.lock();
        let following = self.latest.subscribe();
        if !std::mem::replace(&mut *is_running, true) {
            tokio::spawn(self.clone().keep_reading());
        }
        following
    }

    async fn keep_reading(self: Arc<Self>) {
        while self.is_wanted() {
            self.read_now().await;
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    /// Decides under the lock: a new subscriber is either counted here or starts the task again.
    fn is_wanted(&self) -> bool {
        let mut is_running = self.is_running.lock();
        *is_running = self.latest.receiver_count() > 0;
        *is_running
    }
}

/// The digest of the list that one client has, or was notified of.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientList(Arc<Mutex<Option<ListDigest>>>);

impl ClientList {
    pub(super) fn note(&self, seen: ListDigest) {
        *self.0.lock() = Some(seen);
    }

    /// Sets the digest unless the client was already sent a list.
    fn set_if_unknown(&self, seen: Option<ListDigest>) {
        let mut given = self.0.lock();
        *given = given.or(seen);
    }

    /// Returns true if the client has another list, and records this one as sent.
    fn needs_notice(&self, latest: Option<ListDigest>) -> bool {
        let Some(latest) = latest else { return false };
        let mut given = self.0.lock();
        given.replace(latest) != Some(latest)
    }
}

/// Notifies a client with a session until it disconnects.
pub(super) async fn notify_client(changes: Arc<ToolListWatcher>, given: ClientList, peer: Peer<RoleServer>) {
    let mut following = changes.subscribe();
    // Reads the list before `set_if_unknown`: a list that is sent meanwhile may be older than the one
    // read here.
    changes.read_now().await;
    given.set_if_unknown(*following.borrow());
    while !peer.is_transport_closed() {
        let latest = *following.borrow_and_update();
        if given.needs_notice(latest) && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
        let _ = tokio::time::timeout(CHECK_INTERVAL, following.changed()).await;
    }
}

/// Notifies a sessionless client that listens, until it stops or its token is invalid. It is
/// notified at once, because the server does not know which list it has.
pub(super) async fn notify_listener(
    changes: &Arc<ToolListWatcher>,
    service: &Service,
    given: &ClientList,
    by: &Principal,
    listening: &SubscriptionContext,
) {
    let mut following = changes.subscribe();
    changes.read_now().await;
    let mut check = tokio::time::interval_at(tokio::time::Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    loop {
        let latest = *following.borrow_and_update();
        if given.needs_notice(latest) && listening.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
        tokio::select! {
            () = listening.cancelled() => return,
            _ = following.changed() => {}
            _ = check.tick() => {
                if matches!(service.authenticate_again(by).await, Err(Error::Unauthenticated)) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A list whose digest is the second number. The first number counts the reads.
    fn counted() -> (Arc<ToolListWatcher>, Arc<AtomicU64>, Arc<AtomicU64>) {
        let (reads, list) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counter, shown) = (reads.clone(), list.clone());
        let changes = ToolListWatcher::reading_with(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            let seen = ListDigest(shown.load(Ordering::Relaxed));
            Box::pin(std::future::ready(Some(seen)))
        });
        (changes, reads, list)
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_read_once_a_second_for_all_subscribers_and_not_without_any() {
        let (changes, reads, list) = counted();
        let mut following: Vec<_> = (0..1000).map(|_| changes.subscribe()).collect();
        tokio::time::sleep(READ_INTERVAL * 10).await;
        let count = reads.load(Ordering::Relaxed);
        assert!((9..=12).contains(&count), "{count} looks in ten seconds");
        following.iter_mut().for_each(|one| drop(one.borrow_and_update()));
        list.store(1, Ordering::Relaxed);
        for one in &mut following {
            one.changed().await.expect("the task runs");
            assert_eq!(*one.borrow(), Some(ListDigest(1)));
        }
        drop(following);
        tokio::time::sleep(READ_INTERVAL * 2).await;
        let before = reads.load(Ordering::Relaxed);
        tokio::time::sleep(READ_INTERVAL * 10).await;
        assert_eq!(reads.load(Ordering::Relaxed), before, "the list is read without subscribers");
        let _again = changes.subscribe();
        tokio::time::sleep(READ_INTERVAL * 3).await;
        assert!(reads.load(Ordering::Relaxed) > before, "a later subscriber starts the task again");
    }

    #[test]
    fn client_is_notified_once_of_a_list_that_it_does_not_have() {
        let (one, other) = (ClientList::default(), ClientList::default());
        one.note(ListDigest(1));
        other.note(ListDigest(2));
        assert!(one.needs_notice(Some(ListDigest(2))), "another client's list does not count");
        assert!(!one.needs_notice(Some(ListDigest(2))), "the same change is reported once");
        assert!(!other.needs_notice(Some(ListDigest(2))) && !other.needs_notice(None));
        let unknown = ClientList::default();
        assert!(unknown.needs_notice(Some(ListDigest(2))), "a client with an unknown list is notified");
        let begun = ClientList::default();
        begun.set_if_unknown(Some(ListDigest(2)));
        assert!(!begun.needs_notice(Some(ListDigest(2))));
    }

    #[test]
    fn changed_network_or_path_control_changes_the_digest() {
        let off = PathControl::Off { view: ringwall_policy::HostView::ReadOnly, is_writable: false };
        let seen = |network, paths| ListDigest::of(&[], network, paths);
        assert_ne!(seen(NetworkAccess::Closed, off), seen(NetworkAccess::Open, off));
        assert_ne!(seen(NetworkAccess::Closed, off), seen(NetworkAccess::Closed, PathControl::On));
    }
}
