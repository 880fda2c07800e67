//! `/v1/{agent}/…` and `/v1/files/{agent}/upload`: the files of an agent of the caller's own user.
//!
//! Here a path is checked as text; the workspace opens it beneath a directory handle. Responses
//! repeat paths as the client sent them.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use ringwall_service::{Address, AgentPath, Download, Edit, Lines, Service, Text};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};

use super::upload::{SETTING, receive};
use super::{Envelope, success, text};
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, deserialize, read_json_within};
use crate::http::transport::file_response::send_file;
use crate::http::transport::problem::Problem;
use crate::http::transport::streamed_response::send_archive;

/// The user of the agent in the path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserQuery {
    /// User of the agent. Default: the token's own user; `default` for owner and operator tokens
    pub(super) user: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PathQuery {
    /// `files`, `skills`, or a path beneath one of them
    path: String,
    /// User of the agent. Default: the token's own user; `default` for owner and operator tokens
    user: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ContentQuery {
    /// A file beneath `files` or `skills`
    path: String,
    /// First line to return, from 1; default 1
    offset: Option<u64>,
    /// Number of lines to return at most, at least 1; default all
    limit: Option<u64>,
    /// User of the agent. Default: the token's own user; `default` for owner and operator tokens
    user: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewContent {
    /// Path beneath `files` or `skills`
    file_path: String,
    content: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEdit {
    /// Path beneath `files` or `skills`
    file_path: String,
    /// Text to replace; must not be empty
    old_string: String,
    new_string: String,
    /// Number of occurrences of `old_string`; default 1. If the file has another number, nothing is
    /// changed
    expected_replacements: Option<u64>,
}

/// A multipart form
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "documentation only; the form is read as a stream")]
pub(crate) struct FileForm {
    /// The file. Only the last component of its name counts
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// The text of a file, or a page of it
#[derive(Debug, ToSchema)]
#[schema(as = FileContent)]
#[expect(dead_code, reason = "documentation only; `Content` writes the response")]
pub(crate) struct FileContentSchema {
    content: String,
    /// The lines of `content`
    lines: Vec<String>,
}

/// Serializes a text as [`FileContentSchema`] without copying its lines.
#[derive(Debug)]
pub(crate) struct Content(Text);

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Parts<'a>(&'a Text);
        impl Serialize for Parts<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.0.lines())
            }
        }
        let mut content = serializer.serialize_struct("Content", 2)?;
        content.serialize_field("content", self.0.content())?;
        content.serialize_field("lines", &Parts(&self.0))?;
        content.end()
    }
}

fn parse(path: &str) -> Result<AgentPath, Problem> {
    Ok(AgentPath::parse(path).map_err(ringwall_service::Error::from)?)
}

/// Limit of request bodies that contain a file.
pub(in crate::http) fn max_upload_bytes(service: &Service) -> usize {
    usize::try_from(service.upload_max_bytes()).unwrap_or(usize::MAX)
}

#[utoipa::path(post, path = "/v1/files/{agent}/upload", tag = "files", params(("agent" = String, Path), UserQuery),
    request_body(content = FileForm, content_type = "multipart/form-data"),
    responses((status = 200, description = "A sentence with the path of the file", body = Envelope<String>)))]
pub(crate) async fn upload(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
    headers: HeaderMap,
    body: Body,
) -> JsonResult<Envelope<String>> {
    let mut upload = by.service.begin_upload(&by.principal, &Address { user, agent }).await?;
    let received = receive(&headers, body, by.service.upload_max_bytes(), &mut upload).await?;
    let place = by.service.finish_upload(upload, &received.file_name).await?;
    Ok(success(format!("File uploaded successfully: {place}")))
}

#[utoipa::path(get, path = "/v1/{agent}/files", tag = "files", params(("agent" = String, Path), PathQuery),
    responses((status = 200, description = "Paths of all regular files beneath the directory, sorted; empty if the directory does not exist", body = Envelope<Vec<String>>)))]
pub(crate) async fn list(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(PathQuery { path, user }): Query<PathQuery>,
) -> JsonResult<Envelope<Vec<String>>> {
    let listing = by.service.list_files(&by.principal, &Address { user, agent }, parse(&path)?).await?;
    Ok(success(listing.whole()))
}

#[utoipa::path(get, path = "/v1/{agent}/content", tag = "files", params(("agent" = String, Path), ContentQuery),
    responses((status = 200, description = "The text of the file, or a page of it", body = Envelope<FileContentSchema>)))]
pub(crate) async fn content(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(ContentQuery { path, offset, limit, user }): Query<ContentQuery>,
) -> Result<Response, Problem> {
    let lines = Lines::page(offset, limit).map_err(ringwall_service::Error::from)?;
    let found = by.service.read_file(&by.principal, &Address { user, agent }, &parse(&path)?, lines).await?;
    Ok(text(found.content().len(), Content(found)))
}

#[utoipa::path(post, path = "/v1/{agent}/write", tag = "files", params(("agent" = String, Path), UserQuery),
    request_body = NewContent,
    responses((status = 200, description = "The file was created or replaced; missing directories were created", body = Envelope<String>)))]
pub(crate) async fn write(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
    body: Body,
) -> JsonResult<Envelope<String>> {
    let new: NewContent = deserialize(read_json_within(body, max_upload_bytes(&by.service), SETTING).await?)?;
    let address = Address { user, agent };
    by.service.replace_lines(&by.principal, &address, &parse(&new.file_path)?, None, &new.content).await?;
    Ok(success(format!("Successfully created or overwritten file: {}", new.file_path)))
}

#[utoipa::path(post, path = "/v1/{agent}/edit", tag = "files", params(("agent" = String, Path), UserQuery),
    request_body = NewEdit,
    responses((status = 200, description = "The file was changed", body = Envelope<String>)))]
pub(crate) async fn edit(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
    body: Body,
) -> JsonResult<Envelope<String>> {
    let new: NewEdit = deserialize(read_json_within(body, max_upload_bytes(&by.service), SETTING).await?)?;
    let expected = new.expected_replacements.unwrap_or(1);
    let edit = Edit { old: new.old_string, new: new.new_string, expected };
    by.service.edit_file(&by.principal, &Address { user, agent }, &parse(&new.file_path)?, &edit).await?;
    Ok(success(format!("Successfully edited file: {}", new.file_path)))
}

#[utoipa::path(delete, path = "/v1/{agent}/delete", tag = "files", params(("agent" = String, Path), PathQuery),
    responses((status = 200, description = "The file, or the directory with its content, was deleted", body = Envelope<String>)))]
pub(crate) async fn delete(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(PathQuery { path, user }): Query<PathQuery>,
) -> JsonResult<Envelope<String>> {
    by.service.delete_path(&by.principal, &Address { user, agent }, &parse(&path)?).await?;
    Ok(success(format!("Successfully deleted path: {path}")))
}

#[utoipa::path(get, path = "/v1/{agent}/download", tag = "files",
    params(
        ("agent" = String, Path),
        PathQuery,
        ("Range" = Option<String>, Header, description = "A single byte range of a file: `bytes=0-99`, `bytes=100-` or `bytes=-100`"),
        ("If-Range" = Option<String>, Header, description = "ETag of the part that the client already has; if the file has another one, the whole file is sent"),
    ),
    responses(
        (status = 200, description = "The content of a file, or a directory as a zip", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 206, description = "The requested range", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 416, description = "The range lies outside of the file"),
    ))]
pub(crate) async fn download(
    State(state): State<AppState>,
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(PathQuery { path, user }): Query<PathQuery>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let permit = state.streams.acquire(&by.principal)?;
    match by.service.download(&by.principal, &Address { user, agent }, parse(&path)?).await? {
        Download::File { file, size } => send_file(file, size, &method, &headers, permit),
        Download::Directory(archive) => Ok(send_archive(archive, &method, permit)),
    }
}
