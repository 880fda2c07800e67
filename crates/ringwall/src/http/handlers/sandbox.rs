//! `/api/sandbox`: the host paths that agents may reach, and commands of sessions with these paths.
//! `/api/net/hosts`: the network hosts that approvals have added to the allow-list.
//!
//! A path as a route parameter is percent-encoded (`%2Fsrv%2Fdata`). A path that a client or proxy
//! has decoded on the way (`/srv/data`) works too, because the route has a wildcard.

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use ringwall_service::{
    AllowedHost, AllowedPaths, NewSandboxPath, PathChange, SandboxPath, SessionCommand, SessionExecuted, Switch,
    SwitchedPaths, WantedPath,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::run::locale;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult, PathParam, Query};
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
pub(crate) async fn show(by: Caller, headers: HeaderMap) -> JsonResult<AllowedPaths> {
    Ok(Json(by.service.allowed_paths(&by.principal, locale(&headers)).await?))
}

#[utoipa::path(put, path = "/api/sandbox", tag = "paths", operation_id = "switch_paths", request_body = PathSwitch,
    params(("accept-language" = Option<String>, Header, description = "`zh` for message and warnings in Chinese")),
    responses((status = 200, description = "The new state of path control; with `paths` also the list", body = SwitchedPaths)))]
pub(crate) async fn switch(
    by: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody<PathSwitch>,
) -> JsonResult<SwitchedPaths> {
    let switch = Switch::of(body.enabled);
    let Some(paths) = body.paths else {
        let control = by.service.switch_path_control(&by.principal, switch).await?;
        return Ok(Json(SwitchedPaths::new(control, locale(&headers))));
    };
    let wanted = paths.into_iter().map(PathBody::wanted).collect();
    Ok(Json(by.service.apply_path_template(&by.principal, switch, wanted, locale(&headers)).await?))
}

#[utoipa::path(post, path = "/api/sandbox/paths", tag = "paths", operation_id = "add_path", request_body = PathBody,
    params(("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")),
    responses((status = 200, description = "All paths, and warnings about the new one", body = NewSandboxPath)))]
pub(crate) async fn add(
    by: Caller,
    headers: HeaderMap,
    JsonBody(body): JsonBody<PathBody>,
) -> JsonResult<NewSandboxPath> {
    let locale = locale(&headers);
    Ok(Json(by.service.add_path(&by.principal, body.wanted(), locale).await?))
}

#[utoipa::path(patch, path = "/api/sandbox/paths/{key}", tag = "paths", operation_id = "change_path",
    params(("key" = String, Path, description = "The percent-encoded path, or the id of the entry"),
        ("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")), request_body = PathChangeBody,
    responses((status = 200, description = "The changed entry", body = SandboxPath)))]
pub(crate) async fn change(
    by: Caller,
    headers: HeaderMap,
    PathParam(key): PathParam<String>,
    JsonBody(body): JsonBody<PathChangeBody>,
) -> JsonResult<SandboxPath> {
    let locale = locale(&headers);
    let change = PathChange { enabled: body.enabled.map(Switch::of), description: body.description };
    Ok(Json(by.service.change_path(&by.principal, &key, change, locale).await?))
}

#[utoipa::path(delete, path = "/api/sandbox/paths/{key}", tag = "paths", operation_id = "remove_path",
    params(("key" = String, Path, description = "The percent-encoded path, or the id of the entry")),
    responses((status = 200, description = "The entry was removed", body = Removed)))]
pub(crate) async fn remove(by: Caller, PathParam(key): PathParam<String>) -> JsonResult<Removed> {
    by.service.remove_path(&by.principal, &key).await?;
    Ok(Json(Removed { message: "Path removed" }))
}

#[utoipa::path(delete, path = "/api/sandbox/paths", tag = "paths", operation_id = "remove_path_by_name",
    params(RemovePathQuery), responses((status = 200, description = "The entry was removed", body = Removed)))]
pub(crate) async fn remove_named(by: Caller, Query(query): Query<RemovePathQuery>) -> JsonResult<Removed> {
    let path = query.path.filter(|path| !path.trim().is_empty());
    let path = path.ok_or_else(|| Problem::invalid("path is required"))?;
    by.service.remove_path(&by.principal, path.trim()).await?;
    Ok(Json(Removed { message: "Path removed" }))
}

#[utoipa::path(post, path = "/api/sandbox/execute", tag = "paths", operation_id = "execute", request_body = SessionBody,
    responses((status = 200, description = "The command has ended or was denied; see `status`", body = SessionExecuted),
        (status = 202, description = "With `wait: false`: the command runs or waits for an approval", body = SessionExecuted)))]
pub(crate) async fn execute(
    by: Caller,
    JsonBody(SessionBody { session_id, command, agent_id, user_id, cwd, timeout_ms, wait }): JsonBody<SessionBody>,
) -> Result<Response, Problem> {
    let command = SessionCommand { session_id, user_id, agent_id, command, cwd, timeout_ms };
    if wait == Some(false) {
        let begun = by.service.begin_session_command(&by.principal, command).await?;
        return Ok((StatusCode::ACCEPTED, Json(begun)).into_response());
    }
    let executed = by.service.run_session_command(&by.principal, command).await?;
    // Serializing megabytes would block the runtime's other tasks.
    Ok(tokio::task::block_in_place(|| Json(executed).into_response()))
}

#[utoipa::path(get, path = "/api/net/hosts", tag = "networks", operation_id = "hosts",
    responses((status = 200, description = "Remembered hosts, oldest first", body = Vec<AllowedHost>)))]
pub(crate) async fn hosts(by: Caller) -> JsonResult<Vec<AllowedHost>> {
    Ok(Json(by.service.allowed_hosts(&by.principal).await?))
}

#[utoipa::path(delete, path = "/api/net/hosts/{id}", tag = "networks", operation_id = "forget", params(("id" = i64, Path)),
    responses((status = 200, description = "The removed entry; connections to the host need an approval again", body = AllowedHost)))]
pub(crate) async fn forget_host(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<AllowedHost> {
    let id = id.parse().map_err(|_| Problem::not_found("there is no allowed host with that id"))?;
    Ok(Json(by.service.forget_host(&by.principal, id).await?))
}
