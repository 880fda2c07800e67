//! Retention: removes data older than the settings allow, files first, then their record, in
//! batches.
//!
//! A record without files still says what ran; files without a record would stay forever. Data that
//! could not be removed stays on record and is retried. The audit chain stays verifiable: it
//! records the removal and starts at a checkpoint. A task runs this every hour until the server
//! ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use ringwall_ids::ExecId;
use ringwall_record::{ExecSummary, Keep, Limit, Timestamp};
use tokio::time::MissedTickBehavior;

use crate::agent_files::Freed;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::time::{milliseconds, now};

const PERIOD: Duration = Duration::from_secs(60 * 60);
/// Execs per batch, so that other requests do not wait long for the record.
const BATCH: u64 = 100;
/// The author of removals in the record.
const BY: &str = "retention";

/// Numbers of objects that one run removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    pub execs: u64,
    pub entries: u64,
}

impl Service {
    /// Removes expired data and unused files. A failed step is logged and retried in the next run;
    /// the other steps are done.
    pub async fn prune(&self, at: Timestamp) -> Result<Pruned, Error> {
        let retention = self.settings_now().retention;
        let mut pruned = Pruned::default();
        if let Some(kept) = retention.execs() {
            pruned.execs = tried("remove old execs", self.prune_execs(before(at, kept), at).await)?;
            tried("read what workspaces have on record", self.load_recorded().await)?;
            let actions = self.inner.store.prune_browser_actions(before(at, kept), at, BY).await;
            tried("remove old actions of browsers", actions.map_err(Error::from))?;
        }
        if let Some(kept) = retention.audit() {
            let entries = self.inner.store.prune_audit(Keep::Since(before(at, kept)), at, BY).await;
            pruned.entries = tried("remove old entries of the audit log", entries.map_err(Error::from))?;
        }
        let freed = tried("free unused space", self.remove_garbage(at, ringwall_workspace::GcMode::Remove).await)?;
        if freed.files > 0 {
            let Freed { sessions, strays, baseline_versions, bytes, .. } = freed;
            tracing::info!(sessions, strays, baseline_versions, bytes, "freed unused disk space");
        }
        Ok(pruned)
    }

    async fn prune_execs(&self, ended_before: Timestamp, at: Timestamp) -> Result<u64, Error> {
        let (mut removed, mut cursor) = (0, None);
        loop {
            let page = self.inner.store.oldest_execs(Limit::nearest(BATCH), cursor).await?;
            // An exec ends after it was created: if all on this page are too young, so are later
            // ones.
            let is_past = page.items.iter().all(|exec| exec.created_at >= ended_before);
            let old = page.items.into_iter().filter(|exec| exec.ended_at.is_some_and(|ended| ended < ended_before));
            let mut gone = Vec::new();
            for exec in old {
                gone.extend(self.remove_files(exec).await);
            }
            if !gone.is_empty() {
                removed += self.inner.store.prune_execs(gone, ended_before, at, BY).await?;
            }
            cursor = page.next;
            if is_past || cursor.is_none() {
                return Ok(removed);
            }
        }
    }

    /// Returns the exec's id if none of its files is left.
    async fn remove_files(&self, exec: ExecSummary) -> Option<ExecId> {
        let exec_id = exec.exec_id.clone();
        match self.with_project(&exec, |project, exec| project.remove_artifacts(exec)).await {
            Ok(_) => Some(exec_id),
            Err(error) => {
                tracing::warn!(%exec_id, error = %causes(&error), "could not remove the files of an old exec");
                None
            }
        }
    }

    /// Holds the service only during a run, so dropping its last handle ends it.
    pub(crate) fn prune_on_schedule(&self) {
        let inner = Arc::downgrade(&self.inner);
        self.run_in_background(every_hour(async move || {
            let Some(inner) = inner.upgrade() else { return ControlFlow::Break(()) };
            let service = Service { inner };
            match service.prune(now()).await {
                Ok(pruned) if pruned == Pruned::default() => {}
                Ok(Pruned { execs, entries }) => {
                    tracing::info!(execs, entries, "removed data older than the retention period")
                }
                Err(_) => return ControlFlow::Break(()),
            }
            service.end_orphaned_boxes().await;
            ControlFlow::Continue(())
        }));
    }
}

/// The result of a step, or the default if it failed. A stopping server ends the run.
fn tried<T: Default>(step: &str, done: Result<T, Error>) -> Result<T, Error> {
    match done {
        Err(error) if !matches!(error, Error::Stopping) => {
            tracing::warn!(error = %causes(&error), "could not {step}");
            Ok(T::default())
        }
        done => done,
    }
}

/// Runs at once and then every hour until a run returns `Break`. After a run longer than an hour
/// the next one starts an hour later; missed runs are skipped.
async fn every_hour(mut round: impl AsyncFnMut() -> ControlFlow<()>) {
    let mut rounds = tokio::time::interval(PERIOD);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        if round().await.is_break() {
            return;
        }
    }
}

fn before(at: Timestamp, kept: Duration) -> Timestamp {
    let kept = i64::try_from(milliseconds(kept)).unwrap_or(i64::MAX);
    Timestamp::from_milliseconds(at.milliseconds().saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    const HOUR: u64 = 60 * 60;

    /// The start of each run in seconds, if the second takes `second` and the fourth is the last.
    async fn rounds(second: Duration) -> Vec<u64> {
        let begun = Instant::now();
        let mut rounds = Vec::new();
        every_hour(async || {
            rounds.push(begun.elapsed().as_secs());
            if rounds.len() == 2 {
                sleep(second).await;
            }
            if rounds.len() == 4 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .await;
        rounds
    }

    #[tokio::test(start_paused = true)]
    async fn retention_runs_at_once_and_every_hour() {
        assert_eq!(rounds(Duration::from_secs(60)).await, [0, HOUR, 2 * HOUR, 3 * HOUR]);
    }

    #[tokio::test(start_paused = true)]
    async fn retention_after_long_run_skips_missed_runs() {
        let rounds = rounds(Duration::from_secs(3 * HOUR)).await;
        assert_eq!(rounds, [0, HOUR, 4 * HOUR, 5 * HOUR]);
    }
}
