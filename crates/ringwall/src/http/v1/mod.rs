//! The `/v1` routes: files and skills of an agent, and commands that run on them.
//!
//! Every JSON response is an envelope: `{"status":"success","data":…}`. Those of errors are written by
//! `transport::problem`.

mod upload;

pub(super) mod execute;
pub(super) mod files;
pub(super) mod ranges;
pub(super) mod skills;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

pub(super) use files::max_upload_bytes;
pub(super) use upload::SETTING as UPLOAD_SETTING;

use crate::http::transport::streamed_response::chunks;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Envelope<T> {
    /// `success`
    status: &'static str,
    data: T,
}

/// Larger texts are serialized while they are sent. Serializing them at once would need memory for
/// a second copy and block the runtime's thread.
const MIN_STREAMED_BYTES: usize = 1 << 20;

/// A response whose `data` contains about `size` bytes of text.
fn text<T: Serialize + Send + 'static>(size: usize, data: T) -> Response {
    if size < MIN_STREAMED_BYTES {
        return success(data).into_response();
    }
    let body = chunks(move |to| Ok(serde_json::to_writer(to, &success(data).0)?));
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A successful response.
fn success<T: Serialize>(data: T) -> Json<Envelope<T>> {
    Json(Envelope { status: "success", data })
}
