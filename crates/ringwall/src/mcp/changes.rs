//! Noticing that the list of tools is another one, for clients that want to be told.
//!
//! A look at the skills costs microseconds and cannot miss anything, so whoever waits looks now and then; there is no watcher.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::Tool;
use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use service::{Error, Principal, Service};

use super::skills;

const LOOK: Duration = Duration::from_secs(1);
/// Looks between two questions whether whoever listens still may.
const LOOKS: u32 = 20;

/// What a list of tools was, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen(u64);

impl Seen {
    fn of(tools: &[Tool]) -> Self {
        let mut hasher = DefaultHasher::new();
        for tool in tools {
            serde_json::to_string(tool).unwrap_or_default().hash(&mut hasher);
        }
        Self(hasher.finish())
    }

    /// A list that cannot be read just now is none that has changed.
    async fn now(service: &Service) -> Option<Self> {
        skills::described(service).await.ok().map(|tools| Self::of(&tools))
    }
}

/// The list that was last given out. Whoever begins to wait compares with this one and not with what is there by then:
/// what changed after the client's own look, and before ours, is told too.
#[derive(Debug, Clone, Default)]
pub(super) struct Given(Arc<Mutex<Option<Seen>>>);

impl Given {
    pub(super) fn note(&self, tools: &[Tool]) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Seen::of(tools));
    }

    async fn or_now(&self, service: &Service) -> Option<Seen> {
        // In this order: a list that is given out while we look is older than what we see.
        let now = Seen::now(service).await;
        let given = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        given.or(now)
    }
}

/// Looks again, and says whether it is another one now.
async fn has_changed(seen: &mut Option<Seen>, service: &Service) -> bool {
    let now = Seen::now(service).await;
    if now.is_none() || *seen == now {
        return false;
    }
    *seen = now;
    true
}

/// Tells a client with a session, for as long as it is there.
pub(super) async fn tell(service: Service, given: Given, peer: Peer<RoleServer>) {
    let mut seen = given.or_now(&service).await;
    while !peer.is_transport_closed() {
        tokio::time::sleep(LOOK).await;
        if has_changed(&mut seen, &service).await && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

/// Tells one that listens, until it stops or may not any more.
pub(super) async fn tell_listener(service: &Service, given: &Given, by: &Principal, listening: &SubscriptionContext) {
    let mut seen = given.or_now(service).await;
    for look in 1_u32.. {
        tokio::select! {
            () = listening.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if look % LOOKS == 0 && matches!(service.authenticate_again(by).await, Err(Error::Unauthenticated)) {
            return;
        }
        if has_changed(&mut seen, service).await && listening.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}
