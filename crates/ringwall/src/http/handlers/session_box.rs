//! The box that stays with a session: a command in it, and holding it still.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use ringwall_service::{CodeRequest, Principal};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::run::{RunAnswer, RunBegun, Waiting, locale, run};
use super::sessions::WhoseWords;
use crate::http::Door;
use crate::http::transport::body::{Named, Words, read_json, shape};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionExecBody {
    /// A line for bash
    command: String,
    /// Seconds, 1 to 300; 30 unless said
    timeout: Option<u64>,
    /// Of each stream; 10 MiB unless said
    max_output_bytes: Option<u64>,
    /// `false`: answer at once, whatever becomes of it
    wait: Option<bool>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionTurned {
    session_id: String,
    paused: bool,
}

#[utoipa::path(post, path = "/api/sessions/{id}/exec", tag = "sessions", operation_id = "session_exec",
    params(("id" = String, Path), WhoseWords), request_body = SessionExecBody,
    responses(
        (status = 200, description = "how it ended, or why it did not run", body = RunAnswer),
        (status = 202, description = "it goes on, or waits for a person", body = RunBegun),
        (status = 503, description = "there is no box to be had (`backend_unavailable`)"),
    ))]
pub(crate) async fn exec(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    Words(whose): Words<WhoseWords>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body: SessionExecBody = shape(read_json(body, door.largest_body).await?)?;
    let (address, limit, most) = (whose.address(id), body.timeout, body.max_output_bytes);
    let request = CodeRequest::in_session_box(address, body.command, limit, most);
    run(&door, &principal, request, Waiting::of(body.wait), locale(&headers)).await
}

#[utoipa::path(post, path = "/api/sessions/{id}/pause", tag = "sessions", operation_id = "session_pause",
    params(("id" = String, Path), WhoseWords),
    responses((status = 200, description = "its box stands still", body = SessionTurned),
        (status = 404, description = "the session has no box")))]
pub(crate) async fn pause(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<SessionTurned>, Problem> {
    door.service.pause_session(&principal, &whose.address(id.clone())).await?;
    Ok(Json(SessionTurned { session_id: id, paused: true }))
}

#[utoipa::path(post, path = "/api/sessions/{id}/resume", tag = "sessions", operation_id = "session_resume",
    params(("id" = String, Path), WhoseWords),
    responses((status = 200, description = "its box goes on", body = SessionTurned),
        (status = 404, description = "the session has no box")))]
pub(crate) async fn resume(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<SessionTurned>, Problem> {
    door.service.resume_session(&principal, &whose.address(id.clone())).await?;
    Ok(Json(SessionTurned { session_id: id, paused: false }))
}
