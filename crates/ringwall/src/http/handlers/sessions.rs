//! `/api/sessions`: creates, lists, shows, changes and deletes sessions.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use ringwall_policy::SecurityMode;
use ringwall_service::{Confirmation, SessionAddress, SessionChange, SessionFilter, SessionView};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::{page_limit, parse};
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult, PathParam, Query, deserialize, read_optional_json};
use crate::http::transport::problem::Problem;

const DEFAULT_PAGE: u64 = 100;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSession {
    /// Default: a generated id
    session_id: Option<String>,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
    /// As in `PUT /api/sessions/{id}`
    confirmation: Option<Confirmation>,
    /// As in `PUT /api/sessions/{id}`
    callback_url: Option<String>,
    /// As in `PUT /api/sessions/{id}`
    #[schema(value_type = Option<String>)]
    security_mode: Option<SecurityMode>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionRulesBody {
    /// `websocket`, `auto-approve`, `auto-reject` or `callback`. A user may only choose a stricter
    /// mode than the settings or an operator did, else 403; the order is `auto-approve` <
    /// `websocket` = `callback` < `auto-reject`
    confirmation: Option<Confirmation>,
    /// With `callback`: address that gets each approval as a signed POST; default
    /// `approvals.webhook_url`. Operators only
    callback_url: Option<String>,
    /// `strict`, or `permissive` (operators only)
    #[schema(value_type = Option<String>)]
    security_mode: Option<SecurityMode>,
}

/// The agent and user of a session.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionOwner {
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
}

impl SessionOwner {
    pub(crate) fn address(self, session_id: String) -> SessionAddress {
        SessionAddress { session_id, user_id: self.user_id, agent_id: self.agent_id }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only sessions of this agent. Default: all agents that the token may see
    agent_id: Option<String>,
    /// Only sessions of this user. Default: all users that the token may see
    user_id: Option<String>,
    /// Page size, 1 to 1000; default 100
    limit: Option<u64>,
    /// `next_cursor` of the previous page
    cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionList)]
pub(crate) struct SessionPage {
    /// Most recently used first
    sessions: Vec<SessionView>,
    /// Send it as `cursor` to get the next page; null on the last page
    next_cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionDeleted {
    session_id: String,
    deleted: bool,
}

#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = NewSession,
    responses((status = 201, description = "The session was created", body = SessionView),
        (status = 409, description = "A session with that id exists already")))]
pub(crate) async fn create(
    State(state): State<AppState>,
    by: Caller,
    body: Body,
) -> Result<(StatusCode, Json<SessionView>), Problem> {
    let body = read_optional_json(body, state.max_body_bytes).await?;
    let body: NewSession = body.map(deserialize).transpose()?.unwrap_or_default();
    if body.session_id.as_deref() == Some("") {
        return Err(Problem::invalid("session_id is empty; leave it out to get a generated id"));
    }
    let address = SessionAddress {
        session_id: body.session_id.unwrap_or_default(),
        user_id: body.user_id,
        agent_id: body.agent_id,
    };
    let change = SessionChange {
        confirmation: body.confirmation,
        callback_url: body.callback_url,
        security_mode: body.security_mode,
    };
    Ok((StatusCode::CREATED, Json(by.service.create_session(&by.principal, address, change).await?)))
}

#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(ListQuery),
    responses((status = 200, description = "The sessions that the caller may see", body = SessionPage)))]
pub(crate) async fn list(by: Caller, Query(query): Query<ListQuery>) -> JsonResult<SessionPage> {
    let filter = SessionFilter { user_id: query.user_id, agent_id: query.agent_id };
    let limit = page_limit(query.limit, DEFAULT_PAGE)?;
    let cursor = parse(query.cursor.as_deref().filter(|cursor| !cursor.is_empty()))?;
    let page = by.service.sessions(&by.principal, filter, limit, cursor).await?;
    Ok(Json(SessionPage { sessions: page.sessions, next_cursor: page.next.map(|next| next.to_string()) }))
}

#[utoipa::path(get, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path), SessionOwner),
    responses((status = 200, description = "The session", body = SessionView)))]
pub(crate) async fn show(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<SessionView> {
    Ok(Json(by.service.session(&by.principal, &owner.address(id)).await?))
}

#[utoipa::path(put, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path), SessionOwner),
    request_body = SessionRulesBody,
    responses((status = 200, description = "The changed session", body = SessionView)))]
pub(crate) async fn change(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
    JsonBody(body): JsonBody<SessionRulesBody>,
) -> JsonResult<SessionView> {
    let change = SessionChange {
        confirmation: body.confirmation,
        callback_url: body.callback_url,
        security_mode: body.security_mode,
    };
    Ok(Json(by.service.change_session(&by.principal, &owner.address(id), change).await?))
}

#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path), SessionOwner),
    responses((status = 200, description = "Its execs were cancelled, its box was ended and its files were deleted", body = SessionDeleted)))]
pub(crate) async fn remove(
    by: Caller,
    PathParam(id): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<SessionDeleted> {
    by.service.delete_session(&by.principal, &owner.address(id.clone())).await?;
    Ok(Json(SessionDeleted { session_id: id, deleted: true }))
}
