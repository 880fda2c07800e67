//! The one form of every answer under `/v1`: `{"status":"success","data":…}`. Errors get theirs in [`crate::http::transport::problem`].

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::transport::archive_answer::pieces;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Envelope<T> {
    /// `success`
    status: &'static str,
    data: T,
}

/// From here on an answer is written while it is sent: in JSON it would be in memory once more, and others would wait for
/// this thread.
const LARGE: usize = 1 << 20;

/// An answer with so many bytes of text in it.
pub(super) fn text<T: Serialize + Send + 'static>(size: usize, data: T) -> Response {
    if size < LARGE {
        return success(data).into_response();
    }
    let body = pieces(move |to| Ok(serde_json::to_writer(to, &success(data).0)?));
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer that says yes.
pub(crate) fn success<T: Serialize>(data: T) -> Json<Envelope<T>> {
    Json(Envelope { status: "success", data })
}
