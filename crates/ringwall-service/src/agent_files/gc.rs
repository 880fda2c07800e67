//! Removes expired sessions, abandoned temporary files and unused baseline versions, at an
//! operator's request and every hour with retention.

use std::time::{Duration, SystemTime};

use ringwall_ids::ExecId;
use ringwall_record::Timestamp;
use ringwall_workspace::{GcLimits, GcMode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::blocking::detached;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::time::now;

/// Temporary files older than this belong to broken uploads.
const STRAY_AFTER: Duration = Duration::from_secs(60 * 60);

/// Removed data, or the data that a dry run would remove
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Freed {
    /// True if nothing was removed
    pub dry_run: bool,
    /// Sessions that were not used for `sessions.retention_hours`
    pub sessions: u64,
    /// Temporary files of execs, uploads and deletions
    pub strays: u64,
    /// Versions of baselines that newer ones have replaced
    pub baseline_versions: u64,
    pub bytes: u64,
    pub files: u64,
    /// Items that could not be removed; the log has the causes
    pub failed: u64,
}

impl Service {
    /// Removes unused data, or only reports it.
    pub async fn collect_garbage(&self, by: &Principal, mode: GcMode) -> Result<Freed, Error> {
        by.require_operator("remove unused data")?;
        self.remove_garbage(now(), mode).await
    }

    pub(crate) async fn remove_garbage(&self, at: Timestamp, mode: GcMode) -> Result<Freed, Error> {
        let kept = self.settings_now().sessions.kept();
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(at.milliseconds()).unwrap_or(0));
        let before = move |time: Duration| at.checked_sub(time).unwrap_or(SystemTime::UNIX_EPOCH);
        self.touch_sessions_in_use().await;
        if mode == GcMode::Remove {
            self.end_idle_sessions(before(kept)).await?;
        }
        let (workspaces, baselines) = (self.inner.workspaces.clone(), self.inner.baselines.clone());
        let registry = self.inner.registry.clone();
        let freed = detached(move || {
            let is_running = |exec: &ExecId| registry.find(exec).is_some();
            let limits = GcLimits { sessions_before: before(kept), strays_before: before(STRAY_AFTER), is_running };
            let found = workspaces.collect_garbage(&limits, mode);
            if let Some(error) = &found.first_failure {
                tracing::warn!(failed = found.failed, error = %causes(error), "could not remove all unused data");
            }
            let (baseline_versions, usage) = baselines.collect_garbage(mode);
            let usage = usage.plus(found.usage);
            Ok(Freed {
                dry_run: mode == GcMode::DryRun,
                sessions: found.sessions,
                strays: found.strays,
                baseline_versions,
                bytes: usage.bytes,
                files: usage.files,
                failed: found.failed,
            })
        })
        .await?;
        if mode == GcMode::Remove && freed.files > 0 {
            self.inner.quotas.shrink_all();
        }
        Ok(freed)
    }
}
