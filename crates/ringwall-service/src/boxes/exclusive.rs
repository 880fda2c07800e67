//! Exclusive use of a session by an approved command that runs or reads files of the session.
//!
//! An exec shares its session until it has entered the session box. An approved command takes the
//! session alone: other execs wait, requests that change files are refused, and the session's boxes
//! are paused, so that nothing changes a file between the last check of its digest and the
//! command's end. A read-only copy mounted over each file would not achieve this, because a rename
//! from another mount namespace detaches such a mount (docs/decisions/0017).
//!
//! An exec that waits for an approved command of its session gives its slot back, so that other
//! sessions can use it. It takes a slot again before it shares the session: otherwise an approved
//! command would wait for execs that wait for a slot.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ringwall_executor::pool::{Hold as BoxHold, Present};
use ringwall_policy::Isolation;
use ringwall_record::SessionKey;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::{Instant, timeout_at};

use super::{BoxKey, BoxPool, Boxes, PooledBox};
use crate::error::{Error, causes};

/// How long an approved command waits for the other execs of its session, and for boxes that are being ended.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Number of entries at which unused ones are dropped.
const MAX_UNUSED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct SessionGates(Mutex<HashMap<SessionKey, Weak<RwLock<()>>>>);

pub(crate) type Shared = OwnedRwLockReadGuard<()>;

impl SessionGates {
    fn gate(&self, session: &SessionKey) -> Arc<RwLock<()>> {
        let mut gates = self.0.lock();
        if let Some(gate) = gates.get(session).and_then(Weak::upgrade) {
            return gate;
        }
        if gates.len() >= MAX_UNUSED {
            gates.retain(|_, gate| gate.strong_count() > 0);
        }
        let gate = Arc::new(RwLock::new(()));
        gates.insert(session.clone(), Arc::downgrade(&gate));
        gate
    }

    /// Waits while an approved command has the session alone.
    pub(crate) async fn share(&self, session: &SessionKey) -> Shared {
        self.gate(session).read_owned().await
    }

    /// For a request that must not wait for a command.
    pub(crate) fn try_share(&self, session: &SessionKey) -> Result<Shared, Error> {
        self.gate(session).try_read_owned().map_err(|_| Error::Conflict {
            message: format!(
                "an approved command has the session {} alone until it ends; wait for it or cancel it",
                session.session_id
            ),
        })
    }
}

/// Exclusive use of a session until dropped. Dropping it resumes the boxes that it paused.
#[derive(Debug)]
pub(crate) struct Exclusive {
    gate: Option<OwnedRwLockWriteGuard<()>>,
    paused: Vec<Arc<PooledBox>>,
    /// Ending a paused box resumes it, and its processes may run until they are killed. The pool ends no held box for being idle.
    holds: Vec<BoxHold<Boxes>>,
}

impl SessionGates {
    /// Waits for the other execs of the session, pauses its boxes, in which processes may run in the background, and waits
    /// for the end of those that are being ended.
    pub(crate) async fn take_alone(&self, boxes: &Arc<BoxPool>, session: &SessionKey) -> Result<Exclusive, String> {
        let deadline = Instant::now() + MAX_WAIT;
        let gate = self.gate(session).write_owned();
        let gate = timeout_at(deadline, gate).await.map_err(|_| {
            format!(
                "another command of the session {} still runs and could change the approved files; end it and send \
                 the command again",
                session.session_id
            )
        })?;
        let mut exclusive = Exclusive { gate: Some(gate), paused: Vec::new(), holds: Vec::new() };
        for isolation in Isolation::ALL {
            let pausing = match boxes.hold_session(&BoxKey::new(session, isolation)) {
                None => continue,
                Some(Present::Ending(home)) => timeout_at(deadline, home.session_box.died()).await.map(drop).map_err(|_| {
                    format!(
                        "the box of the session {} is being ended, and its processes could still change the approved \
                         files; send the command again",
                        session.session_id
                    )
                }),
                Some(Present::Kept(home, hold)) => {
                    exclusive.holds.push(hold);
                    // Before the pause: it takes effect even if this exec is cancelled meanwhile, and has to end with it.
                    if !home.session_box.is_paused() {
                        exclusive.paused.push(home.clone());
                    }
                    let (pause, died) = (home.session_box.pause(), home.session_box.died());
                    paused_or_dead(pause, died, deadline).await.map_err(|error| {
                        format!(
                            "the box of the session {} could not be paused, and its processes could change the approved \
                             files: {}",
                            session.session_id,
                            causes(&error)
                        )
                    })
                }
            };
            pausing?;
        }
        Ok(exclusive)
    }
}

/// Waits until a box is paused or dead. One that is dying cannot be paused.
async fn paused_or_dead<E>(
    pause: impl Future<Output = Result<(), E>>,
    died: impl Future,
    deadline: Instant,
) -> Result<(), E> {
    match pause.await {
        Ok(()) => Ok(()),
        Err(error) => timeout_at(deadline, died).await.map(drop).map_err(|_| error),
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        let (gate, paused) = (self.gate.take(), std::mem::take(&mut self.paused));
        let holds = std::mem::take(&mut self.holds);
        if paused.is_empty() {
            return;
        }
        // Without a runtime the server has ended, and its boxes with it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            for home in paused {
                if let Err(error) = home.session_box.resume().await {
                    tracing::warn!(error = %causes(&error), "could not resume a session's box after an approved command");
                }
            }
            drop((holds, gate));
        });
    }
}

/// An exec's hold on its session while it runs.
#[derive(Debug)]
pub(crate) enum Hold {
    /// The exec has no session, or runs in a session box, which is paused when another exec takes
    /// the session.
    Nothing,
    Shared(#[expect(dead_code, reason = "held until it is dropped")] Shared),
    Alone(#[expect(dead_code, reason = "held until it is dropped")] Exclusive),
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn box_that_died_before_its_pause_needs_none() {
        let deadline = Instant::now() + MAX_WAIT;
        let died = tokio::time::sleep(MAX_WAIT / 2);
        assert_eq!(paused_or_dead(ready(Err("it is dead")), died, deadline).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn living_box_that_cannot_be_paused_is_an_error() {
        let deadline = Instant::now() + MAX_WAIT;
        let error = paused_or_dead(ready(Err("no freezer")), pending::<()>(), deadline).await;
        assert_eq!(error, Err("no freezer"));
        assert_eq!(paused_or_dead(ready(Ok::<(), &str>(())), pending::<()>(), deadline).await, Ok(()));
    }
}
