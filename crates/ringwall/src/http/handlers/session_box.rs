//! The session box: runs a command in it, pauses and resumes it.

use axum::Json;
use axum::http::HeaderMap;
use axum::response::Response;
use ringwall_service::CodeRequest;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::run::{RunAnswer, RunBegun, Waiting, locale, run};
use super::sessions::SessionOwner;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult, PathParam, Query};
use crate::http::transport::problem::Problem;

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
