//! The artifacts and the output of an exec, and both as one observation.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use ringwall_service::{Artifacts, Observation, Stream};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::exec_id;
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query};
use crate::http::transport::file_response::send_file;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "Every file with its size and SHA-256", body = Artifacts)))]
pub(crate) async fn list(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<Artifacts> {
    Ok(Json(by.service.artifacts(&by.principal, &exec_id(&id)?).await?))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts/{path}", tag = "artifacts",
    params(
        ("id" = String, Path),
        ("path" = String, Path),
        ("Range" = Option<String>, Header, description = "A single byte range: `bytes=0-99`, `bytes=100-` or `bytes=-100`"),
        ("If-Range" = Option<String>, Header, description = "ETag of the part that the client already has; if the file has another one, the whole file is sent"),
    ),
    responses(
        (status = 200, description = "The content of the file", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The requested range", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 416, description = "The range lies outside of the file"),
    ))]
pub(crate) async fn download(
    State(state): State<AppState>,
    by: Caller,
    PathParam((id, path)): PathParam<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = state.streams.acquire(&by.principal)?;
    let (file, size) = by.service.artifact(&by.principal, &exec_id(&id)?, &path).await?;
    send_file(file, size, &method, &headers, permit)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// First byte to return; default 0
    offset: Option<u64>,
    /// Number of bytes to return at most; default all
    limit: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Output {
    exec_id: String,
    /// Bytes that are not UTF-8 are replaced by U+FFFD; the artifacts `stdout.txt` and `stderr.txt`
    /// have the original bytes
    content: String,
    /// True if the exec printed more than the limit; the rest was discarded
    truncated: bool,
    /// Size of the kept output in bytes
    bytes: u64,
    /// Position of `content` in bytes
    offset: u64,
    /// `offset` of the next request
    next_offset: u64,
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/stdout", tag = "artifacts", params(("id" = String, Path), OutputQuery),
    responses((status = 200, description = "Standard output up to now", body = Output)))]
pub(crate) async fn stdout(by: Caller, id: PathParam<String>, query: Query<OutputQuery>) -> JsonResult<Output> {
    output(&by, id, query, Stream::Stdout).await
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/stderr", tag = "artifacts", params(("id" = String, Path), OutputQuery),
    responses((status = 200, description = "Standard error up to now", body = Output)))]
pub(crate) async fn stderr(by: Caller, id: PathParam<String>, query: Query<OutputQuery>) -> JsonResult<Output> {
    output(&by, id, query, Stream::Stderr).await
}

async fn output(
    by: &Caller,
    PathParam(id): PathParam<String>,
    Query(query): Query<OutputQuery>,
    stream: Stream,
) -> JsonResult<Output> {
    let offset = query.offset.unwrap_or(0);
    let limit = query.limit.unwrap_or(u64::MAX);
    let part = by.service.output(&by.principal, &exec_id(&id)?, stream, offset, limit).await?;
    Ok(Json(Output {
        exec_id: id,
        next_offset: offset.saturating_add(part.bytes.len() as u64),
        content: String::from_utf8_lossy(&part.bytes).into_owned(),
        truncated: part.truncated,
        bytes: part.total,
        offset,
    }))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/observation", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "Exit code, output and artifacts in one object, for a model to read", body = Observation)))]
pub(crate) async fn observation(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<Observation> {
    Ok(Json(by.service.observation(&by.principal, &exec_id(&id)?).await?))
}
