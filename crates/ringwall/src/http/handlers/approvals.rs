//! `/api/approvals`: lists, shows, previews and answers approvals.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use ringwall_service::{Answer, ApprovalStatus, ApprovalView, Preview, Verdict};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::{page_limit, parse};
use super::run::locale;
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonResult, PathParam, Query, deserialize, read_json};

const DEFAULT_PAGE: u64 = 50;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalQuery {
    /// Only approvals in this state: `pending`, `approved`, `remembered`, `denied`, `expired` or
    /// `cancelled`
    status: Option<String>,
    /// Only approvals that this exec asked for
    exec_id: Option<String>,
    /// Page size, at least 1; default 50
    limit: Option<u64>,
    /// `next_cursor` of the previous page
    cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovalPage {
    /// Newest first
    approvals: Vec<ApprovalView>,
    /// Send it as `cursor` to get the next page; null on the last page
    next_cursor: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    approved: bool,
    /// With `approved`: also adds the requested paths or hosts to the allow-list, so that later
    /// execs do not ask for them
    #[serde(default)]
    remember: bool,
    /// Shown to the caller and stored in the record
    reason: Option<String>,
    /// Code to run instead of the code in question. It is assessed and decided from the start, so
    /// another approval may open for it
    modified_code: Option<String>,
}

#[utoipa::path(get, path = "/api/approvals", tag = "approvals", params(ApprovalQuery),
    responses((status = 200, description = "The approvals that the caller may see, newest first", body = ApprovalPage)))]
pub(crate) async fn list(by: Caller, Query(query): Query<ApprovalQuery>) -> JsonResult<ApprovalPage> {
    let status: Option<ApprovalStatus> = parse(query.status.as_deref().filter(|status| !status.is_empty()))?;
    let limit = page_limit(query.limit, DEFAULT_PAGE)?;
    let cursor = parse(query.cursor.as_deref().filter(|cursor| !cursor.is_empty()))?;
    let exec_id = parse(query.exec_id.as_deref().filter(|id| !id.is_empty()))?;
    let page = by.service.approvals(&by.principal, status, exec_id, limit, cursor).await?;
    Ok(Json(ApprovalPage { approvals: page.items, next_cursor: page.next.map(|next| next.to_string()) }))
}

#[utoipa::path(get, path = "/api/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, description = "The approval", body = ApprovalView)))]
pub(crate) async fn show(by: Caller, PathParam(id): PathParam<String>) -> JsonResult<ApprovalView> {
    Ok(Json(by.service.approval(&by.principal, &id).await?))
}

#[utoipa::path(post, path = "/api/approvals/{id}", tag = "approvals", params(("id" = String, Path)), request_body = AnswerBody,
    responses(
        (status = 200, description = "The approval with its answer", body = ApprovalView),
        (status = 409, description = "Already answered, or the request changed since it was asked"),
        (status = 410, description = "Expired"),
    ))]
pub(crate) async fn answer(
    State(state): State<AppState>,
    by: Caller,
    PathParam(id): PathParam<String>,
    body: Body,
) -> JsonResult<ApprovalView> {
    // An unknown approval is 404 before the body is judged.
    by.service.approval(&by.principal, &id).await?;
    let body: AnswerBody = deserialize(read_json(body, state.max_body_bytes).await?)?;
    let verdict = verdict(body.approved, body.remember);
    let answer = Answer { verdict, reason: body.reason, modified_code: body.modified_code };
    Ok(Json(by.service.answer_approval(&by.principal, &id, answer).await?))
}

#[utoipa::path(get, path = "/api/approvals/{id}/preview", tag = "approvals", 
    params(("id" = String, Path), ("accept-language" = Option<String>, Header, description = "`zh` for warnings in Chinese")),
    responses((status = 200, description = "The entries that `remember` would store, and how many recent commands they would have allowed", body = Preview)))]
pub(crate) async fn preview(by: Caller, headers: HeaderMap, PathParam(id): PathParam<String>) -> JsonResult<Preview> {
    Ok(Json(by.service.preview_approval(&by.principal, &id, locale(&headers)).await?))
}

/// The verdict of an answer. `remember` counts only with `approved`.
pub(crate) const fn verdict(approved: bool, remember: bool) -> Verdict {
    match (approved, remember) {
        (true, false) => Verdict::Once,
        (true, true) => Verdict::Remember,
        (false, _) => Verdict::Deny,
    }
}
