//! Client of an AIO service, one method per request. Cheap to clone; holds only the connection.
//!
//! Commands use `/v1/bash`, which keeps stdout and stderr apart, returns output since an offset,
//! and can kill. Each command has a session of its own on the service, named by us, so it can be
//! killed even if the answer to its start is lost.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringwall_policy::Secret;
use serde::Deserialize;
use serde_json::json;

use super::address::ServiceUrl;
use super::connection::{Connection, ServiceRequest, malformed, shorten};
use crate::aio_error::AioError;

/// Timeout of requests that the service answers at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the service may wait for new output, and the additional time for an answer to arrive.
const LONG_POLL: Duration = Duration::from_secs(10);
const ANSWER_SLACK: Duration = Duration::from_secs(10);
/// Directory levels of a listing.
const MAX_DEPTH: u32 = 32;

#[derive(Debug, Clone)]
pub struct AioService {
    connection: Connection,
}

/// Version and home directory that a service reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInfo {
    pub version: String,
    /// The directory that contains the sessions' directories.
    pub home: String,
}

/// The bytes of both streams that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) stdout: u64,
    pub(super) stderr: u64,
}

/// Controls whether the service waits for new output before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    ForOutput,
    Not,
}

impl AioService {
    pub fn new(url: ServiceUrl, key: &Secret) -> Result<Self, AioError> {
        Ok(Self { connection: Connection::new(url, key)? })
    }

    /// Checks that the service answers and accepts our key.
    pub async fn info(&self) -> Result<ServiceInfo, AioError> {
        let action = "report its version";
        let request = ServiceRequest::new(action, "/v1/sandbox", REQUEST_TIMEOUT);
        let Context { home_dir, version } = self.connection.get(request).await?;
        let home = home_dir.trim_end_matches('/');
        // It becomes part of a quoted shell line, and of paths that are compared.
        if !home.starts_with('/') || home.contains(char::is_control) || home.split('/').any(|part| part == "..") {
            return Err(malformed(action, "its home is not an absolute path"));
        }
        Ok(ServiceInfo { version: shorten(&version), home: home.to_owned() })
    }

    pub(super) async fn open_session(&self, session_id: &str) -> Result<(), AioError> {
        let action = "open a session";
        let request = ServiceRequest::new(action, "/v1/bash/sessions/create", REQUEST_TIMEOUT);
        let info: SessionInfo = self.connection.post(request, &json!({ "session_id": session_id })).await?;
        // A session of another name could belong to another client.
        if info.session_id == session_id { Ok(()) } else { Err(malformed(action, "it opened another session")) }
    }

    /// Runs a short shell line to its end.
    pub(super) async fn run_at_once(
        &self,
        action: &'static str,
        session_id: &str,
        command: &str,
    ) -> Result<(), AioError> {
        let request = ServiceRequest::new(action, "/v1/bash/exec", REQUEST_TIMEOUT + ANSWER_SLACK);
        let body = json!({
            "session_id": session_id, "command": command, "env": {}, "async_mode": false,
            "hard_timeout": REQUEST_TIMEOUT.as_secs_f64(),
        });
        let result: ExecResult = self.connection.post(request, &body).await?;
        match (result.status, result.exit_code) {
            (CommandStatus::Completed, Some(0)) => Ok(()),
            _ => Err(AioError::Refused { action, words: shorten(&result.stderr.unwrap_or_default()) }),
        }
    }

    /// Starts a command and returns its id.
    pub(super) async fn begin(
        &self,
        session_id: &str,
        command: &str,
        env: BTreeMap<&str, &str>,
        hard_timeout: Option<Duration>,
    ) -> Result<String, AioError> {
        let request = ServiceRequest::new("start the command", "/v1/bash/exec", REQUEST_TIMEOUT);
        let mut body = json!({ "session_id": session_id, "command": command, "env": env, "async_mode": true });
        if let Some(limit) = hard_timeout {
            body["hard_timeout"] = limit.as_secs_f64().into();
        }
        let result: ExecResult = self.connection.post(request, &body).await?;
        Ok(result.command_id)
    }

    /// The command's output since the offsets, and its state.
    pub(super) async fn output(
        &self,
        session_id: &str,
        command_id: &str,
        since: Offsets,
        waiting: Waiting,
    ) -> Result<OutputResult, AioError> {
        let request = ServiceRequest::new("return the command's output", "/v1/bash/output", LONG_POLL + ANSWER_SLACK);
        let body = json!({
            "session_id": session_id, "command_id": command_id,
            "offset": since.stdout, "stderr_offset": since.stderr,
            "wait": waiting == Waiting::ForOutput, "wait_timeout": LONG_POLL.as_secs_f64(),
        });
        self.connection.post(request, &body).await
    }

    pub(super) async fn kill(&self, session_id: &str, signal: &str) -> Result<(), AioError> {
        let request = ServiceRequest::new("kill the command", "/v1/bash/kill", REQUEST_TIMEOUT);
        self.connection.order(request, &json!({ "session_id": session_id, "signal": signal })).await
    }

    /// Ends a session and the processes left in it.
    pub(super) async fn close_session(&self, session_id: &str) -> Result<(), AioError> {
        let path = format!("/v1/bash/sessions/{session_id}/close");
        self.connection.order(ServiceRequest::new("close a session", path, REQUEST_TIMEOUT), &json!({})).await
    }

    pub(super) async fn write_file(&self, file: &str, content: &[u8]) -> Result<(), AioError> {
        let text = std::str::from_utf8(content);
        let encoded;
        let (content, encoding) = match text {
            Ok(text) => (text, "utf-8"),
            Err(_) => {
                encoded = STANDARD.encode(content);
                (encoded.as_str(), "base64")
            }
        };
        let request = ServiceRequest::new("write a file", "/v1/file/write", REQUEST_TIMEOUT);
        self.connection.order(request, &json!({ "file": file, "content": content, "encoding": encoding })).await
    }

    pub(super) async fn list(&self, path: &str) -> Result<ListResult, AioError> {
        let body = json!({
            "path": path, "recursive": true, "show_hidden": true, "include_size": false, "max_depth": MAX_DEPTH,
        });
        self.connection.post(ServiceRequest::new("list files", "/v1/file/list", REQUEST_TIMEOUT), &body).await
    }
}

#[derive(Debug, Deserialize)]
struct Context {
    home_dir: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct SessionInfo {
    session_id: String,
}

#[derive(Debug, Deserialize)]
struct ExecResult {
    command_id: String,
    status: CommandStatus,
    exit_code: Option<i32>,
    stderr: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OutputResult {
    #[serde(default)]
    pub(super) stdout: String,
    #[serde(default)]
    pub(super) stderr: String,
    #[serde(default)]
    pub(super) offset: u64,
    #[serde(default)]
    pub(super) stderr_offset: u64,
    pub(super) command: Option<CommandInfo>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommandInfo {
    pub(super) status: CommandStatus,
    pub(super) exit_code: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CommandStatus {
    Pending,
    Running,
    Completed,
    TimedOut,
    Killed,
}

#[derive(Debug, Deserialize)]
pub(super) struct ListResult {
    /// The listed directory, in which the service may have resolved links.
    #[serde(default)]
    pub(super) path: String,
    #[serde(default)]
    pub(super) files: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) is_directory: bool,
}
