//! What goes on in a server now and in its last hour, for its operators or for one user.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ringwall_ids::UserId;
use ringwall_record::Holder;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::metrics::{Going, Minute, Now};
use crate::service::{Inner, Service};

/// Sampling interval of current work.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Overview {
    /// Execs that run
    pub running: u32,
    /// Execs that wait in the queue
    pub waiting: u32,
    /// Questions that wait for a person
    pub asking: u32,
    /// Mean time from the grant to the command's first instruction since the server started; null
    /// before the first exec
    pub set_up_ms: Option<f64>,
    /// Sixty minutes, oldest first; the last one is not over
    pub minutes: Vec<Minute>,
}

impl Inner {
    fn going_on(&self) -> Now {
        let mut of: HashMap<UserId, Going> = HashMap::new();
        for (user, (running, waiting)) in self.turns.counts_by_user() {
            of.insert(user, Going { running, waiting, asking: 0 });
        }
        for (user, asking) in self.open_approvals.counts_by_user() {
            of.entry(user).or_default().asking = asking;
        }
        Now { of, boxes: self.boxes.figures().total }
    }
}

impl Service {
    pub fn overview(&self, by: &Principal) -> Overview {
        let whose = match by.holder() {
            Holder::Owner | Holder::Operator => None,
            Holder::User(user) | Holder::Agent(user, _) => Some(user),
        };
        let now = self.inner.going_on();
        self.inner.counters.seen(&now);
        let Going { running, waiting, asking } = match whose {
            None => now.sum(),
            Some(user) => now.of.get(user).copied().unwrap_or_default(),
        };
        let (minutes, set_up) = self.inner.counters.hour(whose);
        Overview { running, waiting, asking, set_up_ms: set_up.map(|mean| mean.as_secs_f64() * 1000.0), minutes }
    }

    /// Samples current work until the server is gone. Holds a reference only while it samples.
    pub(crate) fn observe(&self) {
        let inner = Arc::downgrade(&self.inner);
        let task = tokio::spawn(async move {
            let mut looks = tokio::time::interval(LOOK);
            looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                looks.tick().await;
                let Some(inner) = inner.upgrade() else { return };
                inner.counters.seen(&inner.going_on());
            }
        });
        *self.inner.observer.lock() = Some(task);
    }
}
