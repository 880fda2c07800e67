//! `/v1/sandbox/{user}/{agent}/…`: the general sandbox of an agent, which is its `files/`. Paths
//! are relative to that; lines are addressed by range.

use axum::body::Body;
use axum::response::Response;
use ringwall_service::{Address, AgentPath, Lines, Text};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{IntoParams, ToSchema};

use super::envelope::{self, Envelope, success};
use super::files::max_upload_bytes;
use super::upload::SETTING;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, read_text_within};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct RangeQuery {
    /// Path of a file, relative to the sandbox or the skill
    pub(super) path: String,
    /// First line, from 1; default 1
    pub(super) start: Option<u64>,
    /// Last line, inclusive; default the end of the file
    pub(super) end: Option<u64>,
}

impl RangeQuery {
    /// The requested range; `None` without parameters.
    pub(super) fn lines(&self) -> Result<Option<Lines>, Problem> {
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
pub(super) struct RangeContent {
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

/// The response with a range, or with the whole text if `lines` is `None`.
pub(super) fn ranged(text: Text, lines: Option<Lines>) -> Response {
    let size = text.content().len();
    let content = if lines.is_some() { Part::Lines(text) } else { Part::Whole(text) };
    envelope::text(size, RangeContent { content })
}

/// Reads a range of a file in the sandbox or in a skill.
pub(super) async fn read_range(
    by: &Caller,
    address: &Address,
    path: &AgentPath,
    query: &RangeQuery,
) -> Result<Response, Problem> {
    let lines = query.lines()?;
    let text = by.service.read_file(&by.principal, address, path, lines.unwrap_or(Lines::ALL)).await?;
    Ok(ranged(text, lines))
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
