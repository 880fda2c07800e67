//! Settings of browsers.

use std::time::Duration;

use ringwall_policy::{BrowserIdleSeconds, BrowserMax, BrowserMemoryMb, BrowserPids, ExternalMode, NetList};
use serde::Deserialize;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BrowserPart {
    pub(crate) max_instances: BrowserMax,
    pub(crate) idle_timeout_s: BrowserIdleSeconds,
    pub(crate) memory_mb: BrowserMemoryMb,
    pub(crate) pids: BrowserPids,
    pub(crate) external: ExternalMode,
    /// Hosts that are allowed at any port and may resolve to private addresses, for tests and
    /// intranets.
    pub(crate) allowed_hosts: NetList,
}

impl BrowserPart {
    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s.get().into())
    }
}
