//! `/settings`: the settings that an operator may change while the server runs.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use ringwall_service::{Principal, SettingsView};

use crate::http::Door;
use crate::http::transport::body::read_json;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/settings", tag = "settings", responses((status = 200, description = "The settings in force", body = SettingsView)))]
pub(crate) async fn show(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<SettingsView>, Problem> {
    Ok(Json(door.service.settings(&principal).await?))
}

#[utoipa::path(put, path = "/settings", tag = "settings", request_body = Object,
    responses((status = 200, description = "The changed settings", body = SettingsView)))]
pub(crate) async fn change(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    body: Body,
) -> Result<Json<SettingsView>, Problem> {
    let patch = read_json(body, door.largest_body).await?;
    Ok(Json(door.service.change_settings(&principal, patch).await?))
}
