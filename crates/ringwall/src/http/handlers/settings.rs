//! `/settings`: the settings that an operator may change while the server runs.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use ringwall_service::{Principal, SettingsView};

use crate::http::AppState;
use crate::http::transport::body::read_json;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/settings", tag = "settings", responses((status = 200, description = "The settings in force", body = SettingsView)))]
pub(crate) async fn show(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<SettingsView>, Problem> {
    Ok(Json(state.service.settings(&principal).await?))
}

#[utoipa::path(put, path = "/settings", tag = "settings", request_body = Object,
    responses((status = 200, description = "The changed settings", body = SettingsView)))]
pub(crate) async fn change(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    body: Body,
) -> Result<Json<SettingsView>, Problem> {
    let patch = read_json(body, state.max_body_bytes).await?;
    Ok(Json(state.service.change_settings(&principal, patch).await?))
}
