//! The network connections of an exec, and the hosts that approvals have added to the allow-list.

use axum::Json;
use axum::extract::{Extension, State};
use ringwall_service::{AllowedHost, NetworkView, Principal};

use super::execs::exec_id;
use crate::http::AppState;
use crate::http::transport::body::PathParam;
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/sandbox/execs/{id}/network", tag = "execs", params(("id" = String, Path)),
    responses((status = 200, description = "Every connection that the exec's box requested; empty while the exec runs", body = NetworkView)))]
pub(crate) async fn of_exec(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(id): PathParam<String>,
) -> Result<Json<NetworkView>, Problem> {
    Ok(Json(state.service.exec_network(&principal, &exec_id(&id)?).await?))
}

#[utoipa::path(get, path = "/api/net/hosts", tag = "networks",
    responses((status = 200, description = "Remembered hosts, oldest first", body = Vec<AllowedHost>)))]
pub(crate) async fn hosts(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
) -> Result<Json<Vec<AllowedHost>>, Problem> {
    Ok(Json(state.service.allowed_hosts(&principal).await?))
}

#[utoipa::path(delete, path = "/api/net/hosts/{id}", tag = "networks", params(("id" = i64, Path)),
    responses((status = 200, description = "The removed entry; connections to the host need an approval again", body = AllowedHost)))]
pub(crate) async fn forget(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(id): PathParam<String>,
) -> Result<Json<AllowedHost>, Problem> {
    let id = id.parse().map_err(|_| Problem::not_found("there is no allowed host with that id"))?;
    Ok(Json(state.service.forget_host(&principal, id).await?))
}
