//! `/api/tokens`: creates, lists and revokes tokens. Only the response that creates a token
//! contains its text; the record has a hash.

use axum::Json;
use axum::http::StatusCode;
use axum::response::Response;
use clap::ValueEnum as _;
use ringwall_service::{Holder, Limit, NewToken, Page, Timestamp, TokenId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::execs::{paged, parse};
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, PathParam, Query};
use crate::http::transport::problem::Problem;
use crate::views::{self, Role, TokenView};

const DEFAULT_PAGE: u64 = 100;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// `owner`, `operator`, `user` or `agent`
    role: String,
    /// Required for the roles `user` and `agent`
    user_id: Option<String>,
    /// Required for the role `agent`
    agent_id: Option<String>,
    /// Free text to recognise the token by
    label: Option<String>,
    /// Milliseconds since the epoch; default never
    expires_at: Option<i64>,
}

/// A new token with its text
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedToken {
    #[serde(flatten)]
    about: TokenView,
    /// The text to send as `Authorization: Bearer`. It is not stored and cannot be shown again
    token: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageQuery {
    /// Page size; default 100
    limit: Option<u64>,
    /// `X-Next-Cursor` of the previous page
    cursor: Option<String>,
}

#[utoipa::path(post, path = "/api/tokens", tag = "tokens", request_body = TokenBody,
    responses((status = 201, description = "The token with its text", body = CreatedToken)))]
pub(crate) async fn create(
    by: Caller,
    JsonBody(body): JsonBody<TokenBody>,
) -> Result<(StatusCode, Json<CreatedToken>), Problem> {
    let new = NewToken {
        holder: holder(&body)?,
        label: body.label,
        expires_at: body.expires_at.map(Timestamp::from_milliseconds),
    };
    let (token, text) = by.service.create_token(&by.principal, new).await?;
    Ok((StatusCode::CREATED, Json(CreatedToken { about: TokenView::from(&token), token: text })))
}

fn holder(body: &TokenBody) -> Result<Holder, Problem> {
    let role = Role::from_str(&body.role, false);
    let role = role.map_err(|_| Problem::invalid("role: owner, operator, user or agent"))?;
    let holder = views::holder(role, body.user_id.as_deref(), body.agent_id.as_deref());
    holder.map_err(|message| Problem::invalid(message.text()))
}

#[utoipa::path(get, path = "/api/tokens", tag = "tokens", params(PageQuery),
    responses((status = 200, description = "All tokens, newest first. The header `X-Next-Cursor` has the cursor of the next page", body = Vec<TokenView>)))]
pub(crate) async fn list(by: Caller, Query(query): Query<PageQuery>) -> Result<Response, Problem> {
    let limit = Limit::nearest(query.limit.unwrap_or(DEFAULT_PAGE));
    let page = by.service.tokens(&by.principal, limit, parse(query.cursor.as_deref())?).await?;
    Ok(paged(Page { items: page.items.iter().map(TokenView::from).collect(), next: page.next }))
}

#[utoipa::path(delete, path = "/api/tokens/{id}", tag = "tokens", params(("id" = String, Path)),
    responses((status = 204, description = "The token was revoked")))]
pub(crate) async fn revoke(by: Caller, PathParam(id): PathParam<String>) -> Result<StatusCode, Problem> {
    let id: TokenId = id.parse().map_err(|_| Problem::not_found("there is no token with that id"))?;
    by.service.revoke_token(&by.principal, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
