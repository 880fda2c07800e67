//! `/api/gc`: removes expired sessions, leftover temporary files and replaced versions of
//! baselines.

use axum::Json;
use ringwall_service::{Freed, GcMode};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, Query};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GcQuery {
    /// True: removes nothing and reports what would be removed
    dry_run: Option<bool>,
}

#[utoipa::path(post, path = "/api/gc", tag = "server", operation_id = "collect_garbage", params(GcQuery),
    responses((status = 200, description = "What was removed, or would be with `dry_run`", body = Freed)))]
pub(crate) async fn collect(by: Caller, Query(query): Query<GcQuery>) -> JsonResult<Freed> {
    let mode = if query.dry_run.unwrap_or(false) { GcMode::DryRun } else { GcMode::Remove };
    Ok(Json(by.service.collect_garbage(&by.principal, mode).await?))
}
