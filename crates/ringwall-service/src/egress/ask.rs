//! Asks a person about a host while the connection waits.
//!
//! Each host is asked about once per exec or browser action, and the answer holds until that ends.
//! A client that disconnects withdraws the question, unless another connection waits for the same
//! host.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::Ruling;
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_policy::NetHost;
use ringwall_record::Author;
use tokio::sync::OnceCell;

/// Maximum number of open and refused questions, so that a box cannot flood a person with invented
/// names.
const MAX_COUNT: usize = 20;

/// The exec or action that asks, as shown to the person.
#[derive(Debug, Clone)]
pub(crate) struct Asking {
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    pub(crate) session_id: String,
    pub(crate) command: String,
    pub(crate) author: Author,
    pub(crate) policy_version: String,
}

/// One answer for all connections that wait for it.
type SharedAnswer = Arc<OnceCell<Ruling>>;

/// Puts a host before a person and waits for the ruling. It must not keep the server alive: a box that outlives its exec keeps its
/// gate for longer than there may be a server.
type AskPerson = Box<dyn Fn(Asking, NetHost, u16) -> BoxFuture<'static, Ruling> + Send + Sync>;

pub(crate) struct Questions {
    ask_person: AskPerson,
    /// One answer per host and port, shared by all connections.
    answers: Mutex<HashMap<(NetHost, u16), SharedAnswer>>,
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Questions").finish_non_exhaustive()
    }
}

impl Questions {
    pub(crate) fn new(ask_person: AskPerson) -> Self {
        Self { ask_person, answers: Mutex::default() }
    }

    pub(crate) async fn ask(&self, asking: &Asking, host: NetHost, port: u16) -> Ruling {
        let answer = {
            let mut answers = self.lock();
            let is_allowed = |answer: &SharedAnswer| matches!(answer.get(), Some(Ruling::Allowed(_)));
            let count = answers.values().filter(|answer| !is_allowed(answer)).count();
            match answers.entry((host.clone(), port)) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(_) if count >= MAX_COUNT => {
                    return Ruling::Refused(format!("{MAX_COUNT} other hosts were asked about already"));
                }
                Entry::Vacant(new) => new.insert(Arc::default()).clone(),
            }
        };
        answer.get_or_init(|| (self.ask_person)(asking.clone(), host, port)).await.clone()
    }

    /// Another exec asks from now on: allowed hosts stay allowed, the others are asked about again.
    pub(crate) fn begin_anew(&self) {
        self.lock().retain(|_, answer| matches!(answer.get(), Some(Ruling::Allowed(_))));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(NetHost, u16), SharedAnswer>> {
        self.answers.lock()
    }
}
