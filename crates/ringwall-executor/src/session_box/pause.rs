//! Holding a box still, and letting it go on: what is wanted, and who needs it otherwise for a moment.
//!
//! Each turn is a task of its own, so that it is made to its end also where whoever asked for it is gone. An agent that is
//! held still hears nothing. So whoever ends a command has the box go on meanwhile (`stir`), and it stands still again
//! afterwards, unless somebody has resumed it.

use std::sync::Arc;

use tokio::sync::OwnedRwLockReadGuard;

use super::register::{Death, Life, Shared};
use crate::cgroup::freezer::Pause;
use crate::error::Error;

/// The box goes on at least as long as this lives.
#[derive(Debug)]
pub(crate) struct Stirred {
    shared: Arc<Shared>,
    /// Nothing where the box could not be let go, and ends.
    going_on: Option<OwnedRwLockReadGuard<Pause>>,
}

impl Shared {
    /// Makes what is wanted so. Whoever stops waiting for it does not break it off.
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

    /// Lets the box go on, and keeps it from being held still.
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
            (Life::Awake, Pause::End) => {
                // Nothing is held still, as far as is known; that is made sure of.
                let _ = self.control.resume().await;
                return Ok(());
            }
            (Life::Awake, Pause::Begin) => {
                let stopped = self.control.pause().await;
                // One that is being ended was let go for that, and held still again it would never die. Whoever ends it from here on
                // lets it go after this.
                let stopped = self.doom().map_or(stopped, |death| Err(death.to_error()));
                if let Err(error) = stopped {
                    // It may have been done, or half of it.
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
            Pause::End => Life::Awake,
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
        // Without a runtime everything ends.
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
