//! `/api/sandbox`: the host paths that agents may reach, and commands of sessions with these paths.
//!
//! A path as a route parameter is percent-encoded (`%2Fsrv%2Fdata`). A path that a client or proxy
//! has decoded on the way (`/srv/data`) works too, because the route has a wildcard.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ringwall_service::{
    AllowedPaths, NewSandboxPath, PathChange, Principal, SandboxPath, SessionCommand, SessionExecuted, Switch,
    SwitchedPaths, WantedPath,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::run::locale;
use crate::http::AppState;
use crate::http::transport::body::{PathParam, Query, deserialize, read_json};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathSwitch {
    enabled: bool,
    /// Entries to add if they are missing. No entry is removed
    paths: Option<Vec<PathBody>>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathBody {
    /// File or directory of the host; it need not exist. A relative path is resolved against the
    /// server's working directory. `*` and empty segments (`//`) are rejected
    #[schema(required)]
    path: Option<String>,
    description: Option<String>,
}

impl PathBody {
    fn wanted(self) -> WantedPath {
        let text = |text: Option<String>| text.map(|text| text.trim().to_owned()).unwrap_or_default();
        WantedPath { path: text(self.path), description: text(self.description) }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathChangeBody {
    enabled: Option<bool>,
    description: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemovePathQuery {
    /// Path of the entry
    path: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Removed {
    message: &'static str,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionBody {
    /// All commands of a session share its files. An unknown session is created
    session_id: String,
    /// Command line for bash
    command: String,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
    /// Working directory: `/workspace` (default) or below, or an allowed directory of the host
    cwd: Option<String>,
    /// Timeout in milliseconds
    timeout_ms: Option<u64>,
    /// `false`: respond with 202 as soon as the exec is recorded; default `true`
    wait: Option<bool>,
}

#[utoipa::path(get, path = "/api/sandbox", tag = "paths", operation_id = "show_paths",
    params(("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")),
    responses((status = 200, description = "State of path control, and the allowed paths", body = AllowedPaths)))]
pub(crate) async fn show(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
) -> Result<Json<AllowedPaths>, Problem> {
    Ok(Json(state.service.allowed_paths(&principal, locale(&headers)).await?))
}

#[utoipa::path(put, path = "/api/sandbox", tag = "paths", operation_id = "switch_paths", request_body = PathSwitch,
    params(("accept-language" = Option<String>, Header, description = "`zh` for message and warnings in Chinese")),
    responses((status = 200, description = "The new state of path control; with `paths` also the list", body = SwitchedPaths)))]
pub(crate) async fn switch(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<SwitchedPaths>, Problem> {
    let body: PathSwitch = deserialize(read_json(body, state.max_body_bytes).await?)?;
    let switch = Switch::of(body.enabled);
    let Some(paths) = body.paths else {
        let control = state.service.switch_path_control(&principal, switch).await?;
        return Ok(Json(SwitchedPaths::new(control, locale(&headers))));
    };
    let wanted = paths.into_iter().map(PathBody::wanted).collect();
    Ok(Json(state.service.apply_path_template(&principal, switch, wanted, locale(&headers)).await?))
}

#[utoipa::path(post, path = "/api/sandbox/paths", tag = "paths", operation_id = "add_path", request_body = PathBody,
    params(("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")),
    responses((status = 200, description = "All paths, and warnings about the new one", body = NewSandboxPath)))]
pub(crate) async fn add(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<NewSandboxPath>, Problem> {
    let locale = locale(&headers);
    let body: PathBody = deserialize(read_json(body, state.max_body_bytes).await?)?;
    Ok(Json(state.service.add_path(&principal, body.wanted(), locale).await?))
}

#[utoipa::path(patch, path = "/api/sandbox/paths/{key}", tag = "paths", operation_id = "change_path",
    params(("key" = String, Path, description = "The percent-encoded path, or the id of the entry"),
        ("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")), request_body = PathChangeBody,
    responses((status = 200, description = "The changed entry", body = SandboxPath)))]
pub(crate) async fn change(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    PathParam(key): PathParam<String>,
    body: Body,
) -> Result<Json<SandboxPath>, Problem> {
    let locale = locale(&headers);
    let body: PathChangeBody = deserialize(read_json(body, state.max_body_bytes).await?)?;
    let change = PathChange { enabled: body.enabled.map(Switch::of), description: body.description };
    Ok(Json(state.service.change_path(&principal, &key, change, locale).await?))
}

#[utoipa::path(delete, path = "/api/sandbox/paths/{key}", tag = "paths", operation_id = "remove_path",
    params(("key" = String, Path, description = "The percent-encoded path, or the id of the entry")),
    responses((status = 200, description = "The entry was removed", body = Removed)))]
pub(crate) async fn remove(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam(key): PathParam<String>,
) -> Result<Json<Removed>, Problem> {
    state.service.remove_path(&principal, &key).await?;
    Ok(Json(Removed { message: "Path removed" }))
}

#[utoipa::path(delete, path = "/api/sandbox/paths", tag = "paths", operation_id = "remove_path_by_name",
    params(RemovePathQuery), responses((status = 200, description = "The entry was removed", body = Removed)))]
pub(crate) async fn remove_named(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    Query(query): Query<RemovePathQuery>,
) -> Result<Json<Removed>, Problem> {
    let path = query.path.filter(|path| !path.trim().is_empty());
    let path = path.ok_or_else(|| Problem::invalid("path is required"))?;
    state.service.remove_path(&principal, path.trim()).await?;
    Ok(Json(Removed { message: "Path removed" }))
}

#[utoipa::path(post, path = "/api/sandbox/execute", tag = "paths", operation_id = "execute", request_body = SessionBody,
    responses((status = 200, description = "The command has ended or was denied; see `status`", body = SessionExecuted),
        (status = 202, description = "With `wait: false`: the command runs or waits for an approval", body = SessionExecuted)))]
pub(crate) async fn execute(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    body: Body,
) -> Result<Response, Problem> {
    let SessionBody { session_id, command, agent_id, user_id, cwd, timeout_ms, wait } =
        deserialize(read_json(body, state.max_body_bytes).await?)?;
    let command = SessionCommand { session_id, user_id, agent_id, command, cwd, timeout_ms };
    if wait == Some(false) {
        let begun = state.service.begin_session_command(&principal, command).await?;
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    let executed = state.service.run_session_command(&principal, command).await?;
    // Serializing megabytes would block the runtime's other tasks.
    Ok(tokio::task::block_in_place(|| Json(executed).into_response()))
}
