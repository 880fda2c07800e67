//! What an operator sets while the server runs: one document, kept in the record, changed by merging into it.
//!
//! A document is read strictly before it is saved, so that what is stored can always be served. A `null` takes a key back to
//! its default. The roots of workspaces and skills, and docker's client, count from the next start on.

use std::sync::{Arc, PoisonError};

use executor::docker::paths::{self, Platform, Roots, RuntimeMode, WorkspaceRoot};
use policy::{ConcurrentExecs, ConcurrentExecsPerUser, DockerImage, Layer, LayerName, QueuedExecs, check_settings};
use record::{Saved, Store};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::principal::Principal;
use crate::queue::Bounds;
use crate::service::{Service, now};

/// Stands for the usual root where that is not known.
const UNKNOWN: &str = "/workspaces";

/// The settings in force.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    version: i64,
    document: Value,
    pub(crate) operator: Layer,
    pub(crate) sandbox: Sandbox,
    pub(crate) skills_root: Option<String>,
    pub(crate) image: DockerImage,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Document {
    sandbox: Sandbox,
    skills: SkillsPart,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sandbox {
    pub(crate) workspace_root_win: Option<String>,
    pub(crate) workspace_root_wsl: Option<String>,
    pub(crate) runtime_mode: Option<String>,
    pub(crate) docker: DockerPart,
    limits: Option<Layer>,
    max_concurrent_execs: ConcurrentExecs,
    max_concurrent_execs_per_user: ConcurrentExecsPerUser,
    max_queued_execs: QueuedExecs,
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
struct SkillsPart {
    root: Option<String>,
}

impl Settings {
    pub(crate) async fn load(store: &Store) -> Result<Self, Error> {
        match store.settings().await? {
            None => Self::read(0, Value::Object(Map::new())),
            Some(saved) => Self::read(saved.version, saved.document),
        }
    }

    fn read(version: i64, document: Value) -> Result<Self, Error> {
        let read = Document::deserialize(&document).map_err(|error| Error::invalid(format!("settings: {error}")))?;
        let limits = read.sandbox.limits.clone().unwrap_or(Layer::new(LayerName::Settings));
        let operator = check_settings(limits).map_err(|denial| Error::invalid(denial.message))?;
        // A root that no server could start with is not saved.
        read.sandbox.root(UNKNOWN).map_err(|error| Error::invalid(error.to_string()))?;
        let image = read.sandbox.docker.image.as_deref().unwrap_or(executor::docker::DEFAULT_IMAGE).parse()?;
        Ok(Self { version, document, operator, skills_root: read.skills.root, sandbox: read.sandbox, image })
    }

    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            running: self.sandbox.max_concurrent_execs.get(),
            running_per_user: self.sandbox.max_concurrent_execs_per_user.get(),
            waiting: self.sandbox.max_queued_execs.get(),
        }
    }

    /// Every key with its value in force; handed back, it changes nothing.
    fn show(&self) -> Value {
        let layers = crate::order::layers(self.operator.clone(), vec![]);
        let limits = policy::merge(&layers).map(|effective| json!(effective.limits)).unwrap_or_default();
        let sandbox = &self.sandbox;
        json!({
            "sandbox": {
                "workspace_root_win": sandbox.workspace_root_win,
                "workspace_root_wsl": sandbox.workspace_root_wsl,
                "runtime_mode": sandbox.mode(),
                "docker": {
                    "cli_path": sandbox.docker.cli_path,
                    "context": sandbox.docker.context,
                    "image": self.image.as_str(),
                },
                "limits": limits,
                "max_concurrent_execs": sandbox.max_concurrent_execs,
                "max_concurrent_execs_per_user": sandbox.max_concurrent_execs_per_user,
                "max_queued_execs": sandbox.max_queued_execs,
            },
            "skills": { "root": self.skills_root },
        })
    }
}

impl Sandbox {
    /// The root of all workspaces; the usual one where none is set.
    pub(crate) fn root(&self, usual: &str) -> Result<WorkspaceRoot, executor::Error> {
        let roots = Roots {
            windows: self.workspace_root_win.as_deref(),
            wsl: self.workspace_root_wsl.as_deref(),
            usual: Some(usual),
        };
        paths::workspace_root(self.mode().parse::<RuntimeMode>()?, here(), roots, paths::by_rule)
    }

    fn mode(&self) -> &str {
        self.runtime_mode.as_deref().unwrap_or("auto")
    }
}

/// What this machine is.
pub(crate) fn here() -> Platform {
    let release = rustix::system::uname().release().to_string_lossy().to_lowercase();
    if release.contains("microsoft") { Platform::Wsl } else { Platform::Linux }
}

impl Service {
    pub async fn settings(&self, by: &Principal) -> Result<Value, Error> {
        by.require_operator("see the settings")?;
        Ok(self.settings_now().show())
    }

    /// Merges into what is set, saves, and applies. Gives all settings as they then are.
    pub async fn change_settings(&self, by: &Principal, patch: Value) -> Result<Value, Error> {
        by.require_operator("change the settings")?;
        if !patch.is_object() {
            return Err(Error::invalid("settings must be an object"));
        }
        loop {
            // Somebody may have saved elsewhere: what is merged into is what is stored.
            let current = Settings::load(&self.inner.store).await?;
            let mut document = current.document;
            merge(&mut document, &patch);
            let mut changed = Settings::read(current.version, document)?;
            let saved = self.inner.store.save_settings(&changed.document, current.version, now(), by.caller()).await?;
            match saved {
                Saved::Conflict { .. } => {}
                Saved::Recorded { version } => {
                    changed.version = version;
                    return Ok(self.apply(changed).show());
                }
            }
        }
    }

    /// The newest version stays, in whatever order two changes get here.
    fn apply(&self, changed: Settings) -> Arc<Settings> {
        let mut settings = self.inner.settings.write().unwrap_or_else(PoisonError::into_inner);
        if changed.version > settings.version {
            *settings = Arc::new(changed);
            self.inner.turns.set_bounds(settings.bounds());
        }
        settings.clone()
    }
}

fn merge(document: &mut Value, patch: &Value) {
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
    use super::*;

    #[test]
    fn what_is_shown_changes_nothing_when_it_is_handed_back() {
        let settings = Settings::read(1, json!({"sandbox": {"limits": {"timeout_ms": 5000}}})).unwrap();
        let mut document = settings.document.clone();
        merge(&mut document, &settings.show());
        assert_eq!(Settings::read(1, document).unwrap().show(), settings.show());
        assert_eq!(settings.show()["sandbox"]["limits"]["timeout_ms"], 5000);
    }

    #[test]
    fn null_takes_back_and_objects_merge() {
        let mut document = json!({"a": {"b": 1, "c": 2}});
        merge(&mut document, &json!({"a": {"b": null, "d": 3}}));
        assert_eq!(document, json!({"a": {"c": 2, "d": 3}}));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for wrong in [
            json!({"sandbx": {}}),
            json!({"sandbox": {"limits": {"timeout": 1}}}),
            json!({"sandbox": {"limits": {"timeout_ms": 300_001}}}),
            json!({"sandbox": {"max_concurrent_execs": 17}}),
            json!({"sandbox": {"max_concurrent_execs": 0}}),
            json!({"sandbox": {"runtime_mode": "mac"}}),
            json!({"sandbox": {"docker": {"image": "-v"}}}),
            json!({"sandbox": 1}),
        ] {
            assert!(matches!(Settings::read(0, wrong), Err(Error::InvalidArgument { .. })));
        }
    }
}
