//! `/settings`: the settings that an operator may change while the server runs.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use ringwall_service::SettingsView;

use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, read_json};

#[utoipa::path(get, path = "/settings", tag = "settings", responses((status = 200, description = "The settings in force", body = SettingsView)))]
pub(crate) async fn show(by: Caller) -> JsonResult<SettingsView> {
    Ok(Json(by.service.settings(&by.principal).await?))
}

#[utoipa::path(put, path = "/settings", tag = "settings", request_body = Object,
    responses((status = 200, description = "The changed settings", body = SettingsView)))]
pub(crate) async fn change(State(state): State<AppState>, by: Caller, body: Body) -> JsonResult<SettingsView> {
    let patch = read_json(body, state.max_body_bytes).await?;
    Ok(Json(by.service.change_settings(&by.principal, patch).await?))
}
