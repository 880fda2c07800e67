//! The response of `GET /settings`: every key with its value in force, and the source of the keys
//! that cannot be changed.

use std::collections::{BTreeMap, BTreeSet};

use ringwall_policy::CommandName;
use serde::Serialize;

use super::document::Settings;
use super::layers::layers;
use super::mcp::SkillNames;
use super::pinned::{PinnedSettings, Source};
use crate::error::Error;

/// Shown in place of a secret.
pub(crate) const HIDDEN: &str = "•••";

/// Every key with its value in force. Sent back unchanged with PUT, it changes nothing.
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
    /// Keys that a flag, a variable or the file set when the server started. They cannot be changed here.
    fixed: Vec<String>,
    /// Every key that cannot be changed here, with what set it: the keys in `fixed`, and the keys that only start-up
    /// configuration may set, which are `default` while nothing sets them
    sources: BTreeMap<String, Source>,
    /// Start-up-only keys that an older version stored. Their stored values are not in force; the next change deletes them.
    ignored: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SandboxView {
    workspace_root_win: Option<String>,
    workspace_root_wsl: Option<String>,
    /// `auto`, `windows`, `wsl` or `linux`
    runtime_mode: String,
    /// `readonly` or `full`: what boxes of sessions show of the host while path control is off
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
    /// What docker execs run on unless a skill names another
    image: String,
}

/// Which commands may be named; a list that is given replaces the one before, and an empty one allows nothing.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct CommandsView {
    /// In lines for a shell
    allowed: Vec<String>,
    /// In lines for a shell too: what reads and prints
    allowed_filters: Vec<String>,
    /// Without a shell
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
    /// How many MiB an upload has at most, and any other body under `/v1`
    upload_max_mb: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SkillsView {
    root: Option<String>,
    /// How many MiB an uploaded archive of skills unpacks to at most
    unpacked_max_mb: u32,
    /// How many entries it has at most
    entries_max: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct WorkspaceView {
    /// How many MiB of the disk a workspace takes at most; artifacts do not count
    quota_mb: u32,
    /// How many files, directories and other names it has at most
    quota_files: u32,
}

/// For ever where it is null.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct RetentionView {
    /// How many days an exec stays on record, with its files, after it has ended
    execs_days: Option<u32>,
    /// How many days an entry stays in the audit chain
    audit_days: Option<u32>,
}

/// What every session has about which nothing else was said.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SessionsView {
    /// How many MiB a session's files take at most
    max_mb: u32,
    /// How many hours a session's files stay after they were last used
    retention_hours: u32,
    /// Who says whether code with a high risk may run: `websocket`, `auto-approve` or `auto-reject`
    confirmation: ringwall_record::Confirmation,
    /// `strict` or `permissive`
    #[schema(value_type = String)]
    security_mode: ringwall_policy::SecurityMode,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct StrictView {
    /// Of `gvisor`, `docker` and `native`: the strongest of these that is there is demanded for code that is not safe
    backends: Vec<String>,
}

/// Boxes that are kept.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct PoolView {
    max_instances: u32,
    min_instances: u32,
    /// How many seconds a session's box stays that nobody uses
    idle_timeout_s: u32,
    /// After how many uses it is replaced
    max_use_count: u32,
    /// How many seconds somebody waits for a box
    acquire_timeout_s: u32,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct ApprovalsView {
    /// How many seconds a person has to answer; without an answer it is no
    timeout_s: u32,
    /// Where each one is told when it is opened and resolved
    webhook_url: Option<String>,
    /// Whether there is one to sign with; never what it is
    webhook_secret: Option<&'static str>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct NetView {
    /// `none`, or `allowlist`: the hosts of the list, by a proxy and no other way
    mode: &'static str,
    /// Hosts like `pypi.org`, `pypi.org:8443` and `*.example.com`; an empty list allows nothing
    allow: Vec<String>,
    /// What becomes of other hosts: `deny`, or `ask` for asking a person
    unknown: &'static str,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct EgressView {
    /// Hosts that may lead to private addresses, for tests and intranets; they have to be allowed as well
    allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct BrowserView {
    /// How many browsers there are at once
    max_instances: u32,
    /// How many seconds one stays that nobody uses
    idle_timeout_s: u32,
    /// How many MiB of memory the box of an external one has
    memory_mb: u32,
    /// How many processes and threads that box has
    pids: u32,
    /// What external ones reach: `on`, the public internet; `allowlist`, `allowed_hosts` alone; `off`, there are none
    external: &'static str,
    /// Hosts that pages may lead to at any port, although their addresses are private, for tests and intranets
    allowed_hosts: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct McpView {
    /// Under which names skills are listed as tools: `dotted`, as `skill.<id>`, or `plain`, for clients that refuse dots
    #[schema(value_type = String)]
    skill_names: SkillNames,
}

/// The external AIO service, if there is one. Start-up configuration sets it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct AioView {
    url: Option<String>,
    /// Whether there is one; never what it is
    key: Option<&'static str>,
    /// The one workspace that it belongs to: its user
    user: Option<String>,
    /// and its agent
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
