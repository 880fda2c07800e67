//! The clock of a box, which stops while the box is paused.

use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

#[derive(Debug)]
pub(crate) struct Clock(Mutex<Ticking>);

#[derive(Debug)]
struct Ticking {
    passed: Duration,
    /// The start of the running interval; `None` while stopped.
    since: Option<Instant>,
}

impl Clock {
    pub(crate) fn begin() -> Self {
        Clock(Mutex::new(Ticking { passed: Duration::ZERO, since: Some(Instant::now()) }))
    }

    /// The running time of the box.
    pub(crate) fn now(&self) -> Duration {
        let ticking = self.lock();
        ticking.passed + ticking.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(crate) fn stop(&self) {
        let mut ticking = self.lock();
        if let Some(since) = ticking.since.take() {
            ticking.passed += since.elapsed();
        }
    }

    pub(crate) fn go_on(&self) {
        self.lock().since.get_or_insert_with(Instant::now);
    }

    fn lock(&self) -> MutexGuard<'_, Ticking> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_passes_while_it_stands_still() {
        let clock = Clock::begin();
        clock.stop();
        let stopped = clock.now();
        clock.stop();
        assert_eq!(clock.now(), stopped);
        clock.go_on();
        clock.go_on();
        let before = Instant::now();
        while clock.now() == stopped {
            assert!(before.elapsed() < Duration::from_secs(10));
        }
    }
}
