//! The envelope of successful responses under `/v1`: `{"status":"success","data":…}`. Errors get
//! theirs in [`crate::http::transport::problem`].

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

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
pub(super) fn text<T: Serialize + Send + 'static>(size: usize, data: T) -> Response {
    if size < MIN_STREAMED_BYTES {
        return success(data).into_response();
    }
    let body = chunks(move |to| Ok(serde_json::to_writer(to, &success(data).0)?));
    let mut response = Response::new(Body::from_stream(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A successful response.
pub(crate) fn success<T: Serialize>(data: T) -> Json<Envelope<T>> {
    Json(Envelope { status: "success", data })
}
