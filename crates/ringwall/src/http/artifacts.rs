//! What an exec left: its output, its files, and all of it in one object.
//!
//! The bytes are a box's. They go out as an attachment of no type, so that no browser takes them for a page of ours, and
//! as they are read: a file is never in memory whole.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde::{Deserialize, Serialize};
use service::{Artifacts, Observation, Principal, Stream};
use utoipa::{IntoParams, ToSchema};

use super::Door;
use super::attended::attend;
use super::body::{Named, Words};
use super::execs::exec_id;
use super::problem::Problem;
use super::range::{self, Part};

const PIECE: u64 = 256 << 10;

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts", tag = "artifacts", params(("id" = String, Path)),
    responses((status = 200, description = "every file with its size and sha256", body = Artifacts)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<Artifacts>, Problem> {
    Ok(Json(door.service.artifacts(&principal, &exec_id(&id)?).await?))
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/artifacts/{path}", tag = "artifacts",
    params(
        ("id" = String, Path),
        ("path" = String, Path),
        ("Range" = Option<String>, Header, description = "one part, as `bytes=0-99`, `bytes=100-` or `bytes=-100`"),
        ("If-Range" = Option<String>, Header, description = "the ETag of what is there already; everything if it is another"),
    ),
    responses(
        (status = 200, description = "the file's bytes", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "the part of them that was asked for", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 416, description = "the part lies outside of the file"),
    ))]
pub(crate) async fn download(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named((id, path)): Named<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let long = door.long_answers.begin(&principal)?;
    let (file, size) = door.service.artifact(&principal, &exec_id(&id)?, &path).await?;
    let tag = tag(&file, size)?;
    let part = if method == Method::GET { range::asked(&headers, size, &tag) } else { Part::Whole };
    let (status, bytes, content_range) = match part {
        Part::Whole => (StatusCode::OK, 0..size, None),
        Part::Bytes(part) => {
            let shown = format!("bytes {}-{}/{size}", part.start(), part.end());
            (StatusCode::PARTIAL_CONTENT, *part.start()..part.end() + 1, Some(shown))
        }
        Part::Nowhere => {
            let message = format!("the file has {size} bytes, and the part that was asked for lies outside of them");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "RANGE_NOT_SATISFIABLE", message);
            let mut response = problem.into_response();
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(response);
        }
    };
    let length = bytes.end - bytes.start;
    let mut response = Response::new(Body::from_stream(pieces(file, bytes)));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, &tag),
        (header::CONTENT_LENGTH, &length.to_string()),
    ] {
        set(&mut response, name, value);
    }
    if let Some(shown) = content_range {
        set(&mut response, header::CONTENT_RANGE, &shown);
    }
    Ok(attend(response, long))
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Another one whenever the file is another, or has grown: a kept file is written once, and output only grows.
fn tag(file: &File, size: u64) -> Result<String, Problem> {
    let about = file.metadata().map_err(|error| {
        tracing::error!(%error, "could not look at an artifact");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "RUNTIME_ERROR", "the file cannot be read")
    })?;
    Ok(format!("\"{:x}-{size:x}-{:x}.{:x}\"", about.ino(), about.mtime(), about.mtime_nsec()))
}

/// Exactly as many bytes as were announced; a file that became shorter breaks the answer off.
fn pieces(file: File, bytes: Range<u64>) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((Arc::new(file), bytes), async |(file, bytes)| {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (offset, wanted) = (bytes.start, PIECE.min(bytes.end - bytes.start));
        let reading = Arc::clone(&file);
        let piece = tokio::task::spawn_blocking(move || {
            let mut piece = vec![0; usize::try_from(wanted).unwrap_or_default()];
            reading.read_exact_at(&mut piece, offset).map(|()| piece)
        });
        let piece = piece.await.map_err(std::io::Error::other)??;
        Ok(Some((Bytes::from(piece), (file, offset + wanted..bytes.end))))
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
    responses((status = 200, description = "exit code, output and files, for a model to read", body = Observation)))]
pub(crate) async fn observation(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<Observation>, Problem> {
    Ok(Json(door.service.observation(&principal, &exec_id(&id)?).await?))
}
