//! Seeing and changing the settings while the server runs. A change is merged into what is stored, saved, and then applied.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use policy::CommandName;
use record::Saved;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::fixed::{Fixed, WEBHOOK_SECRET};
use crate::pool::BoxSort;
use crate::principal::Principal;
use crate::service::{Service, now};
use crate::settings::{Settings, Webhook, merge};
use crate::skill_names::SkillNames;

/// Stands for what is never shown.
const HIDDEN: &str = "•••";

/// Every key with its value in force; handed back, it changes nothing.
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
    /// Keys that were fixed when the server started, by its environment, flags or file. They cannot be changed here.
    fixed: Vec<String>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
struct SandboxView {
    workspace_root_win: Option<String>,
    workspace_root_wsl: Option<String>,
    /// `auto`, `windows`, `wsl` or `linux`
    runtime_mode: String,
    docker: DockerView,
    #[schema(schema_with = crate::schema::limits)]
    limits: policy::Limits,
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
    fn new(lists: &policy::CommandLists) -> Self {
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
    confirmation: record::Confirmation,
    /// `strict` or `permissive`
    #[schema(value_type = String)]
    security_mode: policy::SecurityMode,
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

/// The external AIO service, if there is one. It is said when the server starts, and only shown here.
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
    fn new(settings: &Settings, fixed: &Fixed) -> Result<Self, Error> {
        let layers = crate::order::layers(policy::profile::EXECS, settings.operator.clone(), vec![]);
        let effective = policy::merge(&layers).map_err(|denial| Error::invalid(denial.message))?;
        let sandbox = &settings.sandbox;
        Ok(Self {
            sandbox: SandboxView {
                workspace_root_win: sandbox.workspace_root_win.clone(),
                workspace_root_wsl: sandbox.workspace_root_wsl.clone(),
                runtime_mode: sandbox.mode().to_owned(),
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
                execs_days: settings.retention.execs_days.map(policy::ExecsKeptDays::get),
                audit_days: settings.retention.audit_days.map(policy::AuditKeptDays::get),
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
            fixed: fixed.keys().map(str::to_owned).collect(),
        })
    }
}

impl Service {
    /// Where approvals are told, if that is anywhere.
    pub fn webhook(&self) -> Option<Webhook> {
        self.settings_now().approvals.webhook()
    }

    pub async fn settings(&self, by: &Principal) -> Result<SettingsView, Error> {
        by.require_operator("see the settings")?;
        SettingsView::new(&self.settings_now(), &self.inner.fixed)
    }

    /// Merges into what is set, saves, and applies. Gives all settings as they then are.
    pub async fn change_settings(&self, by: &Principal, patch: Value) -> Result<SettingsView, Error> {
        by.require_operator("change the settings")?;
        let fixed = &self.inner.fixed;
        loop {
            // Somebody may have saved elsewhere: what is merged into is what is stored.
            let current = Settings::load(&self.inner.store, fixed).await?;
            let (document, version) = change(&current, &patch, fixed)?;
            let mut changed = Settings::read(version, document, fixed)?;
            let saved = self.inner.store.save_settings(&changed.document, version, now(), by.caller()).await?;
            match saved {
                Saved::Conflict { .. } => {}
                Saved::Recorded { version } => {
                    changed.version = version;
                    let applied = self.apply(changed);
                    // How sessions are treated may be another now.
                    self.review_approvals();
                    return SettingsView::new(&applied, fixed);
                }
            }
        }
    }

    /// The newest version stays, in whatever order two changes get here.
    fn apply(&self, changed: Settings) -> Arc<Settings> {
        let usual = self.usual_sort(&changed);
        let mut settings = self.inner.settings.write().unwrap_or_else(PoisonError::into_inner);
        if changed.version > settings.version {
            *settings = Arc::new(changed);
            self.inner.turns.set_bounds(settings.bounds());
            self.inner.boxes.set_bounds(settings.pool.bounds());
            self.inner.boxes.keep(usual.map(BoxSort::Native));
        }
        let applied = settings.clone();
        drop(settings);
        // They read what was just written.
        self.inner.browsers.reconsider();
        applied
    }
}

/// The document with a change in it, and the version that it changes. It has to be one that a server could also start
/// with when nothing is fixed any more.
fn change(current: &Settings, patch: &Value, fixed: &Fixed) -> Result<(Value, i64), Error> {
    let mut patch = patch.clone();
    let Value::Object(members) = &mut patch else {
        return Err(Error::invalid("settings must be an object"));
    };
    let in_force = json!(SettingsView::new(current, fixed)?);
    if members.remove("fixed").is_some_and(|asked| asked != in_force["fixed"]) {
        return Err(Error::invalid("fixed: what is fixed is said when the server starts, and only shown here"));
    }
    fixed.spare(&mut patch, &in_force)?;
    let pointer = format!("/{}", WEBHOOK_SECRET.replace('.', "/"));
    if patch.pointer(&pointer).is_some_and(|secret| !secret.is_null()) {
        let message = format!(
            "{WEBHOOK_SECRET}: settings are recorded and a secret is not; start the server with \
             RINGWALL_APPROVALS_WEBHOOK_SECRET"
        );
        return Err(Error::invalid(message));
    }
    let says_aio = |aio: &Value| aio.as_object().is_none_or(|aio| aio.values().any(|value| !value.is_null()));
    if patch.get("aio").is_some_and(says_aio) {
        return Err(Error::invalid("aio: an AIO service is said when the server starts, with its key"));
    }
    let mut document = current.document.clone();
    merge(&mut document, &patch);
    let alone = Settings::read(current.version, document, &Fixed::default())?;
    Ok((alone.document, alone.version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed::setting_keys;

    fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                let within = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                members.iter().for_each(|(name, value)| leaves(value, &within(name), found));
            }
            _ => drop(found.insert(path.to_owned())),
        }
    }

    #[test]
    fn what_is_shown_changes_nothing_when_it_is_handed_back() {
        let mut fixed = Fixed::default();
        fixed.set("sandbox.limits.memory_mb", "64").unwrap();
        let stored = json!({"sandbox": {"limits": {"timeout_ms": 5000, "memory_mb": 128}}});
        let settings = Settings::read(1, stored, &fixed).unwrap();
        let shown = json!(SettingsView::new(&settings, &fixed).unwrap());
        assert_eq!(shown["sandbox"]["limits"]["timeout_ms"], 5000);
        assert_eq!(shown["sandbox"]["limits"]["memory_mb"], 64, "what is fixed stands over what is stored");
        assert_eq!(shown["fixed"], json!(["sandbox.limits.memory_mb"]));
        let (document, version) = change(&settings, &shown, &fixed).unwrap();
        assert_eq!(document["sandbox"]["limits"]["memory_mb"], 128, "what is fixed is not stored");
        let again = Settings::read(version, document, &fixed).unwrap();
        assert_eq!(json!(SettingsView::new(&again, &fixed).unwrap()), shown);
    }

    #[test]
    fn what_is_fixed_is_not_changed() {
        let mut fixed = Fixed::default();
        fixed.set("sandbox.limits.memory_mb", "64").unwrap();
        let settings = Settings::read(1, json!({}), &fixed).unwrap();
        let asked = json!({"sandbox": {"limits": {"memory_mb": 32}}});
        assert_eq!(change(&settings, &asked, &fixed).unwrap_err().code(), "CONFLICT");
        assert_eq!(change(&settings, &json!({"fixed": []}), &fixed).unwrap_err().code(), "INVALID_ARGUMENT");
    }

    #[test]
    fn a_secret_is_neither_shown_nor_stored() {
        let mut fixed = Fixed::default();
        fixed.set("approvals.webhook_url", "https://hooks.example/x").unwrap();
        fixed.set(WEBHOOK_SECRET, "hunter2").unwrap();
        let settings = Settings::read(1, json!({}), &fixed).unwrap();
        let shown = json!(SettingsView::new(&settings, &fixed).unwrap());
        assert_eq!(shown["approvals"]["webhook_secret"], HIDDEN);
        let (document, _) = change(&settings, &shown, &fixed).unwrap();
        for told in [shown.to_string(), document.to_string(), format!("{settings:?} {fixed:?}")] {
            assert!(!told.contains("hunter2"), "{told}");
        }
        let asked = json!({"approvals": {"webhook_secret": "hunter3"}});
        let free = Settings::read(1, json!({}), &Fixed::default()).unwrap();
        let refused = change(&free, &asked, &Fixed::default()).unwrap_err();
        assert!(refused.code() == "INVALID_ARGUMENT" && !refused.to_string().contains("hunter3"), "{refused}");
    }

    #[test]
    fn an_aio_service_is_said_whole_when_the_server_starts() {
        let mut fixed = Fixed::default();
        let said =
            [("aio.url", "http://127.0.0.1:8080"), ("aio.key", "hunter2"), ("aio.user", "u"), ("aio.agent", "a")];
        for (key, value) in said {
            let so_far = Settings::read(1, json!({}), &fixed).unwrap();
            assert_eq!(so_far.aio.assigned().is_err(), fixed.keys().count() > 0, "{key}");
            fixed.set(key, value).unwrap();
        }
        let settings = Settings::read(1, json!({}), &fixed).unwrap();
        let assigned = settings.aio.assigned().unwrap().unwrap();
        assert_eq!((assigned.user.as_str(), assigned.agent.as_str()), ("u", "a"));
        let shown = json!(SettingsView::new(&settings, &fixed).unwrap());
        let (document, _) = change(&settings, &shown, &fixed).unwrap();
        for told in [shown.to_string(), document.to_string(), format!("{settings:?} {fixed:?} {assigned:?}")] {
            assert!(!told.contains("hunter2"), "{told}");
        }
        let free = Settings::read(1, json!({}), &Fixed::default()).unwrap();
        for asked in [json!({"aio": {"url": "http://elsewhere"}}), json!({"aio": 1})] {
            assert!(change(&free, &asked, &Fixed::default()).is_err(), "{asked}");
        }
        let mut wrong = Fixed::default();
        assert!(wrong.set("aio.url", "file:///etc/passwd").is_err());
    }

    #[test]
    fn every_key_that_is_shown_can_be_fixed() {
        let settings = Settings::read(0, json!({}), &Fixed::default()).unwrap();
        let mut shown = BTreeSet::new();
        leaves(&json!(SettingsView::new(&settings, &Fixed::default()).unwrap()), "", &mut shown);
        shown.remove("fixed");
        assert_eq!(shown, setting_keys().collect());
    }
}
