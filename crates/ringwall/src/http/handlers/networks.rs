//! The network connections of an exec, and the hosts that approvals have added to the allow-list.

use axum::Json;
use ringwall_service::{AllowedHost, NetworkView};

use super::execs::exec_id;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam};
use crate::http::transport::problem::Problem;

#[utoipa::path(get, path = "/sandbox/execs/{id}/network", tag = "execs", params(("id" = String, Path)),
    responses((status = 200, description = "Every connection that the exec's box requested; empty while the exec runs", body = NetworkView)))]
pub(crate) async fn of_exec(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<NetworkView> {
    Ok(Json(by.service.exec_network(&by.principal, &exec_id(&id)?).await?))
}

#[utoipa::path(get, path = "/api/net/hosts", tag = "networks",
    responses((status = 200, description = "Remembered hosts, oldest first", body = Vec<AllowedHost>)))]
pub(crate) async fn hosts(by: Caller) -> JsonResult<Vec<AllowedHost>> {
    Ok(Json(by.service.allowed_hosts(&by.principal).await?))
}

#[utoipa::path(delete, path = "/api/net/hosts/{id}", tag = "networks", params(("id" = i64, Path)),
    responses((status = 200, description = "The removed entry; connections to the host need an approval again", body = AllowedHost)))]
pub(crate) async fn forget(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<AllowedHost> {
    let id = id.parse().map_err(|_| Problem::not_found("there is no allowed host with that id"))?;
    Ok(Json(by.service.forget_host(&by.principal, id).await?))
}
