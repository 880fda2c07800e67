//! Settings given when the server starts, by flag, environment or `ringwall.toml`. They override the stored settings,
//! and `PUT /settings` cannot change them.
//!
//! [`START_UP_ONLY`] names keys that have no other source. They choose programs, directories and secrets of the host, and
//! the server acts on them as its own user, which may be root. A role that may change settings must not choose them: it
//! could name a program that a box wrote.
//!
//! A key is its dotted name in the settings document and a value is text. Each value is validated when it is set, so a
//! server does not start with a value that it cannot apply.

use std::collections::BTreeMap;
use std::fmt;

use ringwall_policy::{
    ApprovalTimeoutSeconds, AuditRetentionDays, BrowserIdleSeconds, BrowserMax, BrowserMemoryMb, BrowserPids,
    ConcurrentExecs, ConcurrentExecsPerUser, ExecRetentionDays, Field, PoolAcquireSeconds, PoolIdleSeconds, PoolMax,
    PoolMaxUses, PoolMin, QueuedExecs, QuotaFiles, QuotaMb, SessionMaxMb, SessionRetentionHours, SkillEntriesMax,
    UnpackedMaxMb, UploadMaxMb,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::aio::AIO_KEY;
use super::document::{Settings, merge};
use crate::error::Error;

const LIMITS: &str = "sandbox.limits";
/// Keys with text values, besides [`START_UP_ONLY`], whose values all are text.
const TEXTS: [&str; 8] = [
    "sandbox.docker.image",
    "approvals.webhook_url",
    "mcp.skill_names",
    "sessions.confirmation",
    "sessions.security_mode",
    "net.mode",
    "net.unknown",
    "browser.external",
];
/// The view of the host that session boxes get while path control is off. Start-up only: an
/// operator who could set it would show the server user's files to agents.
const WHEN_DISABLED: &str = "sandbox.when_disabled";
/// Signs webhook messages. `GET /settings` shows only that it is set.
pub(crate) const WEBHOOK_SECRET: &str = "approvals.webhook_secret";
const COUNTS: [&str; 22] = [
    ConcurrentExecs::KEY,
    ConcurrentExecsPerUser::KEY,
    QueuedExecs::KEY,
    ExecRetentionDays::KEY,
    AuditRetentionDays::KEY,
    UploadMaxMb::KEY,
    UnpackedMaxMb::KEY,
    SkillEntriesMax::KEY,
    QuotaMb::KEY,
    QuotaFiles::KEY,
    SessionMaxMb::KEY,
    SessionRetentionHours::KEY,
    ApprovalTimeoutSeconds::KEY,
    PoolMax::KEY,
    PoolMin::KEY,
    PoolIdleSeconds::KEY,
    PoolMaxUses::KEY,
    PoolAcquireSeconds::KEY,
    BrowserMax::KEY,
    BrowserIdleSeconds::KEY,
    BrowserMemoryMb::KEY,
    BrowserPids::KEY,
];

/// Lists of names, separated by blanks or commas.
const LISTS: [&str; 7] = [
    "commands.allowed",
    "commands.allowed_filters",
    "commands.allowed_argv",
    "strict.backends",
    "net.allow",
    "egress.allowed_hosts",
    "browser.allowed_hosts",
];

/// Keys that only start-up configuration sets. `PUT /settings` answers 409 for them, and a value that an older version
/// stored is ignored. docs/api.md says for every key why it is here or not.
const START_UP_ONLY: [&str; 12] = [
    "sandbox.workspace_root_win",
    "sandbox.workspace_root_wsl",
    "sandbox.runtime_mode",
    WHEN_DISABLED,
    "sandbox.docker.cli_path",
    "sandbox.docker.context",
    "skills.root",
    WEBHOOK_SECRET,
    "aio.url",
    AIO_KEY,
    "aio.user",
    "aio.agent",
];

/// Every settings key, with dots.
pub fn setting_keys() -> impl Iterator<Item = String> {
    let limits = Field::ALL.into_iter().map(|field| format!("{LIMITS}.{}", field.key()));
    START_UP_ONLY.into_iter().chain(TEXTS).chain(LISTS).chain(COUNTS).map(str::to_owned).chain(limits)
}

/// The environment variable of a settings key: `sandbox.limits.timeout_ms` is `RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS`.
pub fn setting_variable(key: &str) -> String {
    format!("RINGWALL_{}", key.to_ascii_uppercase().replace('.', "_"))
}

/// The source of a key that `PUT /settings` cannot change
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Not set: the built-in value is in force
    Default,
    /// `ringwall.toml`
    File,
    /// A `RINGWALL_*` variable
    Environment,
    /// A flag of `ringwall serve`
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Source::Default => "default",
            Source::File => "file",
            Source::Environment => "environment",
            Source::Flag => "flag",
        })
    }
}

/// The refusal of a change to a key that only start-up configuration sets.
fn set_at_start(key: &str, by: Source) -> Error {
    let message = format!("{key} is set when the server starts (source: {by}) and cannot be changed over HTTP");
    let hint = match by {
        Source::Flag => format!("restart the server with another flag for {key}"),
        Source::File => format!("change {key} in ringwall.toml and restart the server"),
        Source::Environment | Source::Default => format!("restart the server with {}", setting_variable(key)),
    };
    Error::SetAtStart { message, hint }
}

/// The values that start-up configuration sets, with their sources.
#[derive(Clone)]
pub struct PinnedSettings {
    /// An object.
    document: Value,
    sources: BTreeMap<String, Source>,
}

impl Default for PinnedSettings {
    fn default() -> Self {
        Self { document: json!({}), sources: BTreeMap::new() }
    }
}

impl fmt::Debug for PinnedSettings {
    /// Prints no values, because some are secrets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PinnedSettings").field(&self.sources).finish()
    }
}

impl PinnedSettings {
    /// Sets one key, overriding an earlier source. Refuses an unknown key and an invalid value.
    pub fn set(&mut self, key: &str, text: &str, source: Source) -> Result<(), Error> {
        let wrong = |message: String| Error::invalid(format!("{key}: {message}"));
        if text.is_empty() {
            return Err(wrong("the value is empty".to_owned()));
        }
        let value = match serde_json::from_str(text) {
            _ if START_UP_ONLY.contains(&key) || TEXTS.contains(&key) => Value::from(text),
            _ if LISTS.contains(&key) => {
                let parted = text.split([' ', ',']).filter(|name| !name.is_empty());
                parted.collect::<Vec<_>>().into()
            }
            _ if !setting_keys().any(|known| known == key) => return Err(wrong("no such setting".to_owned())),
            Ok(number @ Value::Number(_)) => number,
            Ok(_) | Err(_) => return Err(wrong(format!("{text:?} is not a number"))),
        };
        let mut document = self.document.clone();
        merge(&mut document, &nested(key, value));
        let mut sources = self.sources.clone();
        sources.insert(key.to_owned(), source);
        let pinned = Self { document, sources };
        Settings::read(0, json!({}), &pinned)?;
        *self = pinned;
        Ok(())
    }

    /// True if this key has this value already.
    pub fn is(&self, key: &str, text: &str) -> bool {
        self.document.pointer(&pointer(key)).is_some_and(|value| value == text)
    }

    /// The keys that a flag, a variable or the file set.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }

    /// Every key that `PUT /settings` cannot change, with its source.
    pub(crate) fn sources(&self) -> BTreeMap<String, Source> {
        let unset = START_UP_ONLY.into_iter().map(|key| (key.to_owned(), Source::Default));
        unset.chain(self.sources.clone()).collect()
    }

    pub(crate) fn document(&self) -> Value {
        self.document.clone()
    }

    /// Removes from a change the keys that it cannot change. It may repeat their values in force, so that a client can
    /// send back what `GET /settings` answered; any other value is refused.
    pub(crate) fn remove_unchangeable(&self, patch: &mut Value, in_force: &Value) -> Result<(), Error> {
        for (key, source) in self.sources() {
            let pointer = pointer(&key);
            let Some(asked) = patch.pointer(&pointer) else { continue };
            if in_force.pointer(&pointer) != Some(asked) {
                return Err(set_at_start(&key, source));
            }
            remove(patch, &key);
        }
        Ok(())
    }
}

/// Removes the start-up-only keys from a stored document and returns the names of those that it held. Older versions let
/// an operator store them.
pub(crate) fn remove_start_up_keys(document: &mut Value) -> Vec<String> {
    START_UP_ONLY.into_iter().filter(|key| remove(document, key)).map(str::to_owned).collect()
}

/// The document with only this key.
fn nested(key: &str, value: Value) -> Value {
    key.rsplit('.').fold(value, |inner, name| json!({ name: inner }))
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

/// Removes a key. Returns true if it existed.
fn remove(document: &mut Value, key: &str) -> bool {
    let pointer = pointer(key);
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    match document.pointer_mut(parent) {
        Some(Value::Object(parent)) => parent.remove(name).is_some(),
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_value_is_checked_when_set() {
        let mut pinned = PinnedSettings::default();
        pinned.set("sandbox.limits.cpu_cores", "0.5", Source::Environment).unwrap();
        pinned.set("sandbox.max_queued_execs", "7", Source::Environment).unwrap();
        pinned.set("sandbox.docker.image", "tools:1", Source::Environment).unwrap();
        // A text value stays a text even if it looks like a number.
        pinned.set("sandbox.docker.context", "7", Source::Environment).unwrap();
        pinned.set("commands.allowed", "ls, git cat", Source::Environment).unwrap();
        for (key, text) in [
            ("sandbox.limits.timeout_ms", "300001"),
            ("sandbox.limits.timeout_ms", "null"),
            ("sandbox.limits.timeout_ms", ""),
            ("sandbox.limits.timeout", "1"),
            ("sandbox.max_queued_execs", "\"7\""),
            ("sandbox.max_queued_execs", "many"),
            ("sandbox.runtime_mode", "mac"),
            ("sandbox.docker.cli_path", ""),
            ("aio.url", "ftp://aio.example"),
            ("aio.user", "a/b"),
            ("aio.token", "x"),
            ("commands.allowed", "ls $X"),
            ("sandbox.limits", "{}"),
            ("sandbox", "1"),
        ] {
            let error = pinned.set(key, text, Source::Environment).unwrap_err();
            assert_eq!(error.code(), "INVALID_ARGUMENT", "{key}={text}: {error}");
        }
        let expected = json!({"sandbox": {
            "limits": {"cpu_cores": 0.5}, "max_queued_execs": 7, "docker": {"image": "tools:1", "context": "7"},
        }, "commands": {"allowed": ["ls", "git", "cat"]}});
        assert_eq!(pinned.document(), expected, "a refused value changes nothing");
        assert_eq!(pinned.keys().count(), 5);
    }

    #[test]
    fn change_may_repeat_pinned_value_but_not_differ() {
        let mut pinned = PinnedSettings::default();
        pinned.set("sandbox.max_queued_execs", "7", Source::Environment).unwrap();
        let in_force = json!({"sandbox": {"max_queued_execs": 7}});
        let mut same = json!({"sandbox": {"max_queued_execs": 7, "max_concurrent_execs": 2}});
        pinned.remove_unchangeable(&mut same, &in_force).unwrap();
        assert_eq!(same, json!({"sandbox": {"max_concurrent_execs": 2}}));
        for other in [json!(8), json!(null)] {
            let refused = pinned.remove_unchangeable(&mut json!({"sandbox": {"max_queued_execs": other}}), &in_force);
            assert_eq!(refused.unwrap_err().code(), "CONFLICT");
        }
    }

    #[test]
    fn start_up_only_keys_are_settings_keys() {
        let known: Vec<String> = setting_keys().collect();
        for key in START_UP_ONLY {
            assert!(known.iter().any(|one| one == key), "{key}");
        }
    }

    #[test]
    fn start_up_only_key_in_change_is_refused_with_hint() {
        for key in START_UP_ONLY {
            let mut change = nested(key, "/tmp/x".into());
            let refused = PinnedSettings::default().remove_unchangeable(&mut change, &json!({})).unwrap_err();
            assert_eq!(refused.code(), "CONFLICT", "{key}");
            assert!(refused.hint().unwrap().contains(&setting_variable(key)), "{key}: {:?}", refused.hint());
        }
    }

    #[test]
    fn later_source_overrides_earlier_one() {
        let mut pinned = PinnedSettings::default();
        assert_eq!(pinned.sources()["skills.root"], Source::Default);
        pinned.set("skills.root", "/a", Source::File).unwrap();
        pinned.set("skills.root", "/b", Source::Environment).unwrap();
        assert!(pinned.is("skills.root", "/b"));
        assert_eq!(pinned.sources()["skills.root"], Source::Environment);
    }
}
