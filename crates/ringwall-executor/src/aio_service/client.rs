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
use super::connection::{Connection, Question, in_short, malformed};
use super::error::AioError;

/// Timeout of requests that the service answers at once.
const PROMPT: Duration = Duration::from_secs(10);
/// How long the service may wait for new output, and the additional time for an answer to arrive.
const NEWS_WITHIN: Duration = Duration::from_secs(10);
const ON_THE_WAY: Duration = Duration::from_secs(10);
const MAX_CODE_SECONDS: u64 = 300;
/// Directory levels of a listing.
const DEEPEST: u32 = 32;

#[derive(Debug, Clone)]
pub struct AioService {
    connection: Connection,
}

/// What a service reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceInfo {
    pub version: String,
    /// The directory that contains the sessions' directories.
    pub home: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeLanguage {
    Python,
    Javascript,
}

impl CodeLanguage {
    const fn key(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
        }
    }
}

/// The result of a piece of code, as the service reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeOutcome {
    /// `ok`, `error` or `timeout`.
    pub status: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i32>,
}

/// The bytes of both streams that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    pub(super) stdout: u64,
    pub(super) stderr: u64,
}

/// Whether the service may wait for new output before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    ForNews,
    Not,
}

impl AioService {
    pub fn new(url: ServiceUrl, key: &Secret) -> Result<Self, AioError> {
        Ok(Self { connection: Connection::new(url, key)? })
    }

    /// Checks that the service answers and accepts our key.
    pub async fn info(&self) -> Result<ServiceInfo, AioError> {
        let asked = "tell about itself";
        let question = question(asked, "/v1/sandbox", PROMPT);
        let Context { home_dir, version } = self.connection.get(question).await?;
        let home = home_dir.trim_end_matches('/');
        // It becomes part of a quoted shell line, and of paths that are compared.
        if !home.starts_with('/') || home.contains(char::is_control) || home.split('/').any(|part| part == "..") {
            return Err(malformed(asked, "its home is no absolute path"));
        }
        Ok(ServiceInfo { version: in_short(&version), home: home.to_owned() })
    }

    pub(super) async fn open_session(&self, session_id: &str) -> Result<(), AioError> {
        let asked = "open a session";
        let question = question(asked, "/v1/bash/sessions/create", PROMPT);
        let info: SessionInfo = self.connection.post(question, &json!({ "session_id": session_id })).await?;
        // A session of another name could belong to another client.
        if info.session_id == session_id { Ok(()) } else { Err(malformed(asked, "it opened another session")) }
    }

    /// Runs a short shell line to its end.
    pub(super) async fn run_at_once(
        &self,
        asked: &'static str,
        session_id: &str,
        command: &str,
    ) -> Result<(), AioError> {
        let question = question(asked, "/v1/bash/exec", PROMPT + ON_THE_WAY);
        let request = json!({
            "session_id": session_id, "command": command, "env": {}, "async_mode": false,
            "hard_timeout": PROMPT.as_secs_f64(),
        });
        let result: ExecResult = self.connection.post(question, &request).await?;
        match (result.status, result.exit_code) {
            (CommandStatus::Completed, Some(0)) => Ok(()),
            _ => Err(AioError::Refused { asked, words: in_short(&result.stderr.unwrap_or_default()) }),
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
        let question = question("begin the command", "/v1/bash/exec", PROMPT);
        let mut request = json!({ "session_id": session_id, "command": command, "env": env, "async_mode": true });
        if let Some(limit) = hard_timeout {
            request["hard_timeout"] = limit.as_secs_f64().into();
        }
        let result: ExecResult = self.connection.post(question, &request).await?;
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
        let question = question("tell what the command prints", "/v1/bash/output", NEWS_WITHIN + ON_THE_WAY);
        let request = json!({
            "session_id": session_id, "command_id": command_id,
            "offset": since.stdout, "stderr_offset": since.stderr,
            "wait": waiting == Waiting::ForNews, "wait_timeout": NEWS_WITHIN.as_secs_f64(),
        });
        self.connection.post(question, &request).await
    }

    pub(super) async fn kill(&self, session_id: &str, signal: &str) -> Result<(), AioError> {
        let question = question("end the command", "/v1/bash/kill", PROMPT);
        self.connection.order(question, &json!({ "session_id": session_id, "signal": signal })).await
    }

    /// Ends a session and the processes left in it.
    pub(super) async fn close_session(&self, session_id: &str) -> Result<(), AioError> {
        let path = format!("/v1/bash/sessions/{session_id}/close");
        self.connection.order(question("close a session", path, PROMPT), &json!({})).await
    }

    /// Runs a piece of code in an interpreter of the service. With a context, its variables stay
    /// for the next piece in that context.
    pub async fn execute_code(
        &self,
        language: CodeLanguage,
        code: &str,
        directory: &str,
        time_limit: Duration,
        context: Option<&str>,
    ) -> Result<CodeOutcome, AioError> {
        // The interface takes whole seconds, at least one.
        let timeout = time_limit.as_secs().clamp(1, MAX_CODE_SECONDS);
        let question = question("run code", "/v1/code/execute", Duration::from_secs(timeout) + ON_THE_WAY);
        let mut request = json!({
            "language": language.key(), "code": code, "timeout": timeout, "cwd": directory,
            "stateful": context.is_some(),
        });
        if let Some(context) = context {
            request["session_id"] = context.into();
        }
        let CodeResult { status, stdout, stderr, exit_code } = self.connection.post(question, &request).await?;
        let [stdout, stderr] = [stdout, stderr].map(Option::unwrap_or_default);
        Ok(CodeOutcome { status: in_short(&status), stdout, stderr, exit_code })
    }

    pub async fn write_file(&self, file: &str, content: &[u8]) -> Result<(), AioError> {
        let text = std::str::from_utf8(content);
        let encoded;
        let (content, encoding) = match text {
            Ok(text) => (text, "utf-8"),
            Err(_) => {
                encoded = STANDARD.encode(content);
                (encoded.as_str(), "base64")
            }
        };
        let question = question("write a file", "/v1/file/write", PROMPT);
        self.connection.order(question, &json!({ "file": file, "content": content, "encoding": encoding })).await
    }

    /// The text of a file.
    pub async fn read_file(&self, file: &str) -> Result<String, AioError> {
        let question = question("read a file", "/v1/file/read", PROMPT);
        let ReadResult { content } = self.connection.post(question, &json!({ "file": file })).await?;
        Ok(content)
    }

    pub(super) async fn list(&self, path: &str) -> Result<ListResult, AioError> {
        let request = json!({
            "path": path, "recursive": true, "show_hidden": true, "include_size": false, "max_depth": DEEPEST,
        });
        self.connection.post(question("list files", "/v1/file/list", PROMPT), &request).await
    }
}

fn question(asked: &'static str, path: impl Into<String>, timeout: Duration) -> Question {
    Question { asked, path: path.into(), timeout }
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
struct CodeResult {
    status: String,
    stdout: Option<String>,
    stderr: Option<String>,
    exit_code: Option<i32>,
}

#[derive(Debug, Deserialize)]
struct ReadResult {
    content: String,
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
