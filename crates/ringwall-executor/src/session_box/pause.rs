//! Pauses and resumes a box, and its clock, which stops while the box is paused.
//!
//! Each change runs in its own task, so it completes even if the caller is gone. A paused agent
//! reads nothing, so ending a process resumes the box meanwhile ([`Shared::hold_running`]); it is
//! paused again afterwards unless it was resumed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::OwnedRwLockReadGuard;

use super::state::{BoxState, Shared};
use crate::cgroup::freezer::Pause;
use crate::error::Error;

/// Measures the running time of a box.
#[derive(Debug)]
pub(crate) struct Clock(Mutex<Elapsed>);

#[derive(Debug)]
struct Elapsed {
    before: Duration,
    /// The start of the running interval; `None` while stopped.
    since: Option<Instant>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock(Mutex::new(Elapsed { before: Duration::ZERO, since: Some(Instant::now()) }))
    }

    pub(crate) fn now(&self) -> Duration {
        let elapsed = self.0.lock();
        elapsed.before + elapsed.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn stop(&self) {
        let mut elapsed = self.0.lock();
        if let Some(since) = elapsed.since.take() {
            elapsed.before += since.elapsed();
        }
    }

    fn resume(&self) {
        self.0.lock().since.get_or_insert_with(Instant::now);
    }
}

/// Keeps the box running while it lives.
#[derive(Debug)]
pub(crate) struct RunningHold {
    shared: Arc<Shared>,
    /// `None` if the box could not be resumed and is killed.
    wanted_pause: Option<OwnedRwLockReadGuard<Pause>>,
}

impl Shared {
    /// Pauses or resumes the box. Dropping the future does not interrupt the change.
    pub(crate) async fn set_pause(self: &Arc<Self>, pause: Pause) -> Result<(), Error> {
        let shared = Arc::clone(self);
        let changed = tokio::spawn(async move {
            let mut wanted = Arc::clone(&shared.wanted_pause).write_owned().await;
            shared.apply_pause(pause).await?;
            *wanted = pause;
            Ok(())
        });
        changed.await.unwrap_or(Err(Error::JailDied))
    }

    /// Resumes the box and keeps it from being paused.
    pub(crate) async fn hold_running(self: &Arc<Self>) -> RunningHold {
        let wanted = Arc::clone(&self.wanted_pause).read_owned().await;
        if *self.state.borrow() != BoxState::Paused {
            return RunningHold { shared: Arc::clone(self), wanted_pause: Some(wanted) };
        }
        drop(wanted);
        let shared = Arc::clone(self);
        let resumed = tokio::spawn(async move {
            let wanted = Arc::clone(&shared.wanted_pause).write_owned().await;
            let resumed = shared.apply_pause(Pause::End).await;
            resumed.map(|()| wanted.downgrade())
        });
        let wanted_pause = resumed.await.ok().and_then(Result::ok);
        if wanted_pause.is_none() {
            self.kill_for("it could not be resumed");
        }
        RunningHold { shared: Arc::clone(self), wanted_pause }
    }

    async fn apply_pause(&self, pause: Pause) -> Result<(), Error> {
        let now = self.state.borrow().clone();
        let next = match (now, pause) {
            (BoxState::Dead(death), _) => return Err(death.to_error()),
            (BoxState::Starting, _) | (BoxState::Paused, Pause::Begin) => return Ok(()),
            (BoxState::Running, Pause::End) => {
                // An earlier pause may have been applied in part.
                let _ = self.control.resume().await;
                return Ok(());
            }
            (BoxState::Running, Pause::Begin) => {
                let paused = self.control.pause().await;
                // A box that is being killed was thawed for that; frozen again it would never die. Its
                // end thaws it again after this.
                let paused = self.kill_reason().map_or(paused, |death| Err(death.to_error()));
                if let Err(error) = paused {
                    // The freeze may have been applied in part.
                    let _ = self.control.resume().await;
                    return Err(error);
                }
                self.clock.stop();
                BoxState::Paused
            }
            (BoxState::Paused, Pause::End) => {
                self.control.resume().await?;
                self.clock.resume();
                BoxState::Running
            }
        };
        self.state.send_if_modified(|state| {
            let is_alive = !matches!(state, BoxState::Dead(_));
            if is_alive {
                *state = next;
            }
            is_alive
        });
        Ok(())
    }
}

impl Drop for RunningHold {
    fn drop(&mut self) {
        if self.wanted_pause.take().is_none_or(|wanted| *wanted == Pause::End) {
            return;
        }
        // Without a runtime the process is shutting down.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let shared = Arc::clone(&self.shared);
        runtime.spawn(async move {
            let wanted = Arc::clone(&shared.wanted_pause).write_owned().await;
            if *wanted == Pause::Begin
                && let Err(error) = shared.apply_pause(Pause::Begin).await
            {
                shared.kill_for(format!("it could not be paused again: {error}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_clock_does_not_advance() {
        let clock = Clock::start();
        clock.stop();
        let stopped = clock.now();
        clock.stop();
        assert_eq!(clock.now(), stopped);
        clock.resume();
        clock.resume();
        let before = Instant::now();
        while clock.now() == stopped {
            assert!(before.elapsed() < Duration::from_secs(10));
        }
    }
}
