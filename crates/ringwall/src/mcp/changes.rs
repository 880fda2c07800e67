//! Noticing that the list of tools is another one, for clients that want to be told.
//!
//! A look at the skills costs microseconds and cannot miss anything, so whoever waits looks now and then; there is no watcher.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use rmcp::service::SubscriptionContext;
use rmcp::{Peer, RoleServer};
use service::{Error, Principal, Service};

use super::skills;

const LOOK: Duration = Duration::from_secs(1);
/// Looks between two questions whether whoever listens still may.
const LOOKS: u32 = 20;

/// What the list was when somebody last looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(Option<u64>);

impl Seen {
    pub(super) async fn now(service: &Service) -> Self {
        // A list that cannot be read just now is none that has changed.
        let tools = skills::described(service).await.ok();
        Self(tools.map(|tools| {
            let mut hasher = DefaultHasher::new();
            for tool in tools {
                serde_json::to_string(&tool).unwrap_or_default().hash(&mut hasher);
            }
            hasher.finish()
        }))
    }

    /// Looks again, and says whether it is another one now.
    async fn has_changed(&mut self, service: &Service) -> bool {
        let now = Self::now(service).await;
        if now.0.is_none() || *self == now {
            return false;
        }
        *self = now;
        true
    }
}

/// Tells a client with a session, for as long as it is there.
pub(super) async fn tell(service: Service, peer: Peer<RoleServer>) {
    let mut seen = Seen::now(&service).await;
    while !peer.is_transport_closed() {
        tokio::time::sleep(LOOK).await;
        if seen.has_changed(&service).await && peer.notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}

/// Tells one that listens, until it stops or may not any more.
pub(super) async fn tell_listener(service: &Service, by: &Principal, listening: &SubscriptionContext) {
    let mut seen = Seen::now(service).await;
    for look in 1_u32.. {
        tokio::select! {
            () = listening.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
        if look % LOOKS == 0 && matches!(service.authenticate_again(by).await, Err(Error::Unauthenticated)) {
            return;
        }
        if seen.has_changed(service).await && listening.sink().notify_tool_list_changed().await.is_err() {
            return;
        }
    }
}
