//! JSON requests and answers of an AIO service, as far as they are used.
//!
//! Unknown fields of an answer are ignored; the known ones must have the right type. Values are
//! checked where they are used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::connection::{in_short, malformed};
use crate::error::AioError;

/// The envelope of every answer except that of `/v1/sandbox`.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope<T> {
    success: Option<bool>,
    message: Option<String>,
    data: Option<T>,
}

impl<T> Envelope<T> {
    pub(super) fn data(self, asked: &'static str) -> Result<T, AioError> {
        match self {
            Self { success: Some(false), message, .. } => Err(refused(asked, message)),
            Self { data: Some(data), .. } => Ok(data),
            Self { data: None, .. } => Err(malformed(asked, "there are no data in it")),
        }
    }

    pub(super) fn done(self, asked: &'static str) -> Result<(), AioError> {
        match self.success {
            Some(false) => Err(refused(asked, self.message)),
            Some(true) | None => Ok(()),
        }
    }
}

fn refused(asked: &'static str, message: Option<String>) -> AioError {
    AioError::Refused { asked, words: in_short(&message.unwrap_or_default()) }
}

/// The body of an HTTP error, in either of two forms: `message`, or `detail` as of FastAPI.
#[derive(Debug, Deserialize)]
pub(super) struct Complaint {
    message: Option<String>,
    detail: Option<Value>,
}

impl Complaint {
    pub(super) fn words(self) -> String {
        match self {
            Self { message: Some(message), .. } => message,
            Self { detail: Some(Value::String(detail)), .. } => detail,
            Self { detail: Some(detail), .. } => detail.to_string(),
            Self { message: None, detail: None } => String::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Context {
    pub(super) home_dir: String,
    pub(super) version: String,
}

#[derive(Debug, Serialize)]
pub(super) struct SessionRequest<'a> {
    pub(super) session_id: &'a str,
}

#[derive(Debug, Deserialize)]
pub(super) struct SessionInfo {
    pub(super) session_id: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ExecRequest<'a> {
    pub(super) session_id: &'a str,
    pub(super) command: &'a str,
    pub(super) env: BTreeMap<&'a str, &'a str>,
    pub(super) async_mode: bool,
    /// Seconds after which the service kills the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hard_timeout: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ExecResult {
    pub(super) command_id: String,
    pub(super) status: CommandStatus,
    pub(super) exit_code: Option<i32>,
    pub(super) stderr: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct OutputRequest<'a> {
    pub(super) session_id: &'a str,
    pub(super) command_id: &'a str,
    pub(super) offset: u64,
    pub(super) stderr_offset: u64,
    pub(super) wait: bool,
    pub(super) wait_timeout: f64,
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

#[derive(Debug, Serialize)]
pub(super) struct KillRequest<'a> {
    pub(super) session_id: &'a str,
    pub(super) signal: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct CodeRequest<'a> {
    pub(super) language: &'a str,
    pub(super) code: &'a str,
    pub(super) timeout: u64,
    pub(super) cwd: &'a str,
    pub(super) stateful: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodeResult {
    pub(super) status: String,
    pub(super) stdout: Option<String>,
    pub(super) stderr: Option<String>,
    pub(super) exit_code: Option<i32>,
}

#[derive(Debug, Serialize)]
pub(super) struct WriteRequest<'a> {
    pub(super) file: &'a str,
    pub(super) content: &'a str,
    pub(super) encoding: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct ReadRequest<'a> {
    pub(super) file: &'a str,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadResult {
    pub(super) content: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ListRequest<'a> {
    pub(super) path: &'a str,
    pub(super) recursive: bool,
    pub(super) show_hidden: bool,
    pub(super) include_size: bool,
    pub(super) max_depth: u32,
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
