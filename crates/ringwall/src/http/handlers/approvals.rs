//! `/api/approvals`: what people are asked, and their answers.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use ringwall_service::{Answer, ApprovalStatus, ApprovalView, Limit, Preview, Principal, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::parse;
use super::run::locale;
use crate::http::Door;
use crate::http::transport::body::{Named, Words, read_json, shape};
use crate::http::transport::problem::Problem;

const DEFAULT_PAGE: u64 = 50;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalWords {
    /// `pending`, `approved`, `remembered`, `denied`, `expired` or `cancelled`
    status: Option<String>,
    /// Those that one exec asked
    exec_id: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalPage {
    /// Newest first
    approvals: Vec<ApprovalView>,
    /// There is more when this is there
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    approved: bool,
    /// Whether the requested paths join the list; nothing is remembered of a refusal
    #[serde(default)]
    remember: bool,
    /// For the caller and the record
    reason: Option<String>,
    /// What is to run instead of the code that was asked about: judged from the start, and asked about anew where it deserves
    /// that
    modified_code: Option<String>,
}

#[utoipa::path(get, path = "/api/approvals", tag = "approvals", params(ApprovalWords),
    responses((status = 200, description = "newest first, of what the caller may see", body = ApprovalPage)))]
pub(crate) async fn list(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Words(words): Words<ApprovalWords>,
) -> Result<Json<ApprovalPage>, Problem> {
    let status: Option<ApprovalStatus> = parse(words.status.as_deref().filter(|status| !status.is_empty()))?;
    if words.limit == Some(0) {
        return Err(Problem::invalid("limit: at least 1"));
    }
    let limit = Limit::nearest(words.limit.unwrap_or(DEFAULT_PAGE));
    let cursor = parse(words.cursor.as_deref().filter(|cursor| !cursor.is_empty()))?;
    let exec_id = parse(words.exec_id.as_deref().filter(|id| !id.is_empty()))?;
    let page = door.service.approvals(&principal, status, exec_id, limit, cursor).await?;
    Ok(Json(ApprovalPage { approvals: page.items, next_cursor: page.next.map(|next| next.to_string()) }))
}

#[utoipa::path(get, path = "/api/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, description = "one of them", body = ApprovalView)))]
pub(crate) async fn show(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
) -> Result<Json<ApprovalView>, Problem> {
    Ok(Json(door.service.approval(&principal, &id).await?))
}

#[utoipa::path(post, path = "/api/approvals/{id}", tag = "approvals", params(("id" = String, Path)), request_body = AnswerBody,
    responses(
        (status = 200, description = "as it is now", body = ApprovalView),
        (status = 409, description = "somebody has answered, or what was asked has changed"),
        (status = 410, description = "its time is over"),
    ))]
pub(crate) async fn answer(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    Named(id): Named<String>,
    body: Body,
) -> Result<Json<ApprovalView>, Problem> {
    // Whoever names nothing learns that first, whatever they send.
    door.service.approval(&principal, &id).await?;
    let body: AnswerBody = shape(read_json(body, door.largest_body).await?)?;
    let verdict = verdict(body.approved, body.remember);
    let answer = Answer { verdict, reason: body.reason, modified_code: body.modified_code };
    Ok(Json(door.service.answer_approval(&principal, &id, answer).await?))
}

#[utoipa::path(get, path = "/api/approvals/{id}/preview", tag = "approvals", 
    params(("id" = String, Path), ("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")),
    responses((status = 200, description = "what remembering would store, and what it would have changed", body = Preview)))]
pub(crate) async fn preview(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    Named(id): Named<String>,
) -> Result<Json<Preview>, Problem> {
    Ok(Json(door.service.preview_approval(&principal, &id, locale(&headers)).await?))
}

/// What the two words of an answer mean together.
pub(crate) const fn verdict(approved: bool, remember: bool) -> Verdict {
    match (approved, remember) {
        (true, false) => Verdict::Once,
        (true, true) => Verdict::Remember,
        (false, _) => Verdict::Deny,
    }
}
