//! Processes of a session's box: commands that nobody waits for, with their output from any byte on, input and signals.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use ringwall_service::{AfterInput, CodeRequest, ExecId, OutputPart, Principal, Status};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::exec_id;
use super::sessions::WhoseWords;
use crate::http::Door;
use crate::http::transport::body::{Named, Words, read_json, shape};
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
    /// A line for bash
    command: String,
    /// Seconds, at least 1; without it the process lasts until it ends, is ended, or the session is
    timeout: Option<u64>,
    /// Of each stream; 10 MiB unless said
    max_output_bytes: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessBegun {
    /// The exec's id
    #[schema(value_type = String)]
    pid: ExecId,
    status: Status,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputWords {
    /// The first byte of standard output that is wanted
    #[serde(default)]
    stdout: u64,
    /// The same of standard error
    #[serde(default)]
    stderr: u64,
    agent_id: Option<String>,
    user_id: Option<String>,
}

/// What is not text is shown as replacement characters; cursors count bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ProcessOutputView {
    /// The exec that goes on in its place, and whose output this is: a person has changed its code. Input and signals reach
    /// it under either id
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
    /// From where to ask next
    next: u64,
    total: u64,
    truncated: bool,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InputBody {
    #[serde(default)]
    data: String,
    /// Nothing more comes
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
pub(crate) struct ProcessTold {
    #[schema(value_type = String)]
    pid: ExecId,
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes", tag = "sessions", operation_id = "process_begin",
    params(("id" = String, Path), WhoseWords), request_body = ProcessBody,
    responses((status = 202, description = "it is on record, and runs or waits", body = ProcessBegun)))]
pub(crate) async fn begin(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    Words(whose): Words<WhoseWords>,
    body: Body,
) -> Result<(StatusCode, Json<ProcessBegun>), Problem> {
    let body: ProcessBody = shape(read_json(body, door.largest_body).await?)?;
    let (address, limit, most) = (whose.address(id), body.timeout, body.max_output_bytes);
    let request = CodeRequest::in_session_box(address, body.command, limit, most);
    let begun = door.service.begin_process(&principal, request).await.map_err(Problem::of_session)?;
    Ok((StatusCode::ACCEPTED, Json(ProcessBegun { pid: begun.exec_id, status: begun.status })))
}

#[utoipa::path(get, path = "/api/sessions/{id}/processes/{pid}/output", tag = "sessions", operation_id = "process_output",
    params(("id" = String, Path), ("pid" = String, Path), OutputWords),
    responses((status = 200, description = "what it has printed from there on", body = ProcessOutputView)))]
pub(crate) async fn output(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((id, pid)): Named<(String, String)>,
    Words(words): Words<OutputWords>,
) -> Result<Json<ProcessOutputView>, Problem> {
    let pid = exec_id(&pid)?;
    let OutputWords { stdout, stderr, agent_id, user_id } = words;
    let address = WhoseWords::of(agent_id, user_id).address(id);
    let output = door.service.process_output(&principal, &address, &pid, (stdout, stderr)).await?;
    Ok(Json(ProcessOutputView {
        goes_on_as: output.goes_on_as,
        status: output.status,
        exit_code: output.exit_code,
        stdout: StreamPart::new(&output.stdout, stdout),
        stderr: StreamPart::new(&output.stderr, stderr),
    }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes/{pid}/stdin", tag = "sessions", operation_id = "process_stdin",
    params(("id" = String, Path), ("pid" = String, Path), WhoseWords), request_body = InputBody,
    responses((status = 200, description = "it has taken all of it", body = ProcessTold),
        (status = 409, description = "its input is closed, or it does not read")))]
pub(crate) async fn stdin(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((id, pid)): Named<(String, String)>,
    Words(whose): Words<WhoseWords>,
    body: Body,
) -> Result<Json<ProcessTold>, Problem> {
    let pid = exec_id(&pid)?;
    let body: InputBody = shape(read_json(body, door.largest_body).await?)?;
    let after = if body.close { AfterInput::End } else { AfterInput::More };
    let address = whose.address(id);
    door.service.write_to_process(&principal, &address, &pid, body.data.as_bytes(), after).await?;
    Ok(Json(ProcessTold { pid }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/processes/{pid}/signal", tag = "sessions", operation_id = "process_signal",
    params(("id" = String, Path), ("pid" = String, Path), WhoseWords), request_body = SignalBody,
    responses((status = 200, description = "it was sent", body = ProcessTold)))]
pub(crate) async fn signal(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((id, pid)): Named<(String, String)>,
    Words(whose): Words<WhoseWords>,
    body: Body,
) -> Result<Json<ProcessTold>, Problem> {
    let pid = exec_id(&pid)?;
    let body: SignalBody = shape(read_json(body, door.largest_body).await?)?;
    let name = body.signal.trim_start_matches("SIG");
    let number = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number =
        number.ok_or_else(|| Problem::invalid("signal: one of HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP"))?;
    door.service.signal_process(&principal, &whose.address(id), &pid, number).await?;
    Ok(Json(ProcessTold { pid }))
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
