//! Current work of the server and the last hour of it, for operators or for one user; metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ringwall_ids::UserId;
use ringwall_record::Holder;
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::exec::queue::QueueCounts;
use crate::metrics::{Load, LoadByUser, Metrics, Minute};
use crate::service::{Inner, Service};

/// Sampling interval of current work.
const SAMPLE_PERIOD: Duration = Duration::from_secs(5);

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
    fn load(&self) -> LoadByUser {
        let mut users: HashMap<UserId, Load> = HashMap::new();
        for (user, QueueCounts { running, waiting }) in self.exec_queue.counts_by_user() {
            users.insert(user, Load { running, waiting, asking: 0 });
        }
        for (user, asking) in self.open_approvals.counts_by_user() {
            users.entry(user).or_default().asking = asking;
        }
        LoadByUser { users, boxes: self.boxes.figures().total }
    }
}

impl Service {
    /// Counters of the box pool.
    pub fn pool(&self) -> ringwall_executor::pool::Figures {
        self.inner.boxes.figures()
    }

    pub fn metrics(&self) -> Metrics {
        let QueueCounts { running, waiting } = self.inner.exec_queue.counts();
        let (ended, set_up) = self.inner.counters.totals();
        Metrics { ended, running, waiting, set_up, warm_boxes: self.pool().warm_boxes }
    }

    pub fn overview(&self, by: &Principal) -> Overview {
        let whose = match by.holder() {
            Holder::Owner | Holder::Operator => None,
            Holder::User(user) | Holder::Agent(user, _) => Some(user),
        };
        let load = self.inner.load();
        self.inner.counters.sampled(&load);
        let Load { running, waiting, asking } = match whose {
            None => load.sum(),
            Some(user) => load.users.get(user).copied().unwrap_or_default(),
        };
        let (minutes, set_up) = self.inner.counters.hour(whose);
        Overview { running, waiting, asking, set_up_ms: set_up.map(|mean| mean.as_secs_f64() * 1000.0), minutes }
    }

    /// Samples current work until the server is gone. Holds a reference only while it samples.
    pub(crate) fn sample_load(&self) {
        let inner = Arc::downgrade(&self.inner);
        self.run_in_background(async move {
            let mut samples = tokio::time::interval(SAMPLE_PERIOD);
            samples.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                samples.tick().await;
                let Some(inner) = inner.upgrade() else { return };
                inner.counters.sampled(&inner.load());
            }
        });
    }
}
