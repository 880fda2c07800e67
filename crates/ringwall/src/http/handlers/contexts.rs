//! `/api/contexts`: the stateful interpreters of a session. `/api/pool`: numbers of the boxes that
//! the server keeps.

use axum::Json;
use axum::extract::State;
use ringwall_service::{ContextAddress, ContextView, PoolFigures};
use serde::Serialize;
use utoipa::ToSchema;

use super::sessions::SessionOwner;
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query};

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextList {
    contexts: Vec<ContextView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextInterrupted {
    context_id: String,
    /// False if no code was running in the context
    interrupted: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextRestarted {
    context_id: String,
    restarted: bool,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextDeleted {
    context_id: String,
    deleted: bool,
}

/// Session boxes and warm boxes. `total` is `busy + idle + warming`, and exceeds `max` only after
/// `max` was lowered
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolAnswer {
    total: u32,
    /// Session boxes in use, being acquired or being destroyed
    busy: u32,
    /// Unused session boxes and warm boxes
    idle: u32,
    /// Boxes being created
    warming: u32,
    /// The setting `pool.max_instances`
    max: u32,
    /// Requests that found a box ready
    hits: u64,
    /// Requests for which a box had to be created
    misses: u64,
}

#[utoipa::path(get, path = "/api/contexts/{session_id}", tag = "contexts",
    params(("session_id" = String, Path), SessionOwner),
    responses((status = 200, description = "The contexts of the session", body = ContextList)))]
pub(crate) async fn list(
    by: Caller,
    PathParam(session): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<ContextList> {
    Ok(Json(ContextList { contexts: by.service.contexts(&by.principal, &owner.address(session)).await? }))
}

#[utoipa::path(post, path = "/api/contexts/{session_id}/{context_id}/interrupt", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), SessionOwner),
    responses((status = 200, description = "SIGINT was sent to the code that runs in the context; variables stay", body = ContextInterrupted)))]
pub(crate) async fn interrupt(
    by: Caller,
    PathParam(ids): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<ContextInterrupted> {
    let address = address(ids, owner);
    let interrupted = by.service.interrupt_context(&by.principal, &address).await?;
    Ok(Json(ContextInterrupted { context_id: address.context_id, interrupted }))
}

#[utoipa::path(post, path = "/api/contexts/{session_id}/{context_id}/restart", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), SessionOwner),
    responses((status = 200, description = "The interpreter ended; the next run starts a new one without the variables", body = ContextRestarted)))]
pub(crate) async fn restart(
    by: Caller,
    PathParam(ids): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<ContextRestarted> {
    let address = address(ids, owner);
    by.service.restart_context(&by.principal, &address).await?;
    Ok(Json(ContextRestarted { context_id: address.context_id, restarted: true }))
}

#[utoipa::path(delete, path = "/api/contexts/{session_id}/{context_id}", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), SessionOwner),
    responses((status = 200, description = "The context was deleted", body = ContextDeleted)))]
pub(crate) async fn delete(
    by: Caller,
    PathParam(ids): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<ContextDeleted> {
    let address = address(ids, owner);
    by.service.delete_context(&by.principal, &address).await?;
    Ok(Json(ContextDeleted { context_id: address.context_id, deleted: true }))
}

#[utoipa::path(get, path = "/api/pool", tag = "contexts",
    responses((status = 200, description = "Numbers of session boxes and warm boxes", body = PoolAnswer)))]
pub(crate) async fn pool(State(state): State<AppState>) -> Json<PoolAnswer> {
    let PoolFigures { total, busy, idle, warming, max, hits, misses, warm_boxes: _ } = state.service.pool();
    Json(PoolAnswer { total, busy, idle, warming, max, hits, misses })
}

fn address((session_id, context_id): (String, String), owner: SessionOwner) -> ContextAddress {
    ContextAddress { session: owner.address(session_id), context_id }
}
