//! Exclusive use of a session by an approved command that runs or reads files of the session.
//!
//! Every exec of a session shares it until its box is the session's own. An approved command takes it alone: other execs wait,
//! requests that change files are refused, and the session's boxes are paused, so that nothing changes a file between the last
//! check of its digest and the command's end. A read-only copy mounted over each file would not
//! achieve this, because a rename from another mount namespace detaches such a mount (docs/decisions/0017).
//!
//! Deadlock: an exec takes its slot before it waits here, and an exec that holds the session has a slot already.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use record::SessionName;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::place::Place;
use crate::contexts::SessionBox;
use crate::error::{Error, causes};
use crate::order::Ground;
use crate::outcome::Told;
use crate::paths::Coverage;
use crate::run_exec::Exec;
use crate::service::Service;

const SESSION_BUSY: &str = "SESSION_BUSY";

/// How long an approved command waits for the other execs of its session.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Number of entries at which unused ones are dropped.
const MAX_UNUSED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct SessionGates(Mutex<HashMap<SessionName, Weak<RwLock<()>>>>);

pub(crate) type Shared = OwnedRwLockReadGuard<()>;

impl SessionGates {
    fn gate(&self, name: &SessionName) -> Arc<RwLock<()>> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get(name).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= MAX_UNUSED {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(RwLock::new(()));
        gates.insert(name.clone(), Arc::downgrade(&gate));
        gate
    }

    /// Waits while an approved command has the session alone.
    pub(crate) async fn share(&self, name: &SessionName) -> Shared {
        self.gate(name).read_owned().await
    }

    /// For a request that must not wait for a command.
    pub(crate) fn try_share(&self, name: &SessionName) -> Result<Shared, Error> {
        self.gate(name).try_read_owned().map_err(|_| Error::Conflict {
            message: format!(
                "an approved command has the session {} alone until it ends; wait for it or cancel it",
                name.session_id
            ),
        })
    }
}

/// The session is one exec's until this is dropped. Boxes that were paused go on then.
#[derive(Debug)]
pub(crate) struct Exclusive {
    gate: Option<OwnedRwLockWriteGuard<()>>,
    paused: Vec<Arc<SessionBox>>,
}

impl Service {
    /// Waits for the other execs of the session, and pauses its boxes, in which processes may run in the background.
    pub(crate) async fn take_session_alone(&self, place: &Place) -> Result<Exclusive, String> {
        let gate = self.inner.session_gates.gate(&place.name).write_owned();
        let gate = tokio::time::timeout(MAX_WAIT, gate).await.map_err(|_| {
            format!(
                "another command of the session {} still runs and could change the approved files; end it and send \
                 the command again",
                place.id
            )
        })?;
        let mut exclusive = Exclusive { gate: Some(gate), paused: Vec::new() };
        for (_, home) in self.homes(place) {
            if home.resident.is_paused() {
                continue;
            }
            // Before the pause: it takes effect even if this exec is cancelled meanwhile, and has to end with it.
            exclusive.paused.push(home.clone());
            home.resident.pause().await.map_err(|error| {
                format!(
                    "the box of the session {} could not be paused, and its processes could change the approved \
                     files: {}",
                    place.id,
                    causes(&error)
                )
            })?;
        }
        Ok(exclusive)
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let (gate, paused) = (self.gate.take(), std::mem::take(&mut self.paused));
        if paused.is_empty() {
            return;
        }
        // Without a runtime the server has ended, and its boxes with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            for home in paused {
                if let Err(error) = home.resident.resume().await {
                    tracing::warn!(error = %causes(&error), "could not resume a session's box after an approved command");
                }
            }
            drop(gate);
        });
    }
}

/// What an exec has of its session while it runs.
#[derive(Debug)]
pub(crate) enum Hold {
    /// It works on no session, or in a session box, which is paused when the session is taken.
    Nothing,
    Shared(#[expect(dead_code, reason = "held until it is dropped")] Shared),
    Alone(#[expect(dead_code, reason = "held until it is dropped")] Exclusive),
}

impl Exec {
    /// The session that the exec works on, if any.
    pub(crate) fn session_name(&self) -> Option<SessionName> {
        Some(SessionName {
            user_id: self.order.user_id.clone(),
            agent_id: self.order.agent_id.clone(),
            session_id: self.order.session()?.to_string(),
        })
    }

    /// Shares the session, or takes it alone for a command that was approved with files of the session.
    pub(crate) async fn hold_session(&self) -> Result<Hold, Told> {
        let (Some(session), Some(name)) = (self.order.session(), self.session_name()) else { return Ok(Hold::Nothing) };
        let is_alone = match &self.order.ground {
            Ground::Session { approved, covering, .. } => {
                !approved.is_empty() && covering.asked.as_ref().is_some_and(Coverage::is_pinned)
            }
            Ground::Project { .. } | Ground::Agent { .. } | Ground::Code(_) => false,
        };
        let hold = async {
            if is_alone {
                let place = Place { name, id: session.clone() };
                let exclusive = self.service.take_session_alone(&place).await;
                exclusive.map(Hold::Alone).map_err(|message| Told::denied(SESSION_BUSY, message))
            } else {
                Ok(Hold::Shared(self.service.inner.session_gates.share(&name).await))
            }
        };
        tokio::select! {
            biased;
            by = self.live.cancelled() => Err(Told::cancelled(by)),
            hold = hold => hold,
        }
    }
}
