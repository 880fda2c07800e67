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

/// An answer that says yes.
pub(crate) fn success<T: Serialize>(data: T) -> Json<Envelope<T>> {
    Json(Envelope { status: "success", data })
}
