//! The settings in force: the stored document, overridden by start-up configuration.
//!
//! A document is validated before it is saved, so a stored one can always be applied. When it is
//! read, keys are dropped that only start-up configuration may set.

use std::path::PathBuf;
use std::time::Duration;

use ringwall_executor::aio_service::AioService;
use ringwall_executor::docker::DockerSettings;
use ringwall_executor::docker::paths::{self, Platform, Roots, RuntimeMode, WorkspaceRoot};
use ringwall_policy::{
    ApprovalTimeoutSeconds, AuditRetentionDays, CommandLists, ConcurrentExecs, ConcurrentExecsPerUser, DockerImage,
    ExecRetentionDays, HostView, Isolation, Layer, LayerName, NetList, NetMode, NetRequest, PoolAcquireSeconds,
    PoolIdleSeconds, PoolMax, PoolMaxUses, PoolMin, QueuedExecs, QuotaFiles, QuotaMb, Secret, SecurityMode,
    SessionMaxMb, SessionRetentionHours, SkillEntriesMax, UnknownHost, UnpackedMaxMb, UploadMaxMb, check_settings,
};
use ringwall_record::{Confirmation, Store};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::aio::AioPart;
use super::browser::BrowserPart;
use super::mcp::McpPart;
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
    pub(crate) operator: Layer,
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
    pub(crate) image: DockerImage,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    sandbox: Sandbox,
    commands: CommandLists,
    files: FilesPart,
    skills: SkillsPart,
    workspace: WorkspacePart,
    retention: Retention,
    approvals: ApprovalsPart,
    aio: AioPart,
    sessions: SessionsPart,
    pool: PoolPart,
    strict: StrictPart,
    mcp: McpPart,
    net: NetPart,
    egress: EgressPart,
    browser: BrowserPart,
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

    fn check(self, approvals: &ApprovalsPart) -> Result<(), Error> {
        match (self.confirmation, &approvals.webhook_url) {
            (Confirmation::Callback, None) => Err(Error::invalid(
                "sessions.confirmation: a callback of all sessions goes to approvals.webhook_url; set that too",
            )),
            _ => Ok(()),
        }
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

impl StrictPart {
    fn check(&self) -> Result<(), Error> {
        if self.backends.is_empty() {
            return Err(Error::invalid("strict.backends: at least one of gvisor, docker and native"));
        }
        Ok(())
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
    fn wish(&self) -> Option<NetRequest> {
        match self.mode {
            NetMode::None => None,
            NetMode::Allowlist => {
                Some(NetRequest { mode: self.mode, allow: Some(self.allow.clone()), unknown: Some(self.unknown) })
            }
        }
    }
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

    fn check(&self) -> Result<(), Error> {
        match &self.webhook_url {
            Some(url) if !is_address(url) => {
                Err(Error::invalid("approvals.webhook_url: an address with http:// or https://"))
            }
            Some(_) | None => Ok(()),
        }
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
            None => Self::read(0, Value::Object(Map::new()), pinned),
            Some(saved) => Self::read(saved.version, saved.document, pinned),
        }
    }

    pub(crate) fn read(version: i64, mut document: Value, pinned: &PinnedSettings) -> Result<Self, Error> {
        let ignored = remove_start_up_keys(&mut document);
        let mut whole = document.clone();
        merge(&mut whole, &pinned.document());
        let read = Document::deserialize(&whole).map_err(|error| Error::invalid(format!("settings: {error}")))?;
        let mut limits = read.sandbox.limits.clone().unwrap_or(Layer::new(LayerName::Settings));
        limits.net = match limits.net {
            None => read.net.wish(),
            Some(NetRequest { mode: NetMode::None, .. }) => limits.net,
            Some(_) => {
                let message =
                    "sandbox.limits.net: the network has settings of its own: net.mode, net.allow, net.unknown";
                return Err(Error::invalid(message));
            }
        };
        let operator = check_settings(limits).map_err(|denial| Error::invalid(denial.message))?;
        read.approvals.check()?;
        read.aio.check()?;
        read.sessions.check(&read.approvals)?;
        read.strict.check()?;
        // Rejects a runtime mode or root that this platform cannot use when it is set, instead of
        // when a box needs it.
        read.sandbox.root(UNKNOWN).map_err(|error| Error::invalid(error.to_string()))?;
        let image = read.sandbox.docker.image.as_deref().unwrap_or(ringwall_executor::docker::DEFAULT_IMAGE).parse()?;
        let Document {
            sandbox,
            commands,
            files,
            skills,
            workspace,
            retention,
            approvals,
            sessions,
            pool,
            strict,
            aio,
            mcp,
            net,
            egress,
            browser,
        } = read;
        Ok(Self {
            version,
            document,
            ignored,
            operator,
            commands,
            files,
            skills,
            workspace,
            sandbox,
            retention,
            approvals,
            aio,
            sessions,
            pool,
            strict,
            mcp,
            net,
            egress,
            browser,
            image,
        })
    }
}

/// The AIO service that a server with the same start-up configuration uses, for commands that run
/// without a server.
pub fn aio_service(pinned: &PinnedSettings) -> Result<Option<AioService>, Error> {
    let settings = Settings::read(0, Value::Object(Map::new()), pinned)?;
    Ok(settings.aio.assigned()?.map(|assigned| assigned.service))
}

/// The Docker client and context that a server with the same start-up configuration uses.
pub fn docker_settings(pinned: &PinnedSettings) -> Result<DockerSettings, Error> {
    Ok(Settings::read(0, Value::Object(Map::new()), pinned)?.sandbox.docker.asked())
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
        *document = Value::Object(Map::new());
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
    use serde_json::json;

    use super::*;

    #[test]
    fn null_takes_back_and_objects_merge() {
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
