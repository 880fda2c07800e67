//! `/api/sessions/{id}/files`: lists, reads, writes and deletes the files of a session, also while
//! boxes use them.
//!
//! Here a path is checked as text; the workspace opens it beneath the session's directory handle. A
//! path that leaves the session is `PathTraversal`.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use ringwall_service::{AgentPath, Download, SessionAddress};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::sessions::SessionOwner;
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, read_bytes};
use crate::http::transport::file_response::send_file;
use crate::http::transport::problem::Problem;
use crate::http::transport::streamed_response::send_archive;
use crate::http::v1::{UPLOAD_SETTING, max_upload_bytes};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct DirectoryQuery {
    /// Directory relative to the session's workspace; default the whole workspace
    path: Option<String>,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionFiles {
    /// Paths of all regular files beneath the directory, relative to the session's workspace,
    /// sorted
    files: Vec<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionFileWritten {
    path: String,
    size: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionFileDeleted {
    path: String,
    deleted: bool,
}

fn parse(path: &str) -> Result<AgentPath, Problem> {
    AgentPath::in_session(path).map_err(|refusal| Problem::from_session_error(refusal.into()))
}

#[utoipa::path(get, path = "/api/sessions/{id}/files", tag = "sessions", operation_id = "list_files",
    params(("id" = String, Path), DirectoryQuery),
    responses((status = 200, description = "Every file beneath the directory", body = SessionFiles)))]
pub(crate) async fn list(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(query): Query<DirectoryQuery>,
) -> JsonResult<SessionFiles> {
    let path = parse(query.path.as_deref().unwrap_or_default())?;
    let address = SessionAddress { session_id: id, user_id: query.user_id, agent_id: query.agent_id };
    let files =
        by.service.list_session_files(&by.principal, &address, path).await.map_err(Problem::from_session_error)?;
    Ok(Json(SessionFiles { files }))
}

#[utoipa::path(get, path = "/api/sessions/{id}/files/{path}", tag = "sessions", operation_id = "read_file",
    params(
        ("id" = String, Path),
        ("path" = String, Path),
        SessionOwner,
        ("Range" = Option<String>, Header, description = "A single byte range of a file: `bytes=0-99`, `bytes=100-` or `bytes=-100`"),
    ),
    responses(
        (status = 200, description = "The content of a file, or a directory as a zip", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The requested range", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 403, description = "The path leaves the session (`PathTraversal`)"),
        (status = 416, description = "The range lies outside of the file"),
    ))]
pub(crate) async fn read(
    State(state): State<AppState>,
    by: Caller,
    PathParam((id, path)): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = state.streams.acquire(&by.principal)?;
    let found = by.service.download_session_file(&by.principal, &owner.address(id), parse(&path)?).await;
    match found.map_err(Problem::from_session_error)? {
        Download::File { file, size } => send_file(file, size, &method, &headers, permit),
        Download::Directory(archive) => Ok(send_archive(archive, &method, permit)),
    }
}

#[utoipa::path(put, path = "/api/sessions/{id}/files/{path}", tag = "sessions", operation_id = "write_file",
    params(("id" = String, Path), ("path" = String, Path), SessionOwner),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The content of the file"),
    responses((status = 200, description = "The file was written; missing directories were created", body = SessionFileWritten),
        (status = 403, description = "The path leaves the session (`PathTraversal`)")))]
pub(crate) async fn write(
    by: Caller,
    PathParam((id, path)): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
    body: Body,
) -> JsonResult<SessionFileWritten> {
    let file = parse(&path)?;
    let bytes = read_bytes(body, max_upload_bytes(&by.service), UPLOAD_SETTING).await?;
    let size = bytes.len();
    let written = by.service.write_session_file(&by.principal, &owner.address(id), file, bytes).await;
    written.map_err(Problem::from_session_error)?;
    Ok(Json(SessionFileWritten { path, size }))
}

#[utoipa::path(delete, path = "/api/sessions/{id}/files/{path}", tag = "sessions", operation_id = "delete_file",
    params(("id" = String, Path), ("path" = String, Path), SessionOwner),
    responses((status = 200, description = "The file, or the directory with its content, was deleted", body = SessionFileDeleted),
        (status = 403, description = "The path leaves the session (`PathTraversal`)")))]
pub(crate) async fn remove(
    by: Caller,
    PathParam((id, path)): PathParam<(String, String)>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<SessionFileDeleted> {
    let removed = by.service.delete_session_file(&by.principal, &owner.address(id), &parse(&path)?).await;
    removed.map_err(Problem::from_session_error)?;
    Ok(Json(SessionFileDeleted { path, deleted: true }))
}
