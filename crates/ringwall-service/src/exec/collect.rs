//! Collects the files of an exec after all its processes are dead, and writes its `meta.json`.

use ringwall_executor::docker::{AGENT, PROXY_SOCKET_PATH};
use ringwall_policy::{Access, NetMode};
use ringwall_record::{FinalStatus, Reason, Status, StoredOutput};
use ringwall_workspace::{ExecFiles, Processes};
use serde_json::{Value, json};

use crate::disk::Disk;
use crate::error::{Error, causes};
use crate::exec::files::{OpenTarget, PreparedFiles, list_names};
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::{CreatedFiles, ExecResult};
use crate::exec::spec::{Backend, Target};
use crate::time::milliseconds;

/// The files of code, stored while its outcome is being recorded.
#[derive(Debug)]
pub(crate) struct CodeFiles {
    pub(crate) files: PreparedFiles,
    pub(crate) meta: Value,
}

impl Exec {
    /// Collects the artifacts, on a thread that may block. Too large artifacts and a disk error
    /// fail an exec that has no other reason.
    pub(crate) fn collect_artifacts(&self, files: ExecFiles, result: ExecResult, meta: Value) -> ExecResult {
        match self.collect(files, &result, meta) {
            Ok(None) => result,
            Ok(excess) => ExecResult { status: FinalStatus::Failed, reason: excess, ..result },
            Err(_) if result.reason.is_some() => result,
            Err(_) => {
                let failed = ExecResult::internal("the exec's files could not be collected; see the server's log");
                ExecResult { exit_code: result.exit_code, run: result.run, notes: result.notes, ..failed }
            }
        }
    }

    /// Finds the files that code created and stores its output, on a thread that may block.
    /// Failures are logged and do not change the outcome.
    pub(crate) fn store_code_files(&self, code: CodeFiles, result: &ExecResult) -> CreatedFiles {
        let CodeFiles { files: PreparedFiles { target, files, disks, names_before, .. }, meta } = code;
        let exec_id = &self.intent.exec_id;
        let created_files = match (target, names_before) {
            // The service has reported the files in the notes.
            _ if self.spec.backend == Backend::AioService => result.notes.created_files.clone(),
            (OpenTarget::Session(session), Some(before)) => {
                let created = list_names(|max| session.new_since(&before, max));
                created.unwrap_or_else(|error| {
                    tracing::warn!(%exec_id, %error, "could not list the files that code created");
                    None
                })
            }
            _ => None,
        };
        if let Err(error) = self.collect(files, result, meta) {
            tracing::error!(%exec_id, error = %causes(&error), "could not store the files of an exec");
        }
        disks.iter().for_each(Disk::measure_later);
        created_files
    }

    /// Stores the output, the artifacts and `meta.json`. Returns the reason if the artifacts are
    /// too many for an exec that has no other reason.
    fn collect(&self, files: ExecFiles, result: &ExecResult, mut meta: Value) -> Result<Option<Reason>, Error> {
        let max_bytes = self.limits.artifacts_bytes;
        let processes = match self.spec.image {
            None => Processes::Dead,
            // A Docker daemon that stopped answering may remove the container only when it is back;
            // do not wait for it.
            Some(_) => Processes::Uncertain,
        };
        let collected = files.collect(max_bytes, processes)?;
        if let Some(error) = collected.residue() {
            tracing::warn!(exec_id = %self.intent.exec_id, %error, "could not remove all files that a box left");
        }
        let excess = result.excess(collected.extent(), max_bytes);
        let status = if excess.is_some() { FinalStatus::Failed } else { result.status };
        meta["status"] = json!(Status::from(status));
        meta["exit_code"] = json!(result.exit_code);
        meta["error_reason"] = json!(excess.as_ref().or(result.reason.as_ref()));
        meta["skipped"] = json!(collected.skipped());
        meta["skipped_total"] = json!(collected.skipped_total());
        collected.finish(&meta)?;
        Ok(excess)
    }

    /// The content of `meta.json` that is known before the artifacts are collected.
    /// Environment variables are listed by name only.
    pub(crate) fn meta(&self, result: &ExecResult, host_mounts: Vec<Value>) -> Value {
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
        mounts.extend(host_mounts);
        mounts.extend(self.own_mounts());
        let run = result.run.as_deref();
        let is_truncated = |stored: StoredOutput| stored == StoredOutput::Truncated;
        json!({
            "exec_id": self.intent.exec_id,
            "project_id": self.intent.project_id,
            "backend": self.intent.backend,
            "image": self.intent.image,
            "env_keys": self.intent.env_keys,
            "policy_snapshot": self.intent.policy_snapshot,
            "duration_ms": run.map(|run| milliseconds(run.duration)),
            "stdout_truncated": run.is_some_and(|run| is_truncated(run.stdout)),
            "stderr_truncated": run.is_some_and(|run| is_truncated(run.stderr)),
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
