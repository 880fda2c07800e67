//! Noticing that the list of tools is another one, for clients that want to be told.
//!
//! A look at the skills cannot miss anything, so there is no watcher of files: one task looks once a second for everybody who
//! waits, however many they are, and none while nobody does. What each client was given is its own.

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
/// Between two questions whether whoever waits is still there, and still may.
const PULSE: Duration = Duration::from_secs(30);

/// A digest of a list of tools. Of the built-in tools only the words about the network and the host's files differ.
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

/// A list that cannot be read just now is none that has changed.
type Look = dyn Fn() -> BoxFuture<'static, Option<Seen>> + Send + Sync;

/// The list as it was last seen, for everybody who waits for another one.
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

    /// Somebody has seen this.
    pub(super) fn note(&self, seen: Seen) {
        self.latest.send_if_modified(|latest| latest.replace(seen) != Some(seen));
    }

    async fn look_now(&self) {
        if let Some(seen) = (self.look)().await {
            self.note(seen);
        }
    }

    /// From now on it is looked for this one too.
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

    /// Under the lock, so that whoever comes now either is counted or finds nobody looking.
    fn is_wanted(&self) -> bool {
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        *is_looking = self.latest.receiver_count() > 0;
        *is_looking
    }
}

/// The list that one client has, or has been told of.
#[derive(Debug, Clone, Default)]
pub(super) struct Given(Arc<Mutex<Option<Seen>>>);

impl Given {
    pub(super) fn note(&self, seen: Seen) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// It has what is there, unless it was given something before.
    fn begin_with(&self, seen: Option<Seen>) {
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *given = given.or(seen);
    }

    /// Whether the client has another one. It is told of this one then.
    fn is_news(&self, latest: Option<Seen>) -> bool {
        let Some(latest) = latest else { return false };
        let mut given = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.replace(latest) != Some(latest)
    }
}

/// Tells a client with a session, for as long as it is there.
pub(super) async fn tell(changes: Arc<Changes>, given: Given, peer: Peer<RoleServer>) {
    let mut following = changes.follow();
    // In this order: a list that is given out while we look is older than what we see.
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

/// Tells one that listens, until it stops or may not any more. One of which nothing is known, because every request of its
/// stands for itself, is told at once: what it has may be older than what is there.
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

    /// Looks that count themselves, at a list that is as often another one as the other number says.
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
    async fn one_look_serves_everybody_and_nobody_is_looked_for_in_vain() {
        let (changes, looks, list) = counted();
        let mut following: Vec<_> = (0..1000).map(|_| changes.follow()).collect();
        tokio::time::sleep(LOOK * 10).await;
        let count = looks.load(Ordering::Relaxed);
        assert!((9..=12).contains(&count), "{count} looks in ten seconds");
        following.iter_mut().for_each(|one| drop(one.borrow_and_update()));
        list.store(1, Ordering::Relaxed);
        for one in &mut following {
            one.changed().await.expect("it is still looked");
            assert_eq!(*one.borrow(), Some(Seen(1)));
        }
        drop(following);
        tokio::time::sleep(LOOK * 2).await;
        let before = looks.load(Ordering::Relaxed);
        tokio::time::sleep(LOOK * 10).await;
        assert_eq!(looks.load(Ordering::Relaxed), before, "nobody waits, so nobody looks");
        let _again = changes.follow();
        tokio::time::sleep(LOOK * 3).await;
        assert!(looks.load(Ordering::Relaxed) > before, "whoever comes later is looked for");
    }

    #[test]
    fn what_one_client_was_given_is_no_news_to_it_alone() {
        let (one, other) = (Given::default(), Given::default());
        one.note(Seen(1));
        other.note(Seen(2));
        assert!(one.is_news(Some(Seen(2))), "another one's look changes nothing");
        assert!(!one.is_news(Some(Seen(2))), "it is told once");
        assert!(!other.is_news(Some(Seen(2))) && !other.is_news(None));
        let unknown = Given::default();
        assert!(unknown.is_news(Some(Seen(2))), "whoever may have anything is told");
        let begun = Given::default();
        begun.begin_with(Some(Seen(2)));
        assert!(!begun.is_news(Some(Seen(2))));
    }

    #[test]
    fn changed_network_or_path_control_makes_it_another_list() {
        let off = PathControl::Off { view: ringwall_policy::HostView::ReadOnly, is_writable: false };
        let seen = |world, paths| Seen::of(&[], world, paths);
        assert_ne!(seen(World::Closed, off), seen(World::Open, off));
        assert_ne!(seen(World::Closed, off), seen(World::Closed, PathControl::On));
    }
}
