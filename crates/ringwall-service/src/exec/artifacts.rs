//! Reads the artifacts and the output of an exec, also while it runs.

use ringwall_ids::{ExecId, ProjectId};
use ringwall_record::{ExecSummary, Reason, Status, StoredOutput};
use ringwall_workspace::{ArtifactFile, OutputFile, Project, RelativePath, Stream};
use serde::Serialize;
use utoipa::ToSchema;

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::exec::registry::RunningExec;
use crate::exec::view::ExecView;
use crate::service::Service;

/// Bytes of each stream in an observation, sized for a model's context.
const OBSERVED: usize = 64 * 1024;
/// Bytes of each stream in the answer to a caller that waits for the exec.
pub(crate) const SHOWN: u64 = 10 * 1024 * 1024;
/// Reading this many bytes takes less time than handing the read to another thread.
const LITTLE: u64 = 4 * 1024;

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Artifacts {
    pub exec_id: ExecId,
    pub artifacts_dir: String,
    pub files: Vec<ArtifactFile>,
}

/// A part of the output of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPart {
    pub bytes: Vec<u8>,
    /// Stored bytes in total.
    pub total: u64,
    /// The command wrote more than was stored.
    pub truncated: bool,
    /// The exec has ended, so no more output follows.
    pub ended: bool,
}

impl OutputPart {
    /// Replaces invalid UTF-8 with U+FFFD. If the part was cut, drops an incomplete character at
    /// its end.
    pub fn into_text(self) -> String {
        let is_cut = self.truncated || self.total > self.bytes.len() as u64;
        let mut bytes = self.bytes;
        if is_cut && let Some(last) = bytes.utf8_chunks().last() {
            let rest = last.invalid();
            let is_begun = std::str::from_utf8(rest).is_err_and(|error| error.error_len().is_none());
            let cut = if is_begun { rest.len() } else { 0 };
            bytes.truncate(bytes.len() - cut);
        }
        match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

/// Everything at once, for a model to read.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Observation {
    pub exec_id: ExecId,
    pub status: Status,
    pub exit_code: Option<i32>,
    pub error_reason: Option<Reason>,
    pub stdout: String,
    pub stderr: String,
    /// Whether there is more than is shown here.
    pub stdout_truncated: bool,
    pub stderr_truncated: bool,
    pub artifacts: Vec<ArtifactFile>,
}

impl Service {
    pub async fn artifacts(&self, by: &Principal, exec_id: &ExecId) -> Result<Artifacts, Error> {
        let exec = self.recorded(by, exec_id).await?;
        let files =
            self.with_project(&exec.summary, |project, exec| project.artifacts(exec)).await?.unwrap_or_default();
        Ok(Artifacts { exec_id: exec_id.clone(), artifacts_dir: exec.summary.artifacts_path, files })
    }

    /// Opens one artifact. Returns the file and its size.
    pub async fn artifact(&self, by: &Principal, exec_id: &ExecId, path: &str) -> Result<(std::fs::File, u64), Error> {
        let path: RelativePath = path.parse()?;
        let exec = self.recorded(by, exec_id).await?;
        let missing = Error::NotFound { what: format!("artifact {path}") };
        let found = self.with_project(&exec.summary, move |project, exec| project.open_artifact(exec, &path)).await?;
        let artifact = found.ok_or(missing)?;
        Ok((artifact.file, artifact.size))
    }

    /// At most `limit` bytes of a stream, starting at `offset`.
    pub async fn output(
        &self,
        by: &Principal,
        exec_id: &ExecId,
        stream: Stream,
        offset: u64,
        limit: u64,
    ) -> Result<OutputPart, Error> {
        // Before the record, so that an exec that ends in between still reports its cut output.
        let running = self.find_running(by, exec_id);
        let exec = self.recorded(by, exec_id).await?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let kept = match stream {
            Stream::Stdout => exec.stdout,
            Stream::Stderr => exec.stderr,
        };
        let truncated = kept == StoredOutput::Truncated || running.is_some_and(|running| running.is_truncated(stream));
        let ended = exec.summary.status.is_ended();
        let read = move |project: &Project, exec: &ExecId| project.read_output(exec, stream, offset, limit);
        let part = self.with_project(&exec.summary, read).await?;
        let (bytes, total) = part.map_or((Vec::new(), 0), |part| (part.bytes, part.total));
        Ok(OutputPart { bytes, total, truncated, ended })
    }

    /// Both streams of an ended exec, up to `limit` bytes each. The caller has the view already, so
    /// access is not checked again.
    pub async fn printed(&self, view: &ExecView, limit: u64) -> Result<[OutputPart; 2], Error> {
        self.printed_by(view, None, limit).await
    }

    /// Like [`Service::printed`], and uses the files of `running` if they are still open.
    pub(crate) async fn printed_by(
        &self,
        view: &ExecView,
        running: Option<&RunningExec>,
        limit: u64,
    ) -> Result<[OutputPart; 2], Error> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let open = running.and_then(|running| Some((running.output(Stream::Stdout)?, running.output(Stream::Stderr)?)));
        if let Some((stdout, stderr)) = open {
            let failed = |error: std::io::Error| Error::runtime("read what was printed", &error);
            let part = |file: &OutputFile, truncated| -> Result<OutputPart, Error> {
                let bytes = file.read(0, limit).map_err(failed)?;
                Ok(OutputPart { bytes, total: file.length(), truncated, ended: true })
            };
            let both = || Ok([part(stdout, view.stdout_truncated)?, part(stderr, view.stderr_truncated)?]);
            let is_little = stdout.length() + stderr.length() <= LITTLE;
            return if is_little { both() } else { blocking::in_place(both).await };
        }
        let read = move |project: &Project, exec: &ExecId| {
            let part = |stream| project.read_output(exec, stream, 0, limit);
            Ok([part(Stream::Stdout)?, part(Stream::Stderr)?])
        };
        let parts = self.with_project(&view.summary, read).await?;
        let parts = parts.map_or_else(Default::default, |parts| parts.map(|part| (part.bytes, part.total)));
        let [stdout, stderr] = parts;
        let ended = view.summary.status.is_ended();
        let part = |(bytes, total), truncated| OutputPart { bytes, total, truncated, ended };
        Ok([part(stdout, view.stdout_truncated), part(stderr, view.stderr_truncated)])
    }

    pub async fn observation(&self, by: &Principal, exec_id: &ExecId) -> Result<Observation, Error> {
        // Before the record, so that an exec that ends in between still reports its cut output.
        let running = self.find_running(by, exec_id);
        let view = self.exec(by, exec_id).await?;
        let read = |project: &Project, exec: &ExecId| {
            let part = |stream| project.read_output(exec, stream, 0, OBSERVED);
            Ok((part(Stream::Stdout)?, part(Stream::Stderr)?, project.artifacts(exec)?))
        };
        let (stdout, stderr, artifacts) = self.with_project(&view.summary, read).await?.unwrap_or_default();
        let is_cut = |stream, part: &ringwall_workspace::OutputPart| {
            let is_longer = running.as_ref().is_some_and(|running| running.is_truncated(stream));
            is_longer || part.total > part.bytes.len() as u64
        };
        let text = |part: &ringwall_workspace::OutputPart| String::from_utf8_lossy(&part.bytes).into_owned();
        Ok(Observation {
            exec_id: exec_id.clone(),
            status: view.summary.status,
            exit_code: view.summary.exit_code,
            error_reason: view.error_reason,
            stdout: text(&stdout),
            stderr: text(&stderr),
            stdout_truncated: view.stdout_truncated || is_cut(Stream::Stdout, &stdout),
            stderr_truncated: view.stderr_truncated || is_cut(Stream::Stderr, &stderr),
            artifacts,
        })
    }

    /// `None` if the exec has no files, because it has not started or never did.
    pub(crate) async fn with_project<T: Send + 'static>(
        &self,
        summary: &ExecSummary,
        read: impl FnOnce(&Project, &ExecId) -> Result<T, ringwall_workspace::Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let owner = self.owner_of(&summary.user_id, &summary.agent_id).await?;
        let workspaces = self.inner.workspaces.clone();
        let project: ProjectId = summary.project_id.parse()?;
        blocking::in_place(|| {
            let workspace = workspaces.workspace(&summary.user_id, &summary.agent_id, owner)?;
            match workspace.find_project(&project).and_then(|project| read(&project, &summary.exec_id)) {
                Err(ringwall_workspace::Error::ProjectMissing(_) | ringwall_workspace::Error::ExecMissing(_)) => {
                    Ok(None)
                }
                read => Ok(Some(read?)),
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_cut_between_characters() {
        let part = |bytes: &[u8], total: u64, truncated| {
            OutputPart { bytes: bytes.to_vec(), total, truncated, ended: true }.into_text()
        };
        let (crab, whole) = ("🦀".as_bytes(), "aé🦀".len() as u64);
        for cut in 0..crab.len() {
            let bytes = [b"a\xc3\xa9", &crab[..cut]].concat();
            assert_eq!(part(&bytes, whole, false), "aé", "{cut} bytes");
            assert_eq!(part(&bytes, bytes.len() as u64, true), "aé", "{cut} bytes");
        }
        assert_eq!(part(b"a\xf0\x9f", 3, false), "a\u{fffd}", "nothing was cut off");
        assert_eq!(part(b"\xff\xfea", 3, true), "\u{fffd}\u{fffd}a");
        assert_eq!(part(b"", 0, true), "");
    }
}
