//! Collects the files of an exec after all its processes are dead, and writes its `meta.json`.

use ringwall_executor::docker::{AGENT, PROXY_SOCKET_PATH};
use ringwall_policy::{Access, NetMode};
use ringwall_record::{Status, StoredOutput};
use ringwall_workspace::{ExecFiles, Processes};
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::error::{Error, causes};
use crate::exec::backend::Backend;
use crate::exec::lifecycle::{Before, Exec, OpenTarget, Ready, Remains, RunSummary, among_names};
use crate::exec::outcome::ExecResult;
use crate::exec::run_notes::Created;
use crate::exec::spec::Target;
use crate::time::milliseconds;

impl Exec {
    /// Collects the artifacts and writes `meta.json`, on a thread that may block. Only too large
    /// artifacts or a disk error can fail the exec.
    pub(crate) fn collect(&self, files: ExecFiles, result: ExecResult, mut meta: Value) -> Result<ExecResult, Error> {
        let bytes_max = self.limits.artifacts_bytes;
        let exec_id = &self.intent.exec_id;
        let processes = match self.spec.image {
            None => Processes::Dead,
            // A Docker daemon that stopped answering may remove the container only when it is back;
            // do not wait for it.
            Some(_) => Processes::Uncertain,
        };
        let collected = files.collect(bytes_max, processes)?;
        if let Some(error) = collected.residue() {
            tracing::warn!(%exec_id, %error, "could not remove all that a box left");
        }
        let result = result.with_extent(collected.extent(), bytes_max);
        meta["status"] = json!(Status::from(result.status));
        meta["exit_code"] = json!(result.exit_code);
        meta["error_reason"] = json!(result.reason);
        meta["skipped"] = json!(collected.skipped());
        meta["skipped_total"] = json!(collected.skipped_total());
        collected.finish(&meta)?;
        Ok(result)
    }

    /// Finds the files that code created and stores its output, on a thread that may block.
    /// Failures are logged and do not change the outcome.
    pub(crate) fn store_artifacts(&self, remains: Remains) {
        let Remains { ready: Ready { target, files, disks, before, .. }, result, meta } = remains;
        let exec_id = &self.intent.exec_id;
        if let (OpenTarget::Session(session), Target::Code(code), Some(before)) = (target, &self.spec.target, before) {
            let created = match before {
                Before::These(before) => among_names(|most| session.new_since(&before, most)),
                Before::TooMany => Ok(None),
            };
            code.run_notes.created(match created {
                Ok(created) => created.map_or(Created::Unknown, Created::These),
                Err(error) => {
                    tracing::warn!(%exec_id, %error, "could not see what code made");
                    Created::Unknown
                }
            });
        }
        if let Err(error) = self.collect(files, result, meta) {
            tracing::error!(%exec_id, error = %causes(&error), "could not write down what an exec was beside its output");
        }
        disks.iter().for_each(Disk::measure_later);
    }

    /// The content of `meta.json` that is known before the artifacts are collected. `of_host` are
    /// the mounted host paths. Environment variables are listed by name only.
    pub(crate) fn meta(&self, ran: &RunSummary, of_host: Vec<Value>) -> Value {
        let mode = |access| match access {
            Access::Empty => "empty",
            Access::ReadOnly => "ro",
            Access::ReadWrite => "rw",
        };
        let mount = |source: String, name: &str, access| json!({ "source": source, "target": format!("/workspace/{name}"), "mode": mode(access) });
        let mut mounts = match &self.spec.target {
            Target::Project { access, .. } => {
                let within = |name: &str| format!("projects/{}/{name}", self.spec.project_id);
                vec![
                    mount(within("inputs"), "inputs", access.inputs),
                    mount(within("work"), "work", access.work),
                    mount(self.intent.artifacts_path.clone(), "artifacts", access.artifacts),
                ]
            }
            Target::Agent { .. } => {
                ["files", "skills"].map(|name| mount(name.to_owned(), name, Access::ReadWrite)).into()
            }
            Target::Session { .. } | Target::Code(_) => {
                let session = self.spec.session().map(ToString::to_string).unwrap_or_default();
                let source = format!("sessions/{session}/work");
                vec![json!({ "source": source, "target": "/workspace", "mode": mode(Access::ReadWrite) })]
            }
        };
        mounts.extend(of_host);
        mounts.extend(self.own_mounts());
        json!({
            "exec_id": self.intent.exec_id,
            "project_id": self.intent.project_id,
            "backend": self.intent.backend,
            "image": self.intent.image,
            "env_keys": self.intent.env_keys,
            "policy_snapshot": self.intent.policy_snapshot,
            "duration_ms": ran.duration.map(milliseconds),
            "stdout_truncated": ran.stdout == StoredOutput::Truncated,
            "stderr_truncated": ran.stderr == StoredOutput::Truncated,
            "docker_mounts": mounts,
        })
    }

    /// Ringwall's own mounts in a container: the agent, which also passes on the proxy socket, and
    /// that socket.
    fn own_mounts(&self) -> Vec<Value> {
        let is_open = self.intent.policy_snapshot["net"]["mode"] == NetMode::Allowlist.key();
        let has_program = is_open || self.spec.backend == Backend::Aio;
        let mount =
            |name: &str, target: &str| json!({ "source": format!("ringwall/{name}"), "target": target, "mode": "ro" });
        match self.spec.image {
            None => Vec::new(),
            Some(_) => [(has_program, "agent", AGENT), (is_open, "way-out", PROXY_SOCKET_PATH)]
                .into_iter()
                .filter(|(is_there, ..)| *is_there)
                .map(|(_, name, target)| mount(name, target))
                .collect(),
        }
    }
}
