//! Measures a workspace while a box runs in it, and once afterwards.
//!
//! No exec waits for a measurement. The first one comes after [`MIN_INTERVAL`], so short execs are
//! not measured while they run; the longer a measurement takes, the rarer they are. In between
//! `statfs`, which is cheap, shows how much free space the file system has lost. If that is more
//! than the workspace had left, the next measurement is early.

use std::time::Duration;

use crate::blocking::detached;
use crate::error::{Error, causes};

use super::quota::{Disk, Figure, MIN_INTERVAL};

/// An early measurement waits at least this multiple of the last one's duration, so that other
/// writers on the disk do not cause constant measurements.
const EARLY_FACTOR: u32 = 2;
/// Interval of full measurements of a workspace in which no exec is known to run.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Returns when the first of these quotas is exceeded.
pub(crate) async fn watch_all(disks: &[Disk]) -> String {
    let watches: Vec<_> = disks.iter().map(|disk| Box::pin(disk.watch())).collect();
    if watches.is_empty() {
        return std::future::pending().await;
    }
    futures::future::select_all(watches).await.0
}

impl Disk {
    /// Returns the error message when the usage exceeds the limit of boxes.
    pub(crate) async fn watch(&self) -> String {
        let mut pause = MIN_INTERVAL;
        loop {
            tokio::time::sleep(pause).await;
            match self.recent_figure().await {
                Ok(figure) if !figure.usage.fits(self.box_limit) => {
                    return self.message(figure.usage, ringwall_workspace::Usage::default());
                }
                Ok(figure) => {
                    self.wait(&figure).await;
                    pause = Duration::ZERO;
                }
                Err(error) => {
                    tracing::warn!(error = %causes(&error), "could not measure a workspace");
                    pause = MIN_INTERVAL;
                }
            }
        }
    }

    /// One step of the periodic check while no exec is known to run: asks `statfs`, and measures
    /// only if much was lost or the last measurement is old. Returns a message if the quota is
    /// exceeded.
    pub(crate) async fn check_if_due(&self) -> Option<String> {
        let is_due = self.figure().is_none_or(|figure| {
            let passed = figure.begun.elapsed();
            passed >= figure.pause().max(MAX_INTERVAL) || (passed >= figure.pause() && self.is_doubtful(&figure))
        });
        if !is_due {
            return None;
        }
        match self.measure_now().await {
            Ok(figure) => {
                (!self.allows(&figure)).then(|| self.message(figure.usage, ringwall_workspace::Usage::default()))
            }
            Err(error) => {
                tracing::warn!(error = %causes(&error), "could not measure a workspace");
                None
            }
        }
    }

    /// Schedules a measurement after an exec. Several requests within a moment are merged.
    pub(crate) fn measure_later(&self) {
        let Some(pause) = self.schedule() else { return };
        let disk = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // Requests from here on need a new measurement.
            disk.unschedule();
            if let Err(error) = disk.measure_now().await {
                tracing::warn!(error = %causes(&error), "could not measure a workspace");
            }
        });
    }

    /// Waits until the next measurement is due.
    async fn wait(&self, figure: &Figure) {
        loop {
            tokio::time::sleep(MIN_INTERVAL).await;
            let passed = figure.begun.elapsed();
            let is_early = passed >= figure.took * (1 + EARLY_FACTOR) && self.is_doubtful(figure);
            if passed >= figure.pause() || is_early {
                return;
            }
        }
    }

    /// Reuses a fresh measurement of another box in the same workspace.
    async fn recent_figure(&self) -> Result<Figure, Error> {
        match self.figure().filter(|figure| figure.begun.elapsed() < MIN_INTERVAL) {
            Some(figure) => Ok(figure),
            None => self.measure_now().await,
        }
    }

    async fn measure_now(&self) -> Result<Figure, Error> {
        let disk = self.clone();
        detached(move || disk.measure(disk.box_limit.files)).await
    }
}
