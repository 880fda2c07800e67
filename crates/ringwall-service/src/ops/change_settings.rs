//! Shows and changes the settings while the server runs. A change is merged into the stored document, saved and applied.

use std::sync::Arc;

use ringwall_record::Saved;
use serde_json::{Value, json};

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;
use crate::settings::{PinnedSettings, Settings, SettingsView, SkillNames, Webhook, merge};
use crate::time::now;

impl Service {
    /// The receiver of approval messages, if configured.
    pub fn webhook(&self) -> Option<Webhook> {
        self.settings_now().approvals.webhook()
    }

    pub fn skill_names(&self) -> SkillNames {
        self.settings_now().mcp.skill_names
    }

    pub async fn settings(&self, by: &Principal) -> Result<SettingsView, Error> {
        by.require_operator("see the settings")?;
        SettingsView::new(&self.settings_now(), &self.inner.pinned)
    }

    /// Merges the patch into the settings, saves and applies them. Returns all settings.
    pub async fn change_settings(&self, by: &Principal, patch: Value) -> Result<SettingsView, Error> {
        by.require_operator("change the settings")?;
        let pinned = &self.inner.pinned;
        loop {
            // Another process may have saved meanwhile, so the change is merged into the stored document.
            let current = Settings::load(&self.inner.store, pinned).await?;
            // The unchanged answer of GET is not stored: it holds a default for each limit, and the routes have
            // different defaults.
            let shown = SettingsView::new(&current, pinned)?;
            if patch == json!(shown) {
                return Ok(shown);
            }
            let (document, version) = change(&current, &patch, pinned)?;
            let mut changed = Settings::read(version, document, pinned)?;
            let saved = self.inner.store.save_settings(&changed.document, version, now(), by.caller()).await?;
            match saved {
                Saved::Conflict { .. } => {}
                Saved::Recorded { version } => {
                    changed.version = version;
                    let applied = self.apply(changed);
                    // The rules of sessions may have changed.
                    self.review_approvals();
                    return SettingsView::new(&applied, pinned);
                }
            }
        }
    }

    /// Applies the settings unless newer ones are in force: two changes may get here in any order.
    fn apply(&self, changed: Settings) -> Arc<Settings> {
        let default = self.default_spec(&changed);
        let mut settings = self.inner.settings.write();
        if changed.version > settings.version {
            *settings = Arc::new(changed);
            self.inner.exec_queue.set_limits(settings.as_ref().into());
            self.inner.boxes.set_bounds(settings.pool.bounds());
            self.inner.boxes.keep(default);
        }
        let applied = settings.clone();
        drop(settings);
        // Reads the new settings, so the lock must be free.
        self.inner.browsers.reconsider();
        applied
    }
}

/// The stored document with a change merged in, and the version that it changes. It must be valid without the values set
/// at start-up too, because the next start may have none.
fn change(current: &Settings, patch: &Value, pinned: &PinnedSettings) -> Result<(Value, i64), Error> {
    let mut patch = patch.clone();
    let Value::Object(members) = &mut patch else {
        return Err(Error::invalid("settings must be an object"));
    };
    let in_force = json!(SettingsView::new(current, pinned)?);
    for name in ["fixed", "sources", "ignored"] {
        if members.remove(name).is_some_and(|asked| asked != in_force[name]) {
            return Err(Error::invalid(format!("{name}: read-only; leave it out, or send what GET /settings answers")));
        }
    }
    pinned.remove_unchangeable(&mut patch, &in_force)?;
    let mut document = current.document.clone();
    merge(&mut document, &patch);
    let alone = Settings::read(current.version, document, &PinnedSettings::default())?;
    Ok((alone.document, alone.version))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::settings::{HIDDEN, Source, WEBHOOK_SECRET, setting_keys};

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
    fn shown_settings_sent_back_change_nothing() {
        let mut pinned = PinnedSettings::default();
        pinned.set("sandbox.limits.memory_mb", "64", Source::Environment).unwrap();
        let stored = json!({"sandbox": {"limits": {"timeout_ms": 5000, "memory_mb": 128}}});
        let settings = Settings::read(1, stored, &pinned).unwrap();
        let shown = json!(SettingsView::new(&settings, &pinned).unwrap());
        assert_eq!(shown["sandbox"]["limits"]["timeout_ms"], 5000);
        assert_eq!(shown["sandbox"]["limits"]["memory_mb"], 64, "a pinned value overrides the stored one");
        assert_eq!(shown["fixed"], json!(["sandbox.limits.memory_mb"]));
        let (document, version) = change(&settings, &shown, &pinned).unwrap();
        assert_eq!(document["sandbox"]["limits"]["memory_mb"], 128, "a pinned value is not stored");
        let again = Settings::read(version, document, &pinned).unwrap();
        assert_eq!(json!(SettingsView::new(&again, &pinned).unwrap()), shown);
    }

    #[test]
    fn stored_start_up_keys_are_ignored() {
        let stored = json!({
            "sandbox": {"docker": {"cli_path": "/box/docker", "context": "c", "image": "tools:1"}, "runtime_mode": "mac"},
            "skills": {"root": "/box/skills", "entries_max": 7},
            "approvals": {"webhook_secret": "hunter2"},
        });
        let settings = Settings::read(1, stored, &PinnedSettings::default()).unwrap();
        let expected = [
            "sandbox.runtime_mode",
            "sandbox.docker.cli_path",
            "sandbox.docker.context",
            "skills.root",
            "approvals.webhook_secret",
        ];
        assert_eq!(settings.ignored, expected);
        assert_eq!(
            (&settings.sandbox.docker.cli_path, &settings.skills.root, &settings.sandbox.runtime_mode),
            (&None, &None, &None)
        );
        let kept = json!({"sandbox": {"docker": {"image": "tools:1"}}, "skills": {"entries_max": 7}, "approvals": {}});
        assert_eq!(settings.document, kept);
    }

    #[test]
    fn ignored_keys_are_shown_until_the_next_change() {
        let stored = json!({"skills": {"root": "/box/skills", "entries_max": 7}});
        let settings = Settings::read(1, stored, &PinnedSettings::default()).unwrap();
        let shown = json!(SettingsView::new(&settings, &PinnedSettings::default()).unwrap());
        assert_eq!(shown["ignored"], json!(["skills.root"]));
        assert_eq!((&shown["skills"]["root"], &shown["sources"]["skills.root"]), (&json!(null), &json!("default")));
        let (document, version) = change(&settings, &shown, &PinnedSettings::default()).unwrap();
        assert!(document["skills"].get("root").is_none(), "{document}");
        assert!(Settings::read(version, document, &PinnedSettings::default()).unwrap().ignored.is_empty());
    }

    #[test]
    fn pinned_setting_cannot_be_changed() {
        let mut pinned = PinnedSettings::default();
        pinned.set("sandbox.limits.memory_mb", "64", Source::Environment).unwrap();
        let settings = Settings::read(1, json!({}), &pinned).unwrap();
        let asked = json!({"sandbox": {"limits": {"memory_mb": 32}}});
        assert_eq!(change(&settings, &asked, &pinned).unwrap_err().code(), "CONFLICT");
        assert_eq!(change(&settings, &json!({"fixed": []}), &pinned).unwrap_err().code(), "INVALID_ARGUMENT");
    }

    #[test]
    fn secret_setting_is_neither_shown_nor_stored() {
        let mut pinned = PinnedSettings::default();
        pinned.set("approvals.webhook_url", "https://hooks.example/x", Source::Environment).unwrap();
        pinned.set(WEBHOOK_SECRET, "hunter2", Source::Environment).unwrap();
        let settings = Settings::read(1, json!({}), &pinned).unwrap();
        let shown = json!(SettingsView::new(&settings, &pinned).unwrap());
        assert_eq!(shown["approvals"]["webhook_secret"], HIDDEN);
        let (document, _) = change(&settings, &shown, &pinned).unwrap();
        for told in [shown.to_string(), document.to_string(), format!("{settings:?} {pinned:?}")] {
            assert!(!told.contains("hunter2"), "{told}");
        }
        let asked = json!({"approvals": {"webhook_secret": "hunter3"}});
        let free = Settings::read(1, json!({}), &PinnedSettings::default()).unwrap();
        let refused = change(&free, &asked, &PinnedSettings::default()).unwrap_err();
        assert!(refused.code() == "CONFLICT" && !refused.to_string().contains("hunter3"), "{refused}");
    }

    #[test]
    fn aio_service_needs_all_settings_at_startup() {
        let mut pinned = PinnedSettings::default();
        let said =
            [("aio.url", "http://127.0.0.1:8080"), ("aio.key", "hunter2"), ("aio.user", "u"), ("aio.agent", "a")];
        for (key, value) in said {
            let so_far = Settings::read(1, json!({}), &pinned).unwrap();
            assert_eq!(so_far.aio.assigned().is_err(), pinned.keys().count() > 0, "{key}");
            pinned.set(key, value, Source::Environment).unwrap();
        }
        let settings = Settings::read(1, json!({}), &pinned).unwrap();
        let assigned = settings.aio.assigned().unwrap().unwrap();
        assert_eq!((assigned.user.as_str(), assigned.agent.as_str()), ("u", "a"));
        let shown = json!(SettingsView::new(&settings, &pinned).unwrap());
        let (document, _) = change(&settings, &shown, &pinned).unwrap();
        for told in [shown.to_string(), document.to_string(), format!("{settings:?} {pinned:?} {assigned:?}")] {
            assert!(!told.contains("hunter2"), "{told}");
        }
        let free = Settings::read(1, json!({}), &PinnedSettings::default()).unwrap();
        for asked in [json!({"aio": {"url": "http://elsewhere"}}), json!({"aio": 1})] {
            assert!(change(&free, &asked, &PinnedSettings::default()).is_err(), "{asked}");
        }
        let mut wrong = PinnedSettings::default();
        assert!(wrong.set("aio.url", "file:///etc/passwd", Source::Environment).is_err());
    }

    #[test]
    fn every_shown_key_can_be_pinned() {
        let settings = Settings::read(0, json!({}), &PinnedSettings::default()).unwrap();
        let mut shown = BTreeSet::new();
        leaves(&json!(SettingsView::new(&settings, &PinnedSettings::default()).unwrap()), "", &mut shown);
        shown.retain(|key| key != "fixed" && key != "ignored" && !key.starts_with("sources."));
        assert_eq!(shown, setting_keys().collect());
    }
}
