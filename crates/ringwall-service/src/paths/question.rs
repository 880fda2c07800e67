//! The question about a command that names paths which are not allowed, and the digest that
//! decides whether it still stands when a person answers.

use std::path::PathBuf;
use std::sync::Arc;

use ringwall_policy::{Ask, HostPath, Layers, NamedPath};
use ringwall_record::{ApprovalKind, Digest, RiskLevel};
use serde_json::json;

use super::reach::{missing_from, requested};
use crate::approvals::{Coverage, Question, StillStands};
use crate::exec::lifecycle::Exec;
use crate::exec::spec::Target;

impl Exec {
    pub(crate) fn path_question(&self, ask: &Ask, coverage: &Coverage) -> Question {
        let mut requested_paths: Vec<HostPath> = Vec::new();
        let mut blocked_paths: Vec<HostPath> = Vec::new();
        for NamedPath { path, real } in &ask.blocked {
            push_new(&mut requested_paths, requested(real));
            push_new(&mut blocked_paths, path.clone());
            push_new(&mut blocked_paths, real.clone());
        }
        let is_sensitive = requested_paths.iter().chain(&blocked_paths).any(|path| path.warning().is_some());
        let missing = ask.blocked.iter().filter_map(|named| Some((named, missing_from(&named.real)?)));
        let patterns = missing.map(|(NamedPath { path, .. }, parent)| {
            format!("{path} does not exist, and allowing it does not create it; to create it, allow {parent}")
        });
        let action = Action { files: coverage.digests(), ..Action::of(self) };
        let digest = action.digest(&self.spec.layers, &ask.blocked).unwrap_or(Digest::ZERO);
        Question {
            kind: ApprovalKind::Path,
            requester: self.requester(),
            code: None,
            requested_paths: requested_paths.iter().map(HostPath::to_string).collect(),
            blocked_paths: blocked_paths.iter().map(HostPath::to_string).collect(),
            risk_level: if is_sensitive { RiskLevel::High } else { RiskLevel::Medium },
            patterns: patterns.collect(),
            files: coverage.recorded(),
            digest,
            still_stands: self.still_stands(action, digest, coverage.clone()),
        }
    }

    /// Returns a check that the same question would be asked with the current settings, path list
    /// and files. Files are compared by their stamps; their content is read again before the start.
    fn still_stands(&self, action: Action, digest: Digest, coverage: Coverage) -> StillStands {
        let Target::Session { named, approved, .. } = &self.spec.target else {
            return Arc::new(|| Box::pin(std::future::ready(false)));
        };
        let (service, user, layers) = (self.service.clone(), self.spec.user_id.clone(), self.spec.layers.clone());
        let parts = Arc::new((named.clone(), approved.clone(), action, layers, coverage));
        Arc::new(move || {
            let (service, user, parts) = (service.clone(), user.clone(), parts.clone());
            Box::pin(async move {
                let (named, approved, action, layers, coverage) = parts.as_ref();
                let layers = Layers { operator: service.settings_now().operator.clone(), ..layers.clone() };
                let control = service.reach(&user, named, approved).await;
                // A path list that cannot be read may have changed.
                control.is_ok_and(|control| action.digest(&layers, &control.blocked()) == Some(digest))
                    && tokio::task::block_in_place(|| coverage.stands())
            })
        })
    }
}

/// The parts of a command that an approval covers, beside the paths and the policy.
#[derive(Debug)]
struct Action {
    words: Vec<String>,
    cwd: PathBuf,
    env_keys: Vec<String>,
    /// Path and digest of each covered file; none for one that did not exist.
    files: Vec<(String, Option<String>)>,
}

impl Action {
    fn of(exec: &Exec) -> Self {
        let (words, cwd) = (exec.spec.words.clone(), exec.spec.cwd.clone());
        Self { words, cwd, env_keys: exec.intent.env_keys.clone(), files: Vec::new() }
    }

    /// `None` if the layers contradict each other, so that there is no policy.
    fn digest(&self, layers: &Layers, blocked: &[NamedPath]) -> Option<Digest> {
        let paths: Vec<_> = blocked.iter().map(|named| (&named.path, &named.real)).collect();
        let action = json!({
            "words": self.words, "cwd": self.cwd.to_string_lossy(), "env_keys": self.env_keys,
            "paths": paths, "files": self.files, "policy": ringwall_policy::merge(layers).ok()?.terms(),
        });
        Some(Digest::of(action.to_string().as_bytes()))
    }
}

fn push_new(paths: &mut Vec<HostPath>, path: HostPath) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

#[cfg(test)]
mod tests {
    use ringwall_policy::{Ceilings, Layer, LayerName, normalise, profile};

    use super::*;

    fn action() -> Action {
        let (words, env_keys) = (["bash", "-c", "cat /srv/a"], ["LANG", "PATH"]);
        Action {
            words: words.map(str::to_owned).to_vec(),
            cwd: "/workspace".into(),
            env_keys: env_keys.map(str::to_owned).to_vec(),
            files: vec![("/workspace/a".to_owned(), Some("00".to_owned()))],
        }
    }

    fn layers() -> Layers {
        Layers {
            system: profile::EXECS,
            ceilings: Ceilings { limits: profile::machine_ceilings(8192, 2, 4096), set_by: LayerName::Machine },
            operator: Layer::new(LayerName::Settings),
            narrowing: Vec::new(),
        }
    }

    fn blocked(path: &str, real: &str) -> [NamedPath; 1] {
        let read = |text| normalise(text, "/", None).unwrap();
        [NamedPath { path: read(path), real: read(real) }]
    }

    #[test]
    fn digest_covers_command_directory_variables_paths_files_and_policy() {
        let asked = blocked("/srv/a", "/srv/a");
        let mut digests = vec![action().digest(&layers(), &asked).unwrap()];
        assert_eq!(action().digest(&layers(), &asked), Some(digests[0]), "the same is the same");
        let mut also = |what: &str, digest: Option<Digest>| {
            let digest = digest.unwrap();
            assert!(!digests.contains(&digest), "an answer would stand with another {what}");
            digests.push(digest);
        };
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        for other in [
            &["bash", "-c", "cat /srv/a "][..],
            &["bash", "-c", "cat", "/srv/a"],
            &["bash", "-c"],
            &["sh", "-c", "cat /srv/a"],
        ] {
            also("command", Action { words: words(other), ..action() }.digest(&layers(), &asked));
        }
        also("directory", Action { cwd: "/tmp".into(), ..action() }.digest(&layers(), &asked));
        for keys in [&["LANG", "LD_PRELOAD"][..], &["LANG"], &["LANG", "LD_PRELOAD", "PATH"], &["LANG,PATH"]] {
            also("variable", Action { env_keys: words(keys), ..action() }.digest(&layers(), &asked));
        }
        for paths in [&blocked("/srv/b", "/srv/b")[..], &blocked("/srv/a", "/srv/b"), &[]] {
            also("path", action().digest(&layers(), paths));
        }
        for (path, digest) in [("/workspace/a", Some("01")), ("/workspace/a", None), ("/workspace/b", Some("00"))] {
            let files = vec![(path.to_owned(), digest.map(str::to_owned))];
            also("file", Action { files, ..action() }.digest(&layers(), &asked));
        }
        let mut tighter = layers();
        tighter.operator.limits.insert(ringwall_policy::Field::TimeoutMs, 12_345);
        also("policy", action().digest(&tighter, &asked));
    }

    /// Settings that repeat the values in force change only the layer of each.
    #[test]
    fn digest_ignores_which_layer_set_a_value() {
        let asked = blocked("/srv/a", "/srv/a");
        let mut stored = layers();
        for field in ringwall_policy::Field::ALL {
            stored.operator.limits.insert(field, profile::EXECS.get(field));
        }
        assert_ne!(
            ringwall_policy::merge(&stored).unwrap().version(),
            ringwall_policy::merge(&layers()).unwrap().version()
        );
        assert_eq!(action().digest(&stored, &asked), action().digest(&layers(), &asked));
    }
}
