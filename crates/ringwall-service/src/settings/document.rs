//! The settings in force: the stored document, overridden by start-up configuration.
//!
//! A document is validated before it is saved, so a stored one can always be applied. When it is
//! read, keys are dropped that only start-up configuration may set.

use std::ops::Deref;
use std::path::PathBuf;
use std::time::Duration;

use ringwall_executor::aio_service::AioService;
use ringwall_executor::docker::DockerSettings;
use ringwall_executor::docker::paths::{self, Platform, Roots, RuntimeMode, WorkspaceRoot};
use ringwall_policy::{
    ApprovalTimeoutSeconds, AuditRetentionDays, BrowserIdleSeconds, BrowserMax, BrowserMemoryMb, BrowserPids, Ceilings,
    CommandLists, ConcurrentExecs, ConcurrentExecsPerUser, DockerImage, ExecRetentionDays, ExternalMode, HostView,
    Isolation, Layer, LayerName, Layers, Limits, NetList, NetMode, NetRequest, PoolAcquireSeconds, PoolIdleSeconds,
    PoolMax, PoolMaxUses, PoolMin, QueuedExecs, QuotaFiles, QuotaMb, Secret, SecurityMode, SessionMaxMb,
    SessionRetentionHours, SkillEntriesMax, UnknownHost, UnpackedMaxMb, UploadMaxMb, check_settings, profile,
};
use ringwall_record::{Confirmation, Store};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::aio::AioPart;
use super::pinned::{PinnedSettings, remove_start_up_keys};
use crate::error::Error;

/// Placeholder for the default root, where only the other settings are checked.
const UNKNOWN: &str = "/workspaces";
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) version: i64,
    /// The stored document, without the keys in `ignored`.
    pub(crate) document: Value,
    /// Start-up-only keys that the stored document held. The next change saves a document without them.
    pub(crate) ignored: Vec<String>,
    /// The policy layer of the operator's limits and network.
    pub(crate) operator: Layer,
    pub(crate) image: DockerImage,
    parts: Parts,
}

impl Deref for Settings {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// The top-level keys of the document.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parts {
    pub(crate) sandbox: Sandbox,
    pub(crate) commands: CommandLists,
    pub(crate) files: FilesPart,
    pub(crate) skills: SkillsPart,
    pub(crate) workspace: WorkspacePart,
    pub(crate) retention: Retention,
    pub(crate) approvals: ApprovalsPart,
    pub(crate) aio: AioPart,
    pub(crate) sessions: SessionsPart,
    pub(crate) pool: PoolPart,
    pub(crate) strict: StrictPart,
    pub(crate) mcp: McpPart,
    pub(crate) net: NetPart,
    pub(crate) egress: EgressPart,
    pub(crate) browser: BrowserPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sandbox {
    pub(crate) workspace_root_win: Option<String>,
    pub(crate) workspace_root_wsl: Option<String>,
    pub(crate) runtime_mode: Option<String>,
    pub(crate) docker: DockerPart,
    pub(crate) when_disabled: HostView,
    limits: Option<Layer>,
    pub(crate) max_concurrent_execs: ConcurrentExecs,
    pub(crate) max_concurrent_execs_per_user: ConcurrentExecsPerUser,
    pub(crate) max_queued_execs: QueuedExecs,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DockerPart {
    pub(crate) cli_path: Option<String>,
    pub(crate) context: Option<String>,
    image: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SkillsPart {
    pub(crate) root: Option<String>,
    pub(crate) unpacked_max_mb: UnpackedMaxMb,
    pub(crate) entries_max: SkillEntriesMax,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FilesPart {
    pub(crate) upload_max_mb: UploadMaxMb,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct WorkspacePart {
    pub(crate) quota_mb: QuotaMb,
    pub(crate) quota_files: QuotaFiles,
}

/// How long ended execs and audit entries are kept. Default: forever.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retention {
    pub(crate) execs_days: Option<ExecRetentionDays>,
    pub(crate) audit_days: Option<AuditRetentionDays>,
}

/// Session settings; the rules of a session may override confirmation and security mode.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionsPart {
    pub(crate) max_mb: SessionMaxMb,
    pub(crate) retention_hours: SessionRetentionHours,
    pub(crate) confirmation: Confirmation,
    pub(crate) security_mode: SecurityMode,
}

impl SessionsPart {
    pub(crate) fn kept(self) -> Duration {
        HOUR * self.retention_hours.get()
    }
}

/// Backends of which the strict mode requires the strongest available one for code that is not
/// safe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StrictPart {
    pub(crate) backends: Vec<Isolation>,
}

impl Default for StrictPart {
    fn default() -> Self {
        Self { backends: vec![Isolation::Native] }
    }
}

/// Network access of boxes. Default: none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetPart {
    pub(crate) mode: NetMode,
    pub(crate) allow: NetList,
    pub(crate) unknown: UnknownHost,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EgressPart {
    /// Hosts that may resolve to private addresses, for tests and intranets.
    pub(crate) allowed_hosts: NetList,
}

impl NetPart {
    /// The operator's network request. In mode `none` the list is stored but not used.
    fn request(&self) -> Option<NetRequest> {
        let NetPart { mode, allow, unknown } = self;
        let is_used = *mode == NetMode::Allowlist;
        is_used.then(|| NetRequest { mode: *mode, allow: Some(allow.clone()), unknown: Some(*unknown) })
    }
}

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

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpPart {
    pub(crate) skill_names: SkillNames,
}

/// The names of skills in tool lists. Some clients refuse names with a dot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SkillNames {
    /// `skill.` and the id.
    #[default]
    Dotted,
    /// With `_` instead of dots.
    Plain,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ApprovalsPart {
    pub(crate) timeout_s: ApprovalTimeoutSeconds,
    pub(crate) webhook_url: Option<String>,
    /// Set in the start-up configuration only; never stored.
    #[serde(deserialize_with = "secret")]
    pub(crate) webhook_secret: Option<Secret>,
}

pub(crate) fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Secret::new))
}

/// The receiver of approval messages and the key that signs them.
#[derive(Debug, Clone)]
pub struct Webhook {
    pub url: String,
    pub secret: Secret,
}

impl ApprovalsPart {
    /// `None` without a secret: the receiver could not verify unsigned messages.
    pub(crate) fn webhook(&self) -> Option<Webhook> {
        Some(Webhook { url: self.webhook_url.clone()?, secret: self.webhook_secret.clone()? })
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.get().into())
    }
}

/// Limits of session boxes and warm boxes.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PoolPart {
    pub(crate) max_instances: PoolMax,
    pub(crate) min_instances: PoolMin,
    pub(crate) idle_timeout_s: PoolIdleSeconds,
    pub(crate) max_use_count: PoolMaxUses,
    pub(crate) acquire_timeout_s: PoolAcquireSeconds,
}

impl PoolPart {
    pub(crate) fn bounds(self) -> ringwall_executor::pool::Bounds {
        ringwall_executor::pool::Bounds {
            max_instances: self.max_instances.get(),
            min_instances: self.min_instances.get(),
            idle_timeout: Duration::from_secs(self.idle_timeout_s.get().into()),
            max_use_count: self.max_use_count.get(),
            acquire_timeout: Duration::from_secs(self.acquire_timeout_s.get().into()),
        }
    }
}

impl Retention {
    pub(crate) fn execs(self) -> Option<Duration> {
        self.execs_days.map(|days| DAY * days.get())
    }

    pub(crate) fn audit(self) -> Option<Duration> {
        self.audit_days.map(|days| DAY * days.get())
    }
}

impl Settings {
    pub(crate) async fn load(store: &Store, pinned: &PinnedSettings) -> Result<Self, Error> {
        match store.settings().await? {
            None => Self::read(0, json!({}), pinned),
            Some(saved) => Self::read(saved.version, saved.document, pinned),
        }
    }

    pub(crate) fn read(version: i64, mut document: Value, pinned: &PinnedSettings) -> Result<Self, Error> {
        let ignored = remove_start_up_keys(&mut document);
        let mut whole = document.clone();
        merge(&mut whole, &pinned.document());
        let parts = Parts::deserialize(&whole).map_err(|error| Error::invalid(format!("settings: {error}")))?;
        let mut limits = parts.sandbox.limits.clone().unwrap_or(Layer::new(LayerName::Settings));
        limits.net = match limits.net {
            None => parts.net.request(),
            Some(NetRequest { mode: NetMode::None, .. }) => limits.net,
            Some(_) => {
                let message = "sandbox.limits.net: set the network with net.mode, net.allow and net.unknown";
                return Err(Error::invalid(message));
            }
        };
        let operator = check_settings(limits).map_err(|denial| Error::invalid(denial.message))?;
        parts.check()?;
        let image =
            parts.sandbox.docker.image.as_deref().unwrap_or(ringwall_executor::docker::DEFAULT_IMAGE).parse()?;
        Ok(Self { version, document, ignored, operator, image, parts })
    }
}

impl Parts {
    /// Rejects values that have a valid form and cannot be used together or on this machine.
    fn check(&self) -> Result<(), Error> {
        self.aio.check()?;
        if self.approvals.webhook_url.as_deref().is_some_and(|url| !is_address(url)) {
            return Err(Error::invalid("approvals.webhook_url: must be a URL with http:// or https://"));
        }
        if self.sessions.confirmation == Confirmation::Callback && self.approvals.webhook_url.is_none() {
            let message = "sessions.confirmation: callback needs approvals.webhook_url as the receiver of all sessions";
            return Err(Error::invalid(message));
        }
        if self.strict.backends.is_empty() {
            return Err(Error::invalid("strict.backends: name at least one of gvisor, docker and native"));
        }
        // Also rejects a runtime mode that this platform does not have.
        self.sandbox.root(UNKNOWN).map_err(|error| Error::invalid(error.to_string())).map(drop)
    }
}

/// The AIO service that a server with the same start-up configuration uses, for commands that run
/// without a server.
pub fn aio_service(pinned: &PinnedSettings) -> Result<Option<AioService>, Error> {
    let settings = Settings::read(0, json!({}), pinned)?;
    Ok(settings.aio.assigned()?.map(|assigned| assigned.service))
}

/// The Docker client and context that a server with the same start-up configuration uses.
pub fn docker_settings(pinned: &PinnedSettings) -> Result<DockerSettings, Error> {
    Ok(Settings::read(0, json!({}), pinned)?.sandbox.docker.asked())
}

impl DockerPart {
    pub(crate) fn asked(&self) -> DockerSettings {
        DockerSettings { client: self.cli_path.clone().map(PathBuf::from), context: self.context.clone() }
    }
}

impl Sandbox {
    /// The root of all workspaces; `default` if none is set.
    pub(crate) fn root(&self, default: &str) -> Result<WorkspaceRoot, ringwall_executor::Error> {
        let roots = Roots {
            windows: self.workspace_root_win.as_deref(),
            wsl: self.workspace_root_wsl.as_deref(),
            default: Some(default),
        };
        paths::workspace_root(self.mode().parse::<RuntimeMode>()?, here(), roots, paths::by_rule)
    }

    pub(crate) fn mode(&self) -> &str {
        self.runtime_mode.as_deref().unwrap_or("auto")
    }
}

/// The policy layers of an exec.
pub(crate) fn layers(system: Limits, operator: Layer, narrowing: Vec<Layer>) -> Layers {
    let ceilings = Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System };
    Layers { system, ceilings, operator, narrowing }
}

/// The policy layers of long-running processes in a session's box.
pub(crate) fn lasting_layers(operator: Layer) -> Layers {
    let ceilings = Ceilings { limits: profile::PROCESS_CEILINGS, set_by: LayerName::System };
    Layers { system: profile::PROCESSES, ceilings, operator, narrowing: Vec::new() }
}

/// True if `url` is an HTTP or HTTPS URL.
pub(crate) fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        && !url.chars().any(|one| one.is_whitespace() || one.is_control())
}

/// The platform of this machine.
pub(crate) fn here() -> Platform {
    let release = rustix::system::uname().release().to_string_lossy().to_lowercase();
    if release.contains("microsoft") { Platform::Wsl } else { Platform::Linux }
}

/// Merges a patch into a document. `null` resets a key to its default.
pub(crate) fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *document = patch.clone();
        return;
    };
    if !document.is_object() {
        *document = json!({});
    }
    if let Value::Object(current) = document {
        for (key, change) in changes {
            if change.is_null() {
                current.remove(key);
            } else {
                merge(current.entry(key.clone()).or_insert(Value::Null), change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_with_null_removes_key() {
        let mut document = json!({"a": {"b": 1, "c": 2}});
        merge(&mut document, &json!({"a": {"b": null, "d": 3}}));
        assert_eq!(document, json!({"a": {"c": 2, "d": 3}}));
    }

    #[test]
    fn malformed_settings_document_is_refused() {
        for wrong in [
            json!({"sandbx": {}}),
            json!({"sandbox": {"limits": {"timeout": 1}}}),
            json!({"sandbox": {"limits": {"timeout_ms": 300_001}}}),
            json!({"sandbox": {"max_concurrent_execs": 17}}),
            json!({"sandbox": {"max_concurrent_execs": 0}}),
            json!({"sandbox": {"docker": {"image": "-v"}}}),
            json!({"sandbox": 1}),
            json!({"retention": {"execs_days": 0}}),
            json!({"retention": {"days": 1}}),
            json!({"commands": {"allow": []}}),
            json!({"commands": {"allowed": ["a b"]}}),
            json!({"commands": {"allowed": "ls"}}),
            json!({"sessions": {"retention_hours": 0}}),
            json!({"sessions": {"max_mb": 0}}),
            json!({"sessions": {"confirmation": "callback"}}),
            json!({"sessions": {"confirmation": "never"}}),
            json!({"sessions": {"security_mode": "lax"}}),
            json!({"strict": {"backends": []}}),
            json!({"strict": {"backends": ["vm"]}}),
            json!({"workspace": {"quota_mb": 0}}),
            json!({"workspace": {"quota": 1}}),
            json!({"aio": {"token": "x"}}),
            json!({"net": {"mode": "open"}}),
            json!({"net": {"mode": "allowlist", "allow": ["*"]}}),
            json!({"net": {"deny": []}}),
            json!({"egress": {"allowed_hosts": ["http://a.com"]}}),
            json!({"browser": {"allowed_hosts": ["http://a.com"]}}),
            json!({"browser": {"max_instances": 0}}),
            json!({"browser": {"memory_mb": 4097}}),
            json!({"sandbox": {"limits": {"net": {"mode": "allowlist"}}}}),
        ] {
            let read = Settings::read(0, wrong.clone(), &PinnedSettings::default());
            assert!(matches!(read, Err(Error::InvalidArgument { .. })), "{wrong}: {:?}", read.map(drop));
        }
    }
}
