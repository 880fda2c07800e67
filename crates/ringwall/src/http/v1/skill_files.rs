//! `/v1/skills/{user}/{agent}/{skill}/…`: the files of a skill. Paths are relative to the skill;
//! lines are addressed by range. Writes go to the user's overlay; a baseline skill that other users
//! share does not change.

use axum::body::Body;
use axum::response::Response;
use ringwall_service::{Address, AgentPath};

use super::envelope::{Envelope, success};
use super::files::max_upload_bytes;
use super::sandbox::{RangeContentSchema, RangeQuery, read_range};
use super::upload::SETTING;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, read_text_within};
use crate::http::transport::problem::Problem;

fn parse(skill: &str, path: &str) -> Result<AgentPath, Problem> {
    Ok(AgentPath::in_skill(skill, path).map_err(ringwall_service::Error::from)?)
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/files", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path)),
    responses((status = 200, description = "Paths of all files of the skill in both layers, relative to the skill, sorted", body = Envelope<Vec<String>>)))]
pub(crate) async fn list(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
) -> JsonResult<Envelope<Vec<String>>> {
    let address = Address { user: Some(user), agent };
    Ok(success(by.service.list_skill_files(&by.principal, &address, &skill).await?.relative()))
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/content", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    responses((status = 200, description = "The text of the file, or the lines of the range", body = Envelope<RangeContentSchema>)))]
pub(crate) async fn content(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
) -> Result<Response, Problem> {
    let address = Address { user: Some(user), agent };
    read_range(&by, &address, &parse(&skill, &query.path)?, &query).await
}

#[utoipa::path(put, path = "/v1/skills/{user}/{agent}/{skill}/edit", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "The lines, or without a range the whole file, were replaced by the body, in the user's overlay", body = Envelope<String>)))]
pub(crate) async fn edit(
    by: Caller,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
    body: Body,
) -> JsonResult<Envelope<&'static str>> {
    let address = Address { user: Some(user), agent };
    let (path, lines) = (parse(&skill, &query.path)?, query.lines()?);
    let text = read_text_within(body, max_upload_bytes(&by.service), SETTING).await?;
    by.service.replace_skill_lines(&by.principal, &address, &skill, &path, lines, &text).await?;
    Ok(success("Skill file updated successfully."))
}
