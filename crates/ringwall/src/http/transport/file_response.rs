//! Sends a file, or the byte range of it that was requested.
//!
//! The content comes from boxes, so it is sent as an attachment of type `application/octet-stream`:
//! no browser may render it as a page of this server. It is streamed in pieces of 256 KiB.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::stream;

use super::caller_limits::CallerPermit;
use super::guarded_body::guard_body;
use super::problem::Problem;
use super::range::{self, Part};

const CHUNK_BYTES: u64 = 256 << 10;

/// Sends the first `size` bytes of a file. `permit` counts the download until its body is dropped.
pub(crate) fn send_file(
    file: File,
    size: u64,
    method: &Method,
    headers: &HeaderMap,
    permit: CallerPermit,
) -> Result<Response, Problem> {
    let etag = etag(&file, size)?;
    let part = if method == Method::GET { range::requested(headers, size, &etag) } else { Part::Whole };
    let (status, bytes, content_range) = match part {
        Part::Whole => (StatusCode::OK, 0..size, None),
        Part::Bytes(part) => {
            let range_text = format!("bytes {}-{}/{size}", part.start(), part.end());
            (StatusCode::PARTIAL_CONTENT, *part.start()..part.end() + 1, Some(range_text))
        }
        Part::Unsatisfiable => {
            let message = format!("the requested range lies outside of the file, which has {size} bytes");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "RANGE_NOT_SATISFIABLE", message);
            let mut response = problem.into_response();
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(response);
        }
    };
    let length = bytes.end - bytes.start;
    let mut response = Response::new(Body::from_stream(chunks(file, bytes)));
    *response.status_mut() = status;
    for (name, value) in [
        (header::CONTENT_TYPE, "application/octet-stream"),
        (header::CONTENT_DISPOSITION, "attachment"),
        (header::ACCEPT_RANGES, "bytes"),
        (header::ETAG, &etag),
        (header::CONTENT_LENGTH, &length.to_string()),
    ] {
        set(&mut response, name, value);
    }
    if let Some(range_text) = content_range {
        set(&mut response, header::CONTENT_RANGE, &range_text);
    }
    Ok(guard_body(response, permit))
}

pub(crate) fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// An ETag of inode, size and modification time. The API replaces files by a new inode, captured
/// output only grows, and a box that writes to a file in place changes its modification time.
fn etag(file: &File, size: u64) -> Result<String, Problem> {
    let about = file.metadata().map_err(|error| {
        tracing::error!(%error, "could not stat a file to be sent");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "RUNTIME_ERROR", "the file cannot be read")
    })?;
    Ok(format!("\"{:x}-{size:x}-{:x}.{:x}\"", about.ino(), about.mtime(), about.mtime_nsec()))
}

/// Reads exactly these bytes. If the file has become shorter, the response ends with an error.
fn chunks(file: File, bytes: Range<u64>) -> impl stream::Stream<Item = std::io::Result<Bytes>> {
    stream::try_unfold((Arc::new(file), bytes), async |(file, bytes)| {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (offset, wanted) = (bytes.start, CHUNK_BYTES.min(bytes.end - bytes.start));
        let reading = Arc::clone(&file);
        let chunk = tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; usize::try_from(wanted).unwrap_or_default()];
            reading.read_exact_at(&mut chunk, offset).map(|()| chunk)
        });
        let chunk = chunk.await.map_err(std::io::Error::other)??;
        Ok(Some((Bytes::from(chunk), (file, offset + wanted..bytes.end))))
    })
}
