//! Settings that were said when the server started, by its environment, its flags or its file: they stand over what is
//! stored, and are changed where they were said.
//!
//! Who reads an environment is a door's business; here a key is its name in the document and a value is text. Every value
//! is checked when it is said, so that a server never starts under a limit that was not understood.

use std::collections::BTreeSet;
use std::fmt;

use policy::{
    ApprovalSeconds, AuditKeptDays, BrowserIdleSeconds, BrowserMax, BrowserMemoryMb, BrowserPids, ConcurrentExecs,
    ConcurrentExecsPerUser, ExecsKeptDays, Field, PoolAcquireSeconds, PoolIdleSeconds, PoolMax, PoolMin, PoolUses,
    QueuedExecs, QuotaFiles, QuotaMb, SessionMaxMb, SessionsKeptHours, SkillEntriesMax, UnpackedMaxMb, UploadMaxMb,
};
use serde_json::{Map, Value};

use crate::aio::AIO_KEY;
use crate::error::Error;
use crate::settings::{Settings, merge};

const LIMITS: &str = "sandbox.limits";
const TEXTS: [&str; 19] = [
    "sandbox.workspace_root_win",
    "sandbox.workspace_root_wsl",
    "sandbox.runtime_mode",
    "sandbox.docker.cli_path",
    "sandbox.docker.context",
    "sandbox.docker.image",
    "skills.root",
    "approvals.webhook_url",
    "mcp.skill_names",
    WEBHOOK_SECRET,
    "aio.url",
    AIO_KEY,
    "aio.user",
    "aio.agent",
    "sessions.confirmation",
    "sessions.security_mode",
    "net.mode",
    "net.unknown",
    "browser.external",
];
/// A value that is not shown, and not stored.
pub(crate) const WEBHOOK_SECRET: &str = "approvals.webhook_secret";
const COUNTS: [&str; 22] = [
    ConcurrentExecs::KEY,
    ConcurrentExecsPerUser::KEY,
    QueuedExecs::KEY,
    ExecsKeptDays::KEY,
    AuditKeptDays::KEY,
    UploadMaxMb::KEY,
    UnpackedMaxMb::KEY,
    SkillEntriesMax::KEY,
    QuotaMb::KEY,
    QuotaFiles::KEY,
    SessionMaxMb::KEY,
    SessionsKeptHours::KEY,
    ApprovalSeconds::KEY,
    PoolMax::KEY,
    PoolMin::KEY,
    PoolIdleSeconds::KEY,
    PoolUses::KEY,
    PoolAcquireSeconds::KEY,
    BrowserMax::KEY,
    BrowserIdleSeconds::KEY,
    BrowserMemoryMb::KEY,
    BrowserPids::KEY,
];

/// Names, parted by blanks or commas.
const LISTS: [&str; 7] = [
    "commands.allowed",
    "commands.allowed_filters",
    "commands.allowed_argv",
    "strict.backends",
    "net.allow",
    "egress.allowed_hosts",
    "browser.allowed_hosts",
];

/// Every key that settings have, with dots.
pub fn setting_keys() -> impl Iterator<Item = String> {
    let limits = Field::ALL.into_iter().map(|field| format!("{LIMITS}.{}", field.key()));
    TEXTS.into_iter().chain(LISTS).chain(COUNTS).map(str::to_owned).chain(limits)
}

#[derive(Clone, Default)]
pub struct Fixed {
    document: Map<String, Value>,
    keys: BTreeSet<String>,
}

impl fmt::Debug for Fixed {
    /// Keys alone: a value may be a secret.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Fixed").field(&self.keys).finish()
    }
}

impl Fixed {
    /// Fixes one setting, if the key is one and the value can be in force.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), Error> {
        let wrong = |message: String| Error::invalid(format!("{key}: {message}"));
        if text.is_empty() {
            return Err(wrong("there is no value".to_owned()));
        }
        let value = match serde_json::from_str(text) {
            _ if TEXTS.contains(&key) => Value::from(text),
            _ if LISTS.contains(&key) => {
                let parted = text.split([' ', ',']).filter(|name| !name.is_empty());
                parted.collect::<Vec<_>>().into()
            }
            _ if !setting_keys().any(|known| known == key) => return Err(wrong("there is no such setting".to_owned())),
            Ok(number @ Value::Number(_)) => number,
            Ok(_) | Err(_) => return Err(wrong(format!("{text:?} is not a number"))),
        };
        let change =
            key.rsplit('.').fold(value, |inner, name| Value::Object(Map::from_iter([(name.to_owned(), inner)])));
        let mut document = self.document();
        merge(&mut document, &change);
        let Value::Object(document) = document else { return Err(wrong("there is no such setting".to_owned())) };
        let mut keys = self.keys.clone();
        keys.insert(key.to_owned());
        let fixed = Self { document, keys };
        Settings::read(0, Value::Object(Map::new()), &fixed)?;
        *self = fixed;
        Ok(())
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(String::as_str)
    }

    pub(crate) fn document(&self) -> Value {
        Value::Object(self.document.clone())
    }

    /// Takes out of a change what it says about fixed keys, which must be what is in force anyway.
    pub(crate) fn spare(&self, patch: &mut Value, in_force: &Value) -> Result<(), Error> {
        for key in &self.keys {
            let pointer = format!("/{}", key.replace('.', "/"));
            let Some(asked) = patch.pointer(&pointer) else { continue };
            if in_force.pointer(&pointer) != Some(asked) {
                return Err(Error::Conflict {
                    message: format!("{key} was fixed when the server started; change it there, and start it again"),
                });
            }
            if let Some((parent, name)) = pointer.rsplit_once('/')
                && let Some(Value::Object(parent)) = patch.pointer_mut(parent)
            {
                parent.remove(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_checked_when_it_is_said() {
        let mut fixed = Fixed::default();
        fixed.set("sandbox.limits.cpu_cores", "0.5").unwrap();
        fixed.set("sandbox.max_queued_execs", "7").unwrap();
        fixed.set("sandbox.docker.image", "tools:1").unwrap();
        // A text stays one, also where it looks like a number.
        fixed.set("sandbox.docker.context", "7").unwrap();
        fixed.set("commands.allowed", "ls, git cat").unwrap();
        for (key, text) in [
            ("sandbox.limits.timeout_ms", "300001"),
            ("sandbox.limits.timeout_ms", "null"),
            ("sandbox.limits.timeout_ms", ""),
            ("sandbox.limits.timeout", "1"),
            ("sandbox.max_queued_execs", "\"7\""),
            ("sandbox.max_queued_execs", "many"),
            ("sandbox.runtime_mode", "mac"),
            ("sandbox.docker.cli_path", ""),
            ("commands.allowed", "ls $X"),
            ("sandbox.limits", "{}"),
            ("sandbox", "1"),
        ] {
            let error = fixed.set(key, text).unwrap_err();
            assert_eq!(error.code(), "INVALID_ARGUMENT", "{key}={text}: {error}");
        }
        let expected = json!({"sandbox": {
            "limits": {"cpu_cores": 0.5}, "max_queued_execs": 7, "docker": {"image": "tools:1", "context": "7"},
        }, "commands": {"allowed": ["ls", "git", "cat"]}});
        assert_eq!(fixed.document(), expected, "what was refused left nothing");
        assert_eq!(fixed.keys().count(), 5);
    }

    #[test]
    fn a_change_may_say_what_is_so_and_nothing_else() {
        let mut fixed = Fixed::default();
        fixed.set("sandbox.max_queued_execs", "7").unwrap();
        let in_force = json!({"sandbox": {"max_queued_execs": 7}});
        let mut same = json!({"sandbox": {"max_queued_execs": 7, "max_concurrent_execs": 2}});
        fixed.spare(&mut same, &in_force).unwrap();
        assert_eq!(same, json!({"sandbox": {"max_concurrent_execs": 2}}));
        for other in [json!(8), json!(null)] {
            let refused = fixed.spare(&mut json!({"sandbox": {"max_queued_execs": other}}), &in_force);
            assert_eq!(refused.unwrap_err().code(), "CONFLICT");
        }
    }
}
