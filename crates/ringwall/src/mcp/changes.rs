//! Detects changes of the tool list and notifies clients (`notifications/tools/list_changed`).
//!
//! One task reads the skills once a second while any client waits, instead of watching files, which
//! can miss changes. The last list sent is remembered per client.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use ringwall_service::{Error, PathControl, Principal, Service};
use rmcp::model::Tool;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::watch;

use super::skills;
use super::tools::World;

const LOOK: Duration = Duration::from_secs(1);
/// Between two checks that a client is still connected and its token still valid.
const PULSE: Duration = Duration::from_secs(30);

/// A digest of the tool list. Of the built-in tools only the descriptions about the network and the
/// host's files change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

impl Seen {
    pub(super) fn of(skills: &[Tool], world: World, paths: PathControl) -> Self {
        let mut hasher = DefaultHasher::new();
        (world, paths).hash(&mut hasher);
        for tool in skills {
            serde_json::to_string(tool).unwrap_or_default().hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

/// Returns `None` if the list cannot be read now, which does not count as a change.
type Look = dyn Fn() -> BoxFuture<'static, Option<Seen>> + Send + Sync;

/// The latest digest, and the task that updates it.
pub(super) struct Changes {
    look: Box<Look>,
    latest: watch::Sender<Option<Seen>>,
    is_looking: Mutex<bool>,
}

impl std::fmt::Debug for Changes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Changes").finish_non_exhaustive()
    }
}

impl Changes {
    pub(super) fn new(service: Service) -> Arc<Self> {
        Self::looking(move || {
            let service = service.clone();
            Box::pin(async move {
                let world = service.net_mode().into();
                let paths = service.path_control().await.ok()?;
                skills::described(&service).await.ok().map(|tools| Seen::of(&tools, world, paths))
            })
        })
    }

    fn looking(look: impl Fn() -> BoxFuture<'static, Option<Seen>> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { look: Box::new(look), latest: watch::Sender::new(None), is_looking: Mutex::default() })
    }

    /// Updates the digest.
    pub(super) fn note(&self, seen: Seen) {
        self.latest.send_if_modified(|latest| latest.replace(seen) != Some(seen));
    }

    async fn look_now(&self) {
        if let Some(seen) = (self.look)().await {
            self.note(seen);
        }
    }

    /// Subscribes to changes and starts the task if it does not run.
    fn follow(self: &Arc<Self>) -> watch::Receiver<Option<Seen>> {
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        let following = self.latest.subscribe();
        if !std::mem::replace(&mut *is_looking, true) {
            tokio::spawn(self.clone().keep_looking());
        }
        following
    }

    async fn keep_looking(self: Arc<Self>) {
        while self.is_wanted() {
            self.look_now().await;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Decides under the lock: a new subscriber is either counted here or starts the task again.
    fn is_wanted(&self) -> bool {
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        *is_looking = self.latest.receiver_count() > 0;
        *is_looking
    }
}

/// The digest of the list that one client has, or was notified of.
#[derive(Debug, Clone, Default)]
pub(super) struct Given(Arc<Mutex<Option<Seen>>>);

impl Given {
    pub(super) fn note(&self, seen: Seen) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// Sets the digest unless the client was already sent a list.
    fn begin_with(&self, seen: Option<Seen>) {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *given = given.or(seen);
    }

    /// Returns true if the client has another list, and records this one as sent.
    fn is_news(&self, latest: Option<Seen>) -> bool {
        let Some(latest) = latest else { return false };
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.replace(latest) != Some(latest)
    }
}

/// Notifies a client with a session until it disconnects.
pub(super) async fn tell(changes: Arc<Changes>, given: Given, peer: Peer<RoleServer>) {
    let mut following = changes.follow();
    // Reads the list before `begin_with`: a list that is sent meanwhile may be older than the one
    // read here.
    changes.look_now().await;
    given.begin_with(*following.borrow());
    while !peer.is_transport_closed() {
        let latest = *following.borrow_and_update();
        if given.is_news(latest) && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
        let _ = tokio::time::timeout(PULSE, following.changed()).await;
    }
}

/// Notifies a sessionless client that listens, until it stops or its token is invalid. It is
/// notified at once, because the server does not know which list it has.
pub(super) async fn tell_listener(
    changes: &Arc<Changes>,
    service: &Service,
    given: &Given,
    by: &Principal,
    listening: &SubscriptionContext,
) {
    let mut following = changes.follow();
    changes.look_now().await;
    let mut pulse = tokio::time::interval_at(tokio::time::Instant::now() + PULSE, PULSE);
    loop {
        let latest = *following.borrow_and_update();
        if given.is_news(latest) && listening.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
        tokio::select! {
            () = listening.cancelled() => return,
            _ = following.changed() => {}
            _ = pulse.tick() => {
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
    fn counted() -> (Arc<Changes>, Arc<AtomicU64>, Arc<AtomicU64>) {
        let (looks, list) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (counter, shown) = (looks.clone(), list.clone());
        let changes = Changes::looking(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            let seen = Seen(shown.load(Ordering::Relaxed));
            Box::pin(std::future::ready(Some(seen)))
        });
        (changes, looks, list)
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_read_once_a_second_for_all_subscribers_and_not_without_any() {
        let (changes, looks, list) = counted();
        let mut following: Vec<_> = (0..1000).map(|_| changes.follow()).collect();
        tokio::time::sleep(LOOK * 10).await;
        let count = looks.load(Ordering::Relaxed);
        assert!((9..=12).contains(&count), "{count} looks in ten seconds");
        following.iter_mut().for_each(|one| drop(one.borrow_and_update()));
        list.store(1, Ordering::Relaxed);
        for one in &mut following {
            one.changed().await.expect("the task runs");
            assert_eq!(*one.borrow(), Some(Seen(1)));
        }
        drop(following);
        tokio::time::sleep(LOOK * 2).await;
        let before = looks.load(Ordering::Relaxed);
        tokio::time::sleep(LOOK * 10).await;
        assert_eq!(looks.load(Ordering::Relaxed), before, "the list is read without subscribers");
        let _again = changes.follow();
        tokio::time::sleep(LOOK * 3).await;
        assert!(looks.load(Ordering::Relaxed) > before, "a later subscriber starts the task again");
    }

    #[test]
    fn client_is_notified_once_of_a_list_that_it_does_not_have() {
        let (one, other) = (Given::default(), Given::default());
        one.note(Seen(1));
        other.note(Seen(2));
        assert!(one.is_news(Some(Seen(2))), "another client's list does not count");
        assert!(!one.is_news(Some(Seen(2))), "the same change is reported once");
        assert!(!other.is_news(Some(Seen(2))) && !other.is_news(None));
        let unknown = Given::default();
        assert!(unknown.is_news(Some(Seen(2))), "a client with an unknown list is notified");
        let begun = Given::default();
        begun.begin_with(Some(Seen(2)));
        assert!(!begun.is_news(Some(Seen(2))));
    }

    #[test]
    fn changed_network_or_path_control_changes_the_digest() {
        let off = PathControl::Off { view: ringwall_policy::HostView::ReadOnly, is_writable: false };
        let seen = |world, paths| Seen::of(&[], world, paths);
        assert_ne!(seen(World::Closed, off), seen(World::Open, off));
        assert_ne!(seen(World::Closed, off), seen(World::Closed, PathControl::On));
    }
}
