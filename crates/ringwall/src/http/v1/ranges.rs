//! Files whose lines are addressed by range: `/v1/sandbox/{user}/{agent}/…`, the general sandbox of an
//! agent, which is its `files/`, and `/v1/skills/{user}/{agent}/{skill}/…`, the files of a skill. Paths
//! are relative to these directories. Writes to a skill go to the user's overlay; a baseline skill that
//! other users share does not change.

use axum::body::Body;
use axum::response::Response;
use ringwall_service::{Address, AgentPath, Lines, Text};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};

use super::files::max_upload_bytes;
use super::upload::SETTING;
use super::{Envelope, success, text};
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, read_text_within};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RangeQuery {
    /// Path of a file, relative to the sandbox or the skill
    path: String,
    /// First line, from 1; default 1
    start: Option<u64>,
    /// Last line, inclusive; default the end of the file
    end: Option<u64>,
}

impl RangeQuery {
    /// The requested range; `None` without parameters.
    fn lines(&self) -> Result<Option<Lines>, Problem> {
        match (self.start, self.end) {
            (None, None) => Ok(None),
            (start, end) => Ok(Some(Lines::range(start, end).map_err(ringwall_service::Error::from)?)),
        }
    }
}

/// The text of a file, or the lines of a range
#[derive(Debug, ToSchema)]
#[schema(as = RangeContent)]
#[expect(dead_code, reason = "documentation only; `Ranged` writes the response")]
pub(crate) struct RangeContentSchema {
    /// A string; with `start` or `end` an array of strings
    #[schema(value_type = Value)]
    content: String,
}

/// Serializes a text as [`RangeContentSchema`].
#[derive(Debug, Serialize)]
struct RangeContent {
    content: Part,
}

#[derive(Debug)]
enum Part {
    Whole(Text),
    Lines(Text),
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Part::Whole(text) => serializer.serialize_str(text.content()),
            Part::Lines(text) => serializer.collect_seq(text.lines()),
        }
    }
}

/// Reads a range of a file in the sandbox or in a skill.
async fn read_range(by: &Caller, address: &Address, path: &AgentPath, query: &RangeQuery) -> Result<Response, Problem> {
    let lines = query.lines()?;
    let found = by.service.read_file(&by.principal, address, path, lines.unwrap_or(Lines::ALL)).await?;
    let size = found.content().len();
    let content = if lines.is_some() { Part::Lines(found) } else { Part::Whole(found) };
    Ok(text(size, RangeContent { content }))
}

fn parse(path: &str) -> Result<AgentPath, Problem> {
    Ok(AgentPath::in_files(path).map_err(ringwall_service::Error::from)?)
}

#[utoipa::path(put, path = "/v1/sandbox/{user}/{agent}/edit", tag = "sandbox",
    params(("user" = String, Path), ("agent" = String, Path), RangeQuery),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "The lines, or without a range the whole file, were replaced by the body", body = Envelope<String>)))]
pub(crate) async fn edit(
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
    Query(query): Query<RangeQuery>,
    body: Body,
) -> JsonResult<Envelope<&'static str>> {
    let address = Address { user: Some(user), agent };
    let (path, lines) = (parse(&query.path)?, query.lines()?);
    let text = read_text_within(body, max_upload_bytes(&by.service), SETTING).await?;
    by.service.replace_lines(&by.principal, &address, &path, lines, &text).await?;
    Ok(success("Sandbox file updated successfully."))
}

#[utoipa::path(get, path = "/v1/sandbox/{user}/{agent}/files", tag = "sandbox",
    params(("user" = String, Path), ("agent" = String, Path)),
    responses((status = 200, description = "Paths of all regular files, relative to the sandbox, sorted", body = Envelope<Vec<String>>)))]
pub(crate) async fn files(
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
) -> JsonResult<Envelope<Vec<String>>> {
    let address = Address { user: Some(user), agent };
    Ok(success(by.service.list_files(&by.principal, &address, parse("")?).await?.relative()))
}

#[utoipa::path(get, path = "/v1/sandbox/{user}/{agent}/content", tag = "sandbox",
    params(("user" = String, Path), ("agent" = String, Path), RangeQuery),
    responses((status = 200, description = "The text of the file, or the lines of the range", body = Envelope<RangeContentSchema>)))]
pub(crate) async fn content(
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
    Query(query): Query<RangeQuery>,
) -> Result<Response, Problem> {
    let address = Address { user: Some(user), agent };
    read_range(&by, &address, &parse(&query.path)?, &query).await
}

fn parse_in_skill(skill: &str, path: &str) -> Result<AgentPath, Problem> {
    Ok(AgentPath::in_skill(skill, path).map_err(ringwall_service::Error::from)?)
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/files", tag = "skill files", operation_id = "list",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path)),
    responses((status = 200, description = "Paths of all files of the skill in both layers, relative to the skill, sorted", body = Envelope<Vec<String>>)))]
pub(crate) async fn skill_files(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
) -> JsonResult<Envelope<Vec<String>>> {
    let address = Address { user: Some(user), agent };
    Ok(success(by.service.list_skill_files(&by.principal, &address, &skill).await?.relative()))
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/content", tag = "skill files", operation_id = "content",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    responses((status = 200, description = "The text of the file, or the lines of the range", body = Envelope<RangeContentSchema>)))]
pub(crate) async fn skill_content(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
) -> Result<Response, Problem> {
    let address = Address { user: Some(user), agent };
    read_range(&by, &address, &parse_in_skill(&skill, &query.path)?, &query).await
}

#[utoipa::path(put, path = "/v1/skills/{user}/{agent}/{skill}/edit", tag = "skill files", operation_id = "edit",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "The lines, or without a range the whole file, were replaced by the body, in the user's overlay", body = Envelope<String>)))]
pub(crate) async fn edit_skill(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
    body: Body,
) -> JsonResult<Envelope<&'static str>> {
    let address = Address { user: Some(user), agent };
    let (path, lines) = (parse_in_skill(&skill, &query.path)?, query.lines()?);
    let text = read_text_within(body, max_upload_bytes(&by.service), SETTING).await?;
    by.service.replace_skill_lines(&by.principal, &address, &skill, &path, lines, &text).await?;
    Ok(success("Skill file updated successfully."))
}
