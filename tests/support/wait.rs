//! Polls for states without an event, with a pause between attempts and a time limit.

use std::time::{Duration, Instant};

/// Long, because a busy machine is slow. It only elapses if something is wrong.
const LONG: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(20);

/// Returns the value as soon as there is one.
#[track_caller]
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(began.elapsed() < LONG, "waited too long for {what}");
        std::thread::sleep(GLANCE);
    }
}

#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}
