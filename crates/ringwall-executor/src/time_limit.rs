//! The time limit of a command on the monotonic clock: SIGTERM, [`GRACE`], SIGKILL. All backends
//! use it.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ringwall_policy::{Field, Grant};

/// Time between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The grant's time limit, if it has one.
pub(crate) fn of(grant: &Grant) -> Option<Duration> {
    let milliseconds = grant.effective().limits.get(Field::TimeoutMs);
    (milliseconds != ringwall_policy::UNLIMITED).then(|| Duration::from_millis(milliseconds))
}

/// Stops the box at its deadline. Never returns: the caller waits for the end of the box.
pub(crate) async fn keep(deadline: Option<Instant>, stop: impl Future<Output = ()>) -> Infallible {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
    stop.await;
    std::future::pending().await
}
