//! `/v1/skills`: uploads, lists and deletes the skills of an agent. Routes without `{user}` concern
//! the caller's own user.

use axum::body::Body;
use axum::http::HeaderMap;
use ringwall_service::{Address, LayeredSkill, SkillLayer, SkillName, SkillSummary, SkillUpload};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::files::UserQuery;
use super::upload::receive;
use super::{Envelope, success};
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillQuery {
    /// Directory name of the skill, or its listed name if only one skill has it
    name: String,
    /// User of the agent. Default: the token's own user; `default` for owner and operator tokens
    user: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScopeQuery {
    /// `overlay` (default): the user's own layer. `baseline`: shared by all users of the agent;
    /// owners and operators only. May be given as a form field instead
    scope: Option<String>,
}

/// A multipart form
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "documentation only; the form is read as a stream")]
pub(crate) struct SkillForm {
    /// A zip with one top-level directory per skill, each with a SKILL.md
    #[schema(format = Binary)]
    file: String,
    /// `overlay` or `baseline`, on routes with `{user}` only
    scope: Option<String>,
}

#[utoipa::path(post, path = "/v1/skills/{agent}/upload", tag = "agent skills", operation_id = "upload_own",
    params(("agent" = String, Path), UserQuery), request_body(content = SkillForm, content_type = "multipart/form-data"),
    responses((status = 200, description = "A text with one line per installed skill", body = Envelope<String>)))]
pub(crate) async fn upload_own(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
    headers: HeaderMap,
    body: Body,
) -> JsonResult<Envelope<String>> {
    let address = Address { user, agent };
    let (upload, _) = receive_skills(&by, &address, SkillLayer::Overlay, &headers, body).await?;
    let skills = by.service.finish_skill_upload(&by.principal, upload, SkillLayer::Overlay).await?;
    let lines =
        skills.iter().map(|skill| format!("\n- Skill [{skill}] uploaded to [skills/{skill}], Status: [Success]"));
    Ok(success(format!("Upload successful. Details:{}", lines.collect::<String>())))
}

#[utoipa::path(post, path = "/v1/skills/{user}/{agent}/upload", tag = "agent skills",
    params(("user" = String, Path), ("agent" = String, Path), ScopeQuery),
    request_body(content = SkillForm, content_type = "multipart/form-data"),
    responses((status = 200, description = "A sentence with the installed skills and their paths", body = Envelope<String>)))]
pub(crate) async fn upload(
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
    Query(ScopeQuery { scope }): Query<ScopeQuery>,
    headers: HeaderMap,
    body: Body,
) -> JsonResult<Envelope<String>> {
    // A wrong query parameter is rejected before the upload.
    let announced = layer(scope.as_deref(), None)?;
    let address = Address { user: Some(user.clone()), agent: agent.clone() };
    let (upload, form_scope) = receive_skills(&by, &address, announced, &headers, body).await?;
    let layer = layer(scope.as_deref(), form_scope.as_deref())?;
    let skills = by.service.finish_skill_upload(&by.principal, upload, layer).await?;
    let place = match layer {
        SkillLayer::Overlay => format!("skill/overlay/{user}/{agent}"),
        SkillLayer::Baseline => format!("skill/baseline/{agent}"),
    };
    let named = |skill: &SkillName| format!("skill '{skill}' to '{place}/{skill}'");
    Ok(success(format!("Upload successful: {}", skills.iter().map(named).collect::<Vec<_>>().join(", "))))
}

#[utoipa::path(get, path = "/v1/skills/{agent}/list", tag = "agent skills", operation_id = "list_own",
    params(("agent" = String, Path), UserQuery),
    responses((status = 200, description = "The skills of both layers", body = Envelope<Vec<SkillSummary>>)))]
pub(crate) async fn list_own(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
) -> JsonResult<Envelope<Vec<SkillSummary>>> {
    Ok(success(by.service.agent_skills(&by.principal, &Address { user, agent }).await?))
}

#[utoipa::path(get, path = "/v1/skills/{user}/{agent}/list", tag = "agent skills",
    params(("user" = String, Path), ("agent" = String, Path)),
    responses((status = 200, description = "The skills of both layers", body = Envelope<Vec<SkillSummary>>)))]
pub(crate) async fn list(
    by: Caller,
    PathParam((user, agent)): PathParam<(String, String)>,
) -> JsonResult<Envelope<Vec<SkillSummary>>> {
    Ok(success(by.service.agent_skills(&by.principal, &Address { user: Some(user), agent }).await?))
}

#[utoipa::path(get, path = "/v1/skills/{agent}/layers", tag = "agent skills",
    params(("agent" = String, Path), UserQuery),
    responses((status = 200, description = "The skills of both layers, each with its layer", body = Envelope<Vec<LayeredSkill>>)))]
pub(crate) async fn layers(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(UserQuery { user }): Query<UserQuery>,
) -> JsonResult<Envelope<Vec<LayeredSkill>>> {
    Ok(success(by.service.layered_skills(&by.principal, &Address { user, agent }).await?))
}

#[utoipa::path(delete, path = "/v1/skills/{agent}/delete", tag = "agent skills",
    params(("agent" = String, Path), SkillQuery),
    responses((status = 200, description = "The skill was deleted for this user; a baseline skill stays for other users", body = Envelope<String>)))]
pub(crate) async fn delete(
    by: Caller,
    PathParam(agent): PathParam<String>,
    Query(SkillQuery { name, user }): Query<SkillQuery>,
) -> JsonResult<Envelope<String>> {
    by.service.delete_skill(&by.principal, &Address { user, agent }, &name).await?;
    Ok(success(format!("Successfully deleted skill: {name}")))
}

/// Receives the file of a form, and its field `scope`.
async fn receive_skills(
    by: &Caller,
    address: &Address,
    layer: SkillLayer,
    headers: &HeaderMap,
    body: Body,
) -> Result<(SkillUpload, Option<String>), Problem> {
    let mut upload = by.service.begin_skill_upload(&by.principal, address, layer).await?;
    let received = receive(headers, body, by.service.upload_max_bytes(), &mut upload).await?;
    Ok((upload, received.scope))
}

/// The layer that query and form name. They must not contradict each other.
fn layer(query: Option<&str>, form: Option<&str>) -> Result<SkillLayer, Problem> {
    let scope = match (query, form) {
        (Some(query), Some(form)) if query != form => {
            return Err(Problem::invalid("scope: the query and the form have different values"));
        }
        (query, form) => query.or(form),
    };
    match scope {
        None | Some("overlay") => Ok(SkillLayer::Overlay),
        Some("baseline") => Ok(SkillLayer::Baseline),
        Some(_) => Err(Problem::invalid("scope must be `overlay` or `baseline`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scope_of_query_and_form_must_agree() {
        let found = |query, form| layer(query, form).ok();
        assert_eq!(found(None, None), Some(SkillLayer::Overlay));
        assert_eq!(found(Some("overlay"), None), Some(SkillLayer::Overlay));
        assert_eq!(found(None, Some("baseline")), Some(SkillLayer::Baseline));
        assert_eq!(found(Some("baseline"), Some("baseline")), Some(SkillLayer::Baseline));
        for (query, form) in [
            (Some("Baseline"), None),
            (None, Some("")),
            (Some(""), None),
            (Some("overlay"), Some("baseline")),
            (Some("x"), Some("x")),
        ] {
            assert_eq!(found(query, form), None, "{query:?} {form:?}");
        }
    }
}
