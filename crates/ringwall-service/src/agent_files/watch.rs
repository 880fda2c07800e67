//! Looking at what a workspace takes while a box runs in it, and once more afterwards.
//!
//! No exec waits for this. The first look comes after a moment, so that a short exec is never looked at while it runs; the
//! longer looking takes, the rarer it is. In between the file system is asked what it has left, which costs nothing, and
//! if it lost more than the workspace had left, the next look is early.

use std::time::Duration;

use crate::error::{Error, causes};

use super::quota::{Disk, Figure, MIN_INTERVAL};

/// Of the time that a look takes: others who fill the disk shall not make us look all the time.
const EARLIEST: u32 = 2;
/// Between two whole looks at a workspace in which nothing is known to run.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Comes back when the first of several shares is exceeded.
pub(crate) async fn watch_all(disks: &[Disk]) -> String {
    let watches: Vec<_> = disks.iter().map(|disk| Box::pin(disk.watch())).collect();
    if watches.is_empty() {
        return std::future::pending().await;
    }
    futures::future::select_all(watches).await.0
}

impl Disk {
    /// Comes back when the workspace takes more than a box in it may, with words that say so.
    pub(crate) async fn watch(&self) -> String {
        let mut rest = MIN_INTERVAL;
        loop {
            tokio::time::sleep(rest).await;
            match self.look().await {
                Ok(figure) if !figure.usage.fits(self.bearable) => {
                    return self.words(figure.usage, ringwall_workspace::Usage::default());
                }
                Ok(figure) => rest = self.wait(&figure).await,
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "could not see what a workspace takes");
                    rest = MIN_INTERVAL;
                }
            }
        }
    }

    /// Looks once, for one who looks all the time while nothing is known to run: at what the file system has lost, and at
    /// everything only where that is much, or long ago. With words, if the workspace takes more than it may.
    pub(crate) async fn glance(&self) -> Option<String> {
        let is_due = self.figure().is_none_or(|figure| {
            let passed = figure.begun.elapsed();
            passed >= figure.rest().max(MAX_INTERVAL) || (passed >= figure.rest() && self.is_doubtful(&figure))
        });
        if !is_due {
            return None;
        }
        match self.look_now().await {
            Ok(figure) => {
                (!self.bears(&figure)).then(|| self.words(figure.usage, ringwall_workspace::Usage::default()))
            }
            Err(error) => {
                tracing::warn!(error = %causes(&error), "could not see what a workspace takes");
                None
            }
        }
    }

    /// Has the workspace measured again soon, because an exec has been there. Several within a moment are one.
    pub(crate) fn measure_later(&self) {
        let Some(rest) = self.plan() else { return };
        let disk = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(rest).await;
            // Who comes from here on is not seen by this look any more.
            disk.unplan();
            if let Err(error) = disk.look_now().await {
                tracing::warn!(error = %causes(&error), "could not see what a workspace takes");
            }
        });
    }

    /// Waits until the next look is due. It is then due at once.
    async fn wait(&self, figure: &Figure) -> Duration {
        loop {
            tokio::time::sleep(MIN_INTERVAL).await;
            let passed = figure.begun.elapsed();
            let is_early = passed >= figure.took * (1 + EARLIEST) && self.is_doubtful(figure);
            if passed >= figure.rest() || is_early {
                return Duration::ZERO;
            }
        }
    }

    /// Somebody else's look will do, if it is fresh: several boxes may run in one workspace.
    async fn look(&self) -> Result<Figure, Error> {
        match self.figure().filter(|figure| figure.begun.elapsed() < MIN_INTERVAL) {
            Some(figure) => Ok(figure),
            None => self.look_now().await,
        }
    }

    async fn look_now(&self) -> Result<Figure, Error> {
        let disk = self.clone();
        super::files::detached(move || disk.measure(disk.bearable.files)).await
    }
}
