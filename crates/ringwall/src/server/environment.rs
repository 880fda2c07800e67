//! Reads the environment variables of a server that start with `RINGWALL_`.
//!
//! Every setting has a variable: `sandbox.limits.timeout_ms` is `RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS`.
//! An unknown variable is an error, because a misspelt limit would not be in force. The error suggests
//! the most similar known name.

use std::collections::BTreeMap;

use ringwall_service::{PinnedSettings, Source, setting_keys, setting_variable};

use crate::message::Message;

const PREFIX: &str = "RINGWALL_";

/// Known variables that are not settings. The Makefile exports `RINGWALL_BIN` for the tests and
/// benchmarks, and `make run` passes it on to the server.
const OTHER_VARIABLES: &[&str] = &[
    "RINGWALL_ALLOWED_HOSTS",
    "RINGWALL_CONFIG",
    "RINGWALL_DATA",
    "RINGWALL_DATABASE_URL",
    "RINGWALL_LISTEN",
    "RINGWALL_LOG",
    "RINGWALL_MAX_BODY_BYTES",
    "RINGWALL_MAX_CONNECTIONS",
    "RINGWALL_TOKEN",
    "RINGWALL_URL",
    "RINGWALL_BIN",
];

/// Kubernetes sets these variables in every pod of a namespace that has a service called `ringwall`.
const KUBERNETES_PREFIXES: &[&str] = &["RINGWALL_SERVICE_HOST", "RINGWALL_SERVICE_PORT", "RINGWALL_PORT"];

/// Minimum similarity, from 0 to 1, of a name that is suggested.
const MIN_SIMILARITY: f64 = 0.8;

/// The `RINGWALL_*` variables; all of them are known.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    pub(crate) fn read() -> Result<Self, Message> {
        let ours = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let mut variables = BTreeMap::new();
        for (name, value) in ours.filter(|(name, _)| name.starts_with(PREFIX)) {
            check(&name)?;
            let value = value.into_string().map_err(|_| Message::new(format!("the value of {name} is not UTF-8")))?;
            variables.insert(name, value);
        }
        Ok(Self { variables })
    }

    /// Pins every setting whose variable is set.
    pub(crate) fn pin(&self, pinned: &mut PinnedSettings) -> Result<(), Message> {
        for key in setting_keys() {
            let name = setting_variable(&key);
            if let Some(text) = self.variables.get(&name) {
                pinned
                    .set(&key, text, Source::Environment)
                    .map_err(|error| Message::new(format!("{name}: {error}")))?;
            }
        }
        Ok(())
    }
}

fn check(name: &str) -> Result<(), Message> {
    let is_within =
        |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    if OTHER_VARIABLES.contains(&name) || KUBERNETES_PREFIXES.iter().any(|prefix| is_within(prefix)) {
        return Ok(());
    }
    let names = || {
        OTHER_VARIABLES.iter().map(|other| (*other).to_owned()).chain(setting_keys().map(|key| setting_variable(&key)))
    };
    if names().any(|known| known == name) {
        return Ok(());
    }
    let nearest = names().map(|known| (strsim::normalized_damerau_levenshtein(&known, name), known));
    let nearest =
        nearest.filter(|(likeness, _)| *likeness >= MIN_SIMILARITY).max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = match nearest {
        Some((_, known)) => format!("did you mean {known}?"),
        None => "unset it; docs/api.md lists the known variables".to_owned(),
    };
    Err(Message::new(format!("unknown environment variable {name}")).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str, value: &str) -> Environment {
        Environment { variables: [(name.to_owned(), value.to_owned())].into() }
    }

    #[test]
    fn every_setting_has_a_variable() {
        for (name, value, key) in [
            ("RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS", "5000", "sandbox.limits.timeout_ms"),
            ("RINGWALL_SANDBOX_MAX_CONCURRENT_EXECS", "2", "sandbox.max_concurrent_execs"),
            ("RINGWALL_SANDBOX_RUNTIME_MODE", "linux", "sandbox.runtime_mode"),
            ("RINGWALL_SKILLS_ROOT", "/s", "skills.root"),
        ] {
            check(name).unwrap();
            let mut pinned = PinnedSettings::default();
            environment(name, value).pin(&mut pinned).unwrap();
            assert_eq!(pinned.keys().collect::<Vec<_>>(), [key]);
        }
        let mut pinned = PinnedSettings::default();
        let wrong = environment("RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS", "5s").pin(&mut pinned).unwrap_err();
        assert!(format!("{wrong:?}").contains("RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS"), "{wrong:?}");
    }

    #[test]
    fn misspelt_variable_is_refused_with_the_similar_name() {
        let hint = |name: &str| format!("{:?}", check(name).unwrap_err());
        assert!(hint("RINGWALL_SANDBOX_LIMIT_TIMEOUT_MS").contains("RINGWALL_SANDBOX_LIMITS_TIMEOUT_MS?"));
        assert!(hint("RINGWALL_LISTNE").contains("RINGWALL_LISTEN?"));
        assert!(hint("RINGWALL_ENTIRELY_DIFFERENT").contains("unset it"));
        assert!(hint("RINGWALL_PORTS").contains("unknown environment variable"));
    }

    #[test]
    fn kubernetes_service_variables_are_accepted() {
        for name in
            ["RINGWALL_PORT", "RINGWALL_PORT_8003_TCP_ADDR", "RINGWALL_SERVICE_HOST", "RINGWALL_SERVICE_PORT_HTTP"]
        {
            check(name).unwrap();
        }
    }
}
