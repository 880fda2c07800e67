//! `/api/gc`: removes expired sessions, leftover temporary files and replaced versions of
//! baselines.

use axum::Json;
use axum::extract::{Extension, State};
use ringwall_service::{Freed, GcMode, Principal};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::AppState;
use crate::http::transport::body::Query;
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct GcQuery {
    /// True: removes nothing and reports what would be removed
    dry_run: Option<bool>,
}

#[utoipa::path(post, path = "/api/gc", tag = "server", operation_id = "collect_garbage", params(GcQuery),
    responses((status = 200, description = "What was removed, or would be with `dry_run`", body = Freed)))]
pub(crate) async fn collect(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<GcQuery>,
) -> Result<Json<Freed>, Problem> {
    let mode = if query.dry_run.unwrap_or(false) { GcMode::DryRun } else { GcMode::Remove };
    Ok(Json(state.service.collect_garbage(&principal, mode).await?))
}
