//! How long a command may run, on the monotonic clock: SIGTERM, a moment to obey, then the end. The same for every maker
//! of boxes.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ringwall_policy::{Field, Grant};

/// How long a box may take to obey SIGTERM.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// What a grant allows; nothing where it sets no limit.
pub(crate) fn of(grant: &Grant) -> Option<Duration> {
    let milliseconds = grant.effective().limits.get(Field::TimeoutMs);
    (milliseconds != ringwall_policy::UNLIMITED).then(|| Duration::from_millis(milliseconds))
}

/// Has the box stopped at its deadline. Never comes back: whoever waits for the box sees its end.
pub(crate) async fn keep(deadline: Option<Instant>, stop: impl Future<Output = ()>) -> Infallible {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
    stop.await;
    std::future::pending().await
}
