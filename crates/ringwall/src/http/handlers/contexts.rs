//! `/api/contexts`: the interpreters that stay between runs of a session; and `/api/pool`, the boxes that they are in.

use axum::Json;
use axum::extract::{Extension, State};
use ringwall_service::{ContextAddress, ContextView, PoolFigures, Principal};
use serde::Serialize;
use utoipa::ToSchema;

use super::sessions::WhoseWords;
use crate::http::Door;
use crate::http::transport::body::{Named, Words};
use crate::http::transport::problem::Problem;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextList {
    contexts: Vec<ContextView>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ContextInterrupted {
    context_id: String,
    /// Whether something ran in it
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

/// Boxes of sessions and boxes made ahead. `total` is `busy + idle + warming` and never more than `max`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PoolAnswer {
    total: u32,
    busy: u32,
    idle: u32,
    /// Being made
    warming: u32,
    max: u32,
    /// How often a box was ready, and how often not
    hits: u64,
    misses: u64,
}

#[utoipa::path(get, path = "/api/contexts/{session_id}", tag = "contexts",
    params(("session_id" = String, Path), WhoseWords),
    responses((status = 200, description = "the contexts of a session", body = ContextList)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(session): Named<String>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<ContextList>, Problem> {
    Ok(Json(ContextList { contexts: door.service.contexts(&principal, &whose.address(session)).await? }))
}

#[utoipa::path(post, path = "/api/contexts/{session_id}/{context_id}/interrupt", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), WhoseWords),
    responses((status = 200, description = "what ran in it was told to stop", body = ContextInterrupted)))]
pub(crate) async fn interrupt(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(named): Named<(String, String)>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<ContextInterrupted>, Problem> {
    let address = address(named, whose);
    let interrupted = door.service.interrupt_context(&principal, &address).await?;
    Ok(Json(ContextInterrupted { context_id: address.context_id, interrupted }))
}

#[utoipa::path(post, path = "/api/contexts/{session_id}/{context_id}/restart", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), WhoseWords),
    responses((status = 200, description = "the next run starts from nothing", body = ContextRestarted)))]
pub(crate) async fn restart(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(named): Named<(String, String)>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<ContextRestarted>, Problem> {
    let address = address(named, whose);
    door.service.restart_context(&principal, &address).await?;
    Ok(Json(ContextRestarted { context_id: address.context_id, restarted: true }))
}

#[utoipa::path(delete, path = "/api/contexts/{session_id}/{context_id}", tag = "contexts",
    params(("session_id" = String, Path), ("context_id" = String, Path), WhoseWords),
    responses((status = 200, description = "it is gone", body = ContextDeleted)))]
pub(crate) async fn delete(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(named): Named<(String, String)>,
    Words(whose): Words<WhoseWords>,
) -> Result<Json<ContextDeleted>, Problem> {
    let address = address(named, whose);
    door.service.delete_context(&principal, &address).await?;
    Ok(Json(ContextDeleted { context_id: address.context_id, deleted: true }))
}

#[utoipa::path(get, path = "/api/pool", tag = "contexts",
    responses((status = 200, description = "the boxes that are kept, in numbers", body = PoolAnswer)))]
pub(crate) async fn pool(State(door): State<Door>) -> Json<PoolAnswer> {
    let PoolFigures { total, busy, idle, warming, max, hits, misses, spares: _ } = door.service.pool();
    Json(PoolAnswer { total, busy, idle, warming, max, hits, misses })
}

fn address((session_id, context_id): (String, String), whose: WhoseWords) -> ContextAddress {
    ContextAddress { session: whose.address(session_id), context_id }
}
