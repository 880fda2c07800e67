//! The response of `GET /settings`: every key with its value in force, and the source of the keys
//! that cannot be changed.

use std::collections::{BTreeMap, BTreeSet};

use ringwall_policy::CommandName;
use serde::Serialize;

use super::document::{Settings, SkillNames, layers};
use super::pinned::{PinnedSettings, Source};
use crate::error::Error;

/// Shown in place of a secret.
pub(crate) const HIDDEN: &str = "•••";

/// Every key with its value in force. Sent back unchanged with PUT, it changes nothing
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct SettingsView {
    sandbox: SandboxView,
    commands: CommandsView,
    files: FilesView,
    skills: SkillsView,
    workspace: WorkspaceView,
    retention: RetentionView,
    approvals: ApprovalsView,
    net: NetView,
    egress: EgressView,
    browser: BrowserView,
    aio: AioView,
    sessions: SessionsView,
    pool: PoolView,
    strict: StrictView,
    mcp: McpView,
    /// Keys set by a flag, a variable or the file when the server started. They cannot be changed here
    fixed: Vec<String>,
    /// Source of every key that cannot be changed here: the keys in `fixed`, and the keys that only start-up
    /// configuration may set. These have the source `default` while they are not set
    sources: BTreeMap<String, Source>,
    /// Start-up-only keys that an older version stored. The values are ignored; the next change deletes them
    ignored: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SandboxView {
    workspace_root_win: Option<String>,
    workspace_root_wsl: Option<String>,
    /// `auto`, `windows`, `wsl` or `linux`
    runtime_mode: String,
    /// `readonly` or `full`: the part of the host that session boxes see while path control is off
    when_disabled: &'static str,
    docker: DockerView,
    #[schema(schema_with = crate::settings::schema::limits)]
    limits: ringwall_policy::Limits,
    max_concurrent_execs: u32,
    max_concurrent_execs_per_user: u32,
    max_queued_execs: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct DockerView {
    cli_path: Option<String>,
    context: Option<String>,
    /// Image of Docker execs, unless the skill names another one
    image: String,
}

/// Allowed commands. A given list replaces the current one; an empty list allows nothing
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct CommandsView {
    /// Commands in shell lines
    allowed: Vec<String>,
    /// Further commands in shell lines that only read and print
    allowed_filters: Vec<String>,
    /// Commands without a shell
    allowed_argv: Vec<String>,
}

impl CommandsView {
    fn new(lists: &ringwall_policy::CommandLists) -> Self {
        let names = |list: &BTreeSet<CommandName>| list.iter().map(CommandName::to_string).collect();
        Self {
            allowed: names(&lists.allowed),
            allowed_filters: names(&lists.allowed_filters),
            allowed_argv: names(&lists.allowed_argv),
        }
    }
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct FilesView {
    /// Maximum size of an upload and of any other body under `/v1`, in MiB
    upload_max_mb: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SkillsView {
    root: Option<String>,
    /// Maximum unpacked size of an uploaded skill archive, in MiB
    unpacked_max_mb: u32,
    /// Maximum number of entries of the archive
    entries_max: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct WorkspaceView {
    /// Disk quota of a workspace in MiB, without artifacts
    quota_mb: u32,
    /// Maximum number of files, directories and other names in a workspace
    quota_files: u32,
}

/// Retention periods. Null keeps the data forever
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct RetentionView {
    /// Days to keep an ended exec with its files
    execs_days: Option<u32>,
    /// Days to keep an entry of the audit chain
    audit_days: Option<u32>,
}

/// Defaults of sessions
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SessionsView {
    /// Disk quota of a session's files, in MiB
    max_mb: u32,
    /// Hours to keep a session's files after their last use
    retention_hours: u32,
    /// How code with a high risk is confirmed: `websocket`, `callback`, `auto-approve` or `auto-reject`
    confirmation: ringwall_record::Confirmation,
    /// `strict` or `permissive`
    #[schema(value_type = String)]
    security_mode: ringwall_policy::SecurityMode,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct StrictView {
    /// `gvisor`, `docker` and `native`: code that is not safe requires the strongest available one of this list
    backends: Vec<String>,
}

/// The pool of session boxes and warm boxes
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct PoolView {
    /// Maximum number of session boxes and warm boxes
    max_instances: u32,
    /// Number of warm boxes to keep ready
    min_instances: u32,
    /// Seconds after which an unused session box is ended
    idle_timeout_s: u32,
    /// Number of uses after which a session box is replaced
    max_use_count: u32,
    /// Seconds that an exec waits for a free box
    acquire_timeout_s: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct ApprovalsView {
    /// Seconds until an unanswered approval expires, which counts as a denial
    timeout_s: u32,
    /// URL that is notified when an approval is opened and resolved
    webhook_url: Option<String>,
    /// `•••` if a secret for signing is set; its value is never shown
    webhook_secret: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct NetView {
    /// `none`, or `allowlist`: only the hosts of the list, through the proxy
    mode: &'static str,
    /// Hosts like `pypi.org`, `pypi.org:8443` and `*.example.com`; an empty list allows nothing
    allow: Vec<String>,
    /// Handling of other hosts: `deny`, or `ask` to open an approval
    unknown: &'static str,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct EgressView {
    /// Hosts that may resolve to private addresses, for tests and intranets. They must be allowed as well
    allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct BrowserView {
    /// Maximum number of concurrent browsers
    max_instances: u32,
    /// Seconds after which an unused browser is closed
    idle_timeout_s: u32,
    /// Memory limit of an external browser's box, in MiB
    memory_mb: u32,
    /// Maximum number of processes and threads in that box
    pids: u32,
    /// Network of external browsers: `on`, the public internet; `allowlist`, only `allowed_hosts`; `off`, no external
    /// browsers
    external: &'static str,
    /// Hosts that pages may reach at any port although their addresses are private, for tests and intranets
    allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct McpView {
    /// Tool names of skills: `dotted` for `skill.<id>`, or `plain` for clients that refuse dots
    #[schema(value_type = String)]
    skill_names: SkillNames,
}

/// The external AIO service, if configured. Only start-up configuration sets it
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct AioView {
    url: Option<String>,
    /// `•••` if a key is set; its value is never shown
    key: Option<&'static str>,
    /// User of the workspace that the service is assigned to
    user: Option<String>,
    /// Agent of that workspace
    agent: Option<String>,
}

impl SettingsView {
    pub(crate) fn new(settings: &Settings, pinned: &PinnedSettings) -> Result<Self, Error> {
        let layers = layers(ringwall_policy::profile::EXECS, settings.operator.clone(), vec![]);
        let effective = ringwall_policy::merge(&layers).map_err(|denial| Error::invalid(denial.message))?;
        let sandbox = &settings.sandbox;
        Ok(Self {
            sandbox: SandboxView {
                workspace_root_win: sandbox.workspace_root_win.clone(),
                workspace_root_wsl: sandbox.workspace_root_wsl.clone(),
                runtime_mode: sandbox.mode().to_owned(),
                when_disabled: sandbox.when_disabled.key(),
                docker: DockerView {
                    cli_path: sandbox.docker.cli_path.clone(),
                    context: sandbox.docker.context.clone(),
                    image: settings.image.as_str().to_owned(),
                },
                limits: effective.limits,
                max_concurrent_execs: sandbox.max_concurrent_execs.get(),
                max_concurrent_execs_per_user: sandbox.max_concurrent_execs_per_user.get(),
                max_queued_execs: sandbox.max_queued_execs.get(),
            },
            commands: CommandsView::new(&settings.commands),
            files: FilesView { upload_max_mb: settings.files.upload_max_mb.get() },
            skills: SkillsView {
                root: settings.skills.root.clone(),
                unpacked_max_mb: settings.skills.unpacked_max_mb.get(),
                entries_max: settings.skills.entries_max.get(),
            },
            workspace: WorkspaceView {
                quota_mb: settings.workspace.quota_mb.get(),
                quota_files: settings.workspace.quota_files.get(),
            },
            retention: RetentionView {
                execs_days: settings.retention.execs_days.map(ringwall_policy::ExecRetentionDays::get),
                audit_days: settings.retention.audit_days.map(ringwall_policy::AuditRetentionDays::get),
            },
            pool: PoolView {
                max_instances: settings.pool.max_instances.get(),
                min_instances: settings.pool.min_instances.get(),
                idle_timeout_s: settings.pool.idle_timeout_s.get(),
                max_use_count: settings.pool.max_use_count.get(),
                acquire_timeout_s: settings.pool.acquire_timeout_s.get(),
            },
            sessions: SessionsView {
                max_mb: settings.sessions.max_mb.get(),
                retention_hours: settings.sessions.retention_hours.get(),
                confirmation: settings.sessions.confirmation,
                security_mode: settings.sessions.security_mode,
            },
            strict: StrictView { backends: settings.strict.backends.iter().map(ToString::to_string).collect() },
            approvals: ApprovalsView {
                timeout_s: settings.approvals.timeout_s.get(),
                webhook_url: settings.approvals.webhook_url.clone(),
                webhook_secret: settings.approvals.webhook_secret.as_ref().map(|_| HIDDEN),
            },
            net: NetView {
                mode: settings.net.mode.key(),
                allow: settings.net.allow.words(),
                unknown: settings.net.unknown.key(),
            },
            egress: EgressView { allowed_hosts: settings.egress.allowed_hosts.words() },
            browser: BrowserView {
                max_instances: settings.browser.max_instances.get(),
                idle_timeout_s: settings.browser.idle_timeout_s.get(),
                memory_mb: settings.browser.memory_mb.get(),
                pids: settings.browser.pids.get(),
                external: settings.browser.external.key(),
                allowed_hosts: settings.browser.allowed_hosts.words(),
            },
            mcp: McpView { skill_names: settings.mcp.skill_names },
            aio: AioView {
                url: settings.aio.url.clone(),
                key: settings.aio.key.as_ref().map(|_| HIDDEN),
                user: settings.aio.user.clone(),
                agent: settings.aio.agent.clone(),
            },
            fixed: pinned.keys().map(str::to_owned).collect(),
            sources: pinned.sources(),
            ignored: settings.ignored.clone(),
        })
    }
}
