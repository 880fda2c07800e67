//! `/v1/skills/{user}/{agent}/{skill}/…`: the files of a skill. Paths are relative to the skill;
//! lines are addressed by range. Writes go to the user's overlay; a baseline skill that other users
//! share does not change.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use ringwall_service::{Address, AgentPath, Principal};

use super::envelope::{Envelope, success};
use super::files::max_upload_bytes;
use super::sandbox::{RangeContentSchema, RangeQuery, read_range};
use super::upload::SETTING;
use crate::http::AppState;
use crate::http::transport::body::{PathParam, Query, read_text_within};
use crate::http::transport::problem::Problem;

fn parse(skill: &str, path: &str) -> Result<AgentPath, Problem> {
    Ok(AgentPath::in_skill(skill, path).map_err(ringwall_service::Error::from)?)
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/files", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path)),
    responses((status = 200, description = "Paths of all files of the skill in both layers, relative to the skill, sorted", body = Envelope<Vec<String>>)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
) -> Result<Json<Envelope<Vec<String>>>, Problem> {
    let address = Address { user: Some(user), agent };
    Ok(success(state.service.list_skill_files(&principal, &address, &skill).await?.relative()))
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/{skill}/content", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    responses((status = 200, description = "The text of the file, or the lines of the range", body = Envelope<RangeContentSchema>)))]
pub(crate) async fn content(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
) -> Result<Response, Problem> {
    let address = Address { user: Some(user), agent };
    read_range(&state, &principal, &address, &parse(&skill, &query.path)?, &query).await
}

#[utoipa::path(put, path = "/v1/skills/{user}/{agent}/{skill}/edit", tag = "skill files",
    params(("user" = String, Path), ("agent" = String, Path), ("skill" = String, Path), RangeQuery),
    request_body(content = String, content_type = "text/plain"),
    responses((status = 200, description = "The lines, or without a range the whole file, were replaced by the body, in the user's overlay", body = Envelope<String>)))]
pub(crate) async fn edit(
    State(state): State<AppState>,
    Extension(principal): Extension<Principal>,
    PathParam((user, agent, skill)): PathParam<(String, String, String)>,
    Query(query): Query<RangeQuery>,
    body: Body,
) -> Result<Json<Envelope<&'static str>>, Problem> {
    let address = Address { user: Some(user), agent };
    let (path, lines) = (parse(&skill, &query.path)?, query.lines()?);
    let text = read_text_within(body, max_upload_bytes(&state), SETTING).await?;
    state.service.replace_skill_lines(&principal, &address, &skill, &path, lines, &text).await?;
    Ok(success("Skill file updated successfully."))
}
