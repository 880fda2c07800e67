//! `/skills`: lists the operator's skills and invokes one as an exec.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{OriginalUri, State};
use axum::http::HeaderMap;
use axum::response::Response;
use ringwall_service::InvokeOptions;
use ringwall_service::skills::{Catalogue, Skill};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::{ExecAnswer, respond};
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{PathParam, Query, idempotency_key, read_json};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillQuery {
    /// `invalid`: respond with an object that also lists the invalid manifests
    include: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum SkillList {
    Valid(Vec<Arc<Skill>>),
    All(Catalogue),
}

#[utoipa::path(get, path = "/skills", tag = "skills", params(SkillQuery),
    responses((status = 200, description = "The valid skills as an array; with `include=invalid` an object with valid and invalid ones", body = SkillList)))]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<SkillQuery>,
) -> Result<Json<SkillList>, Problem> {
    let catalogue = state.service.skills().await?;
    match query.include.as_deref() {
        None => Ok(Json(SkillList::Valid(catalogue.skills))),
        Some("invalid") => Ok(Json(SkillList::All(catalogue))),
        Some(_) => Err(Problem::invalid("include: the only known value is `invalid`")),
    }
}

#[utoipa::path(post, path = "/skills/{id}/invoke", tag = "skills", params(("id" = String, Path)), request_body = Object,
    responses((status = 200, description = "The exec has ended, successfully or not; see `status`", body = ExecAnswer), (status = 202, description = "The exec is recorded and not ended yet", body = ExecAnswer)))]
pub(crate) async fn invoke(
    State(state): State<AppState>,
    by: Caller,
    PathParam(id): PathParam<String>,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let body = read_json(body, state.max_body_bytes).await?;
    let options = InvokeOptions { idempotency: idempotency_key(&headers, uri.path(), &body)? };
    let submitted = by.service.invoke(&by.principal, &id, body, options).await?;
    respond(&by, submitted, &headers).await
}
