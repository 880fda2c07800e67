//! The one form of every answer under `/v1`: `{"status":"success","data":…}`. Errors get theirs in [`super::super::problem`].

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Envelope<T> {
    /// `success`
    status: &'static str,
    data: T,
}

/// From here on it takes so long to write an answer that others should not wait for this thread.
const LARGE: usize = 1 << 20;

/// Writes an answer about so many bytes.
pub(super) fn spacious<T>(size: usize, write: impl FnOnce() -> T) -> T {
    if size < LARGE { write() } else { tokio::task::block_in_place(write) }
}

/// An answer that says yes.
pub(crate) fn success<T: Serialize>(data: T) -> Json<Envelope<T>> {
    Json(Envelope { status: "success", data })
}
