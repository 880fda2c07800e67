//! Pauses and resumes a box, and resumes it temporarily for operations that need the agent.
//!
//! Each change runs in its own task, so it completes even if the caller is gone. A paused agent
//! reads nothing, so ending a command resumes the box meanwhile (`stir`); it is paused again
//! afterwards unless it was resumed.

use std::sync::Arc;

use tokio::sync::OwnedRwLockReadGuard;

use super::register::{Death, Life, Shared};
use crate::cgroup::freezer::Pause;
use crate::error::Error;

/// Keeps the box running while it lives.
#[derive(Debug)]
pub(crate) struct Stirred {
    shared: Arc<Shared>,
    /// `None` if the box could not be resumed and ends.
    going_on: Option<OwnedRwLockReadGuard<Pause>>,
}

impl Shared {
    /// Applies the wanted state. Dropping the future does not interrupt it.
    pub(crate) async fn turn(self: &Arc<Self>, pause: Pause) -> Result<(), Error> {
        let shared = Arc::clone(self);
        let turned = tokio::spawn(async move {
            let mut wanted = Arc::clone(&shared.wanted).write_owned().await;
            shared.settle(pause).await?;
            *wanted = pause;
            Ok(())
        });
        turned.await.unwrap_or(Err(Error::JailDied))
    }

    /// Resumes the box and keeps it from being paused.
    pub(crate) async fn stir(self: &Arc<Self>) -> Stirred {
        let going_on = Arc::clone(&self.wanted).read_owned().await;
        if *self.life.borrow() != Life::Paused {
            return Stirred { shared: Arc::clone(self), going_on: Some(going_on) };
        }
        drop(going_on);
        let shared = Arc::clone(self);
        let woken = tokio::spawn(async move {
            let wanted = Arc::clone(&shared.wanted).write_owned().await;
            let woken = shared.settle(Pause::End).await;
            woken.map(|()| wanted.downgrade())
        });
        let going_on = woken.await.ok().and_then(Result::ok);
        if going_on.is_none() {
            self.end_for(Death::Itself("it could not be let go on".to_owned()));
        }
        Stirred { shared: Arc::clone(self), going_on }
    }

    async fn settle(&self, pause: Pause) -> Result<(), Error> {
        let now = self.life.borrow().clone();
        match (now, pause) {
            (Life::Over(death), _) => return Err(death.to_error()),
            (Life::Waking, _) | (Life::Paused, Pause::Begin) => return Ok(()),
            (Life::AgentConnection, Pause::End) => {
                // The box is not paused as far as known; resume it to be sure.
                let _ = self.control.resume().await;
                return Ok(());
            }
            (Life::AgentConnection, Pause::Begin) => {
                let stopped = self.control.pause().await;
                // A box that is ending was thawed for that; frozen again it would never die. Its
                // end thaws it again after this.
                let stopped = self.doom().map_or(stopped, |death| Err(death.to_error()));
                if let Err(error) = stopped {
                    // The freeze may have been applied in part.
                    let _ = self.control.resume().await;
                    return Err(error);
                }
                self.clock.stop();
            }
            (Life::Paused, Pause::End) => {
                self.control.resume().await?;
                self.clock.go_on();
            }
        }
        let to = match pause {
            Pause::Begin => Life::Paused,
            Pause::End => Life::AgentConnection,
        };
        self.life.send_if_modified(|life| {
            let lives = !matches!(life, Life::Over(_));
            if lives {
                *life = to;
            }
            lives
        });
        Ok(())
    }
}

impl Drop for Stirred {
    fn drop(&mut self) {
        let is_to_stand_still = self.going_on.take().is_some_and(|wanted| *wanted == Pause::Begin);
        // Without a runtime the process is shutting down.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if is_to_stand_still {
            let shared = Arc::clone(&self.shared);
            runtime.spawn(async move {
                let wanted = Arc::clone(&shared.wanted).write_owned().await;
                if *wanted == Pause::Begin
                    && let Err(error) = shared.settle(Pause::Begin).await
                {
                    shared.end_for(Death::Itself(format!("it could not be held still again: {error}")));
                }
            });
        }
    }
}
