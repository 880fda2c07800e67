//! The session box: runs a command in it, pauses and resumes it. Its background processes: starts one,
//! reads its output from any byte on, writes its input, sends signals.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ringwall_service::{AfterInput, CodeRequest, ExecId, OutputPart, SessionAddress, Status};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::exec_id;
use super::run::{RunAnswer, RunBegun, Waiting, locale, run};
use super::sessions::SessionOwner;
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult, PathParam, Query, deserialize, read_json};
use crate::http::transport::problem::Problem;

const SIGNALS: [(&str, i32); 9] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessBody {
    /// Command line for bash
    command: String,
    /// Timeout in seconds, at least 1. Default: the process may run as long as its session
    timeout: Option<u64>,
    /// Limit of each output stream in bytes; default 10 MiB
    max_output_bytes: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessBegun {
    /// Id of the process: its exec id, not a PID of the kernel
    #[schema(value_type = String)]
    pid: ExecId,
    status: Status,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// First byte of standard output to return; default 0
    #[serde(default)]
    stdout: u64,
    /// First byte of standard error to return; default 0
    #[serde(default)]
    stderr: u64,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
}

/// State and output of a process. Bytes that are not UTF-8 are replaced by U+FFFD; cursors count
/// bytes
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessOutputView {
    /// If an approver changed the command: id of the exec that runs the changed command, and whose
    /// output this is. Input and signals reach it under both ids
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    goes_on_as: Option<ExecId>,
    status: Status,
    exit_code: Option<i32>,
    stdout: StreamPart,
    stderr: StreamPart,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StreamPart {
    text: String,
    /// First byte of the next request
    next: u64,
    /// Size of the kept output in bytes
    total: u64,
    /// True if the process printed more than the limit; the rest was discarded
    truncated: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputBody {
    /// Text to write
    #[serde(default)]
    data: String,
    /// Closes standard input after `data` was written
    #[serde(default)]
    close: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    /// `HUP`, `INT`, `QUIT`, `KILL`, `USR1`, `USR2`, `TERM`, `CONT` or `STOP`
    signal: String,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessReference {
    #[schema(value_type = String)]
    pid: ExecId,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionExecBody {
    /// Command line for bash
    command: String,
    /// Timeout in seconds, 1 to 300; default 30
    timeout: Option<u64>,
    /// Limit of each output stream in bytes; default 10 MiB
    max_output_bytes: Option<u64>,
    /// `false`: respond with 202 as soon as the exec is recorded; default `true`
    wait: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionPauseState {
    session_id: String,
    paused: bool,
}

#[utoipa::path(post, path = "/api/sessions/{id}/exec", tag = "sessions", operation_id = "session_exec",
    params(("id" = String, Path), SessionOwner), request_body = SessionExecBody,
    responses(
        (status = 200, description = "The command has ended, or did not run; see `success` and `error`", body = RunAnswer),
        (status = 202, description = "With `wait: false`: the command runs or waits for an approval", body = RunBegun),
        (status = 503, description = "No session box is available (`backend_unavailable`, `POOL_FULL`)"),
    ))]
pub(crate) async fn exec(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<SessionExecBody>,
) -> Result<Response, Problem> {
    let (address, limit, max_output_bytes) = (owner.address(id), body.timeout, body.max_output_bytes);
    let request = CodeRequest::in_session_box(address, body.command, limit, max_output_bytes);
    run(&by, request, Waiting::of(body.wait), locale(&headers)).await
}

#[utoipa::path(post, path = "/api/sessions/{id}/pause", tag = "sessions", operation_id = "session_pause",
    params(("id" = String, Path), SessionOwner),
    responses((status = 200, description = "All processes of the session box are frozen, and their time limits with them", body = SessionPauseState),
        (status = 404, description = "The session has no box")))]
pub(crate) async fn pause(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<SessionPauseState> {
    by.service.pause_session(&by.principal, &owner.address(id.clone())).await?;
    Ok(Json(SessionPauseState { session_id: id, paused: true }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/resume", tag = "sessions", operation_id = "session_resume",
    params(("id" = String, Path), SessionOwner),
    responses((status = 200, description = "The processes of the session box run again", body = SessionPauseState),
        (status = 404, description = "The session has no box")))]
pub(crate) async fn resume(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<SessionPauseState> {
    by.service.resume_session(&by.principal, &owner.address(id.clone())).await?;
    Ok(Json(SessionPauseState { session_id: id, paused: false }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes", tag = "sessions", operation_id = "process_begin",
    params(("id" = String, Path), SessionOwner), request_body = ProcessBody,
    responses((status = 202, description = "The process is recorded, and runs or waits for the queue or an approval", body = ProcessBegun)))]
pub(crate) async fn begin(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
    JsonBody(body): JsonBody<ProcessBody>,
) -> Result<(StatusCode, Json<ProcessBegun>), Problem> {
    let (address, limit, max_output_bytes) = (owner.address(id), body.timeout, body.max_output_bytes);
    let request = CodeRequest::in_session_box(address, body.command, limit, max_output_bytes);
    let begun = by.service.begin_process(&by.principal, request).await.map_err(Problem::from_session_error)?;
    Ok((StatusCode::ACCEPTED, Json(ProcessBegun { pid: begun.exec_id, status: begun.status })))
}

#[utoipa::path(get, path = "/api/sessions/{id}/processes/{pid}/output", tag = "sessions", operation_id = "process_output",
    params(("id" = String, Path), ("pid" = String, Path), OutputQuery),
    responses((status = 200, description = "State of the process, and its output from the given bytes on", body = ProcessOutputView)))]
pub(crate) async fn output(
    by: Caller,
    PathParam((id, pid)): PathParam<(String, String)>,
    Query(query): Query<OutputQuery>,
) -> JsonResult<ProcessOutputView> {
    let pid = exec_id(&pid)?;
    let OutputQuery { stdout, stderr, agent_id, user_id } = query;
    let address = SessionAddress { session_id: id, user_id, agent_id };
    let output = by.service.process_output(&by.principal, &address, &pid, (stdout, stderr)).await?;
    Ok(Json(ProcessOutputView {
        goes_on_as: output.goes_on_as,
        status: output.status,
        exit_code: output.exit_code,
        stdout: StreamPart::new(&output.stdout, stdout),
        stderr: StreamPart::new(&output.stderr, stderr),
    }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes/{pid}/stdin", tag = "sessions", operation_id = "process_stdin",
    params(("id" = String, Path), ("pid" = String, Path), SessionOwner), request_body = InputBody,
    responses((status = 200, description = "All of `data` was written", body = ProcessReference),
        (status = 409, description = "Standard input is closed, or the process does not read it")))]
pub(crate) async fn stdin(
    State(state): State<AppState>,
    by: Caller,
    PathParam((id, pid)): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
    body: Body,
) -> JsonResult<ProcessReference> {
    let pid = exec_id(&pid)?;
    let body: InputBody = deserialize(read_json(body, state.max_body_bytes).await?)?;
    let after = if body.close { AfterInput::End } else { AfterInput::More };
    let address = owner.address(id);
    by.service.write_to_process(&by.principal, &address, &pid, body.data.as_bytes(), after).await?;
    Ok(Json(ProcessReference { pid }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes/{pid}/signal", tag = "sessions", operation_id = "process_signal",
    params(("id" = String, Path), ("pid" = String, Path), SessionOwner), request_body = SignalBody,
    responses((status = 200, description = "The signal was sent to the process group", body = ProcessReference)))]
pub(crate) async fn signal(
    State(state): State<AppState>,
    by: Caller,
    PathParam((id, pid)): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
    body: Body,
) -> JsonResult<ProcessReference> {
    let pid = exec_id(&pid)?;
    let body: SignalBody = deserialize(read_json(body, state.max_body_bytes).await?)?;
    let name = body.signal.trim_start_matches("SIG");
    let number = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number =
        number.ok_or_else(|| Problem::invalid("signal: one of HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP"))?;
    by.service.signal_process(&by.principal, &owner.address(id), &pid, number).await?;
    Ok(Json(ProcessReference { pid }))
}

impl StreamPart {
    fn new(part: &OutputPart, from: u64) -> Self {
        StreamPart {
            text: String::from_utf8_lossy(&part.bytes).into_owned(),
            next: from + part.bytes.len() as u64,
            total: part.total,
            truncated: part.truncated,
        }
    }
}
