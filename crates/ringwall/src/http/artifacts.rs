//! What an exec left: its output, its files, and all of it in one object.
//!
//! The bytes are a box's. They go out as an attachment of no type, so that no browser takes them for a page of ours, and
//! as they are read: a file is never in memory whole.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use futures::stream;
use serde::{Deserialize, Serialize};
use service::{Artifacts, Observation, Principal, Stream};
use utoipa::{IntoParams, ToSchema};

use super::Door;
use super::body::{Named, Words};
use super::execs::exec_id;
use super::problem::Problem;

const PIECE: u64 = 256 << 10;

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "every file with its size and sha256", body = Object)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<Artifacts>, Problem> {
    Ok(Json(door.service.artifacts(&principal, &exec_id(&id)?).await?))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts/{path}", tag = "artifacts",
    params(("id" = String, Path), ("path" = String, Path)), responses((status = 200, description = "the file's bytes", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn download(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((id, path)): Named<(String, String)>,
) -> Result<Response, Problem> {
    let (file, size) = door.service.artifact(&principal, &exec_id(&id)?, &path).await?;
    let mut response = Response::new(Body::from_stream(pieces(file, size)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(size));
    Ok(response)
}

/// Exactly as many bytes as were announced; a file that became shorter breaks the answer off.
fn pieces(file: File, size: u64) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((Arc::new(file), 0), move |(file, offset)| async move {
        if offset == size {
            return Ok(None);
        }
        let wanted = PIECE.min(size - offset);
        let reading = Arc::clone(&file);
        let piece = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(wanted).unwrap_or_default()];
            reading.read_exact_at(&mut piece, offset).map(|()| piece)
        });
        let piece = piece.await.map_err(std::io::Error::other)??;
        Ok(Some((Bytes::from(piece), (file, offset + wanted))))
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputWords {
    /// In bytes
    offset: Option<u64>,
    /// In bytes
    limit: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Output {
    exec_id: String,
    /// Bytes that are no UTF-8 are shown as U+FFFD; the artifact has them as they were.
    content: String,
    truncated: bool,
    /// How many there are in all
    bytes: u64,
    offset: u64,
    /// Where the next part begins
    next_offset: u64,
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/stdout", tag = "artifacts", params(("id" = String, Path), OutputWords),
    responses((status = 200, description = "standard output, as far as it has come", body = Output)))]
pub(crate) async fn stdout(
    door: State<Door>,
    principal: Extension<Principal>,
    id: Named<String>,
    words: Words<OutputWords>,
) -> Result<Json<Output>, Problem> {
    output(door, principal, id, words, Stream::Stdout).await
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/stderr", tag = "artifacts", params(("id" = String, Path), OutputWords),
    responses((status = 200, description = "standard error, as far as it has come", body = Output)))]
pub(crate) async fn stderr(
    door: State<Door>,
    principal: Extension<Principal>,
    id: Named<String>,
    words: Words<OutputWords>,
) -> Result<Json<Output>, Problem> {
    output(door, principal, id, words, Stream::Stderr).await
}

async fn output(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    Words(words): Words<OutputWords>,
    stream: Stream,
) -> Result<Json<Output>, Problem> {
    let offset = words.offset.unwrap_or(0);
    let limit = words.limit.unwrap_or(u64::MAX);
    let part = door.service.output(&principal, &exec_id(&id)?, stream, offset, limit).await?;
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
    responses((status = 200, description = "exit code, output and files, for a model to read", body = Object)))]
pub(crate) async fn observation(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<Observation>, Problem> {
    Ok(Json(door.service.observation(&principal, &exec_id(&id)?).await?))
}
