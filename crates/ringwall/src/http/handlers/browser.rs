//! `/api/browser`: actions of a session's browser. A failed or denied action is 200 with `success:
//! false`; an error response has the same fields.

use axum::Json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringwall_policy::BrowserKind;
use ringwall_service::{BrowserActionView, BrowserAnswer, BrowserRequest, SessionAddress};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::sessions::SessionOwner;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{JsonBody, JsonResult, PathParam, Query};
use crate::http::transport::problem::Problem;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserBody {
    /// `navigate`, `click`, `fill`, `screenshot`, `get_content`, `close`, `wait_for`, `press`,
    /// `select`, `scroll`, `back`, `evaluate`, `download`, `upload` or `pdf`
    action: String,
    /// Parameters of the action; see the browser guide
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    params: Value,
    /// Chooses the browser. Default: the one that the session has open, otherwise the external one
    context: Option<BrowserContext>,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
}

/// The sandbox browser if a field is true, otherwise the external one
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrowserContext {
    #[serde(default)]
    is_research: bool,
    #[serde(default)]
    needs_file_access: bool,
}

impl BrowserContext {
    fn kind(&self) -> BrowserKind {
        if self.is_research || self.needs_file_access { BrowserKind::Sandbox } else { BrowserKind::External }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BrowserAnswer)]
pub(crate) struct BrowserAnswerBody {
    success: bool,
    /// Result of the action, with `url` and `title` of the page, and `files`, `dialogs`, `popups`
    /// and `notes` if there are any
    #[schema(value_type = Option<Object>)]
    data: Value,
    /// Why the action failed or was denied
    error: Option<String>,
    /// PNG image in base64
    screenshot: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Browser)]
pub(crate) struct BrowserStateBody {
    /// `external` or `sandbox`; null if the session has no browser
    kind: Option<&'static str>,
    /// Address of the open page; null if the session has no browser
    url: Option<String>,
    /// Title of the open page; null if the session has no browser
    title: Option<String>,
    /// The last screenshot, a PNG image in base64
    screenshot: Option<String>,
    /// The last actions, newest first
    actions: Vec<BrowserActionView>,
}

#[utoipa::path(post, path = "/api/browser/{session_id}", tag = "browser", operation_id = "act", request_body = BrowserBody,
    params(("session_id" = String, Path)),
    responses(
        (status = 200, description = "Result of the action, also if it failed or was denied", body = BrowserAnswerBody),
        (status = 400, description = "Unknown action or parameter", body = BrowserAnswerBody),
        (status = 429, description = "Too many actions wait for this session's browser", body = BrowserAnswerBody),
        (status = 503, description = "Chromium is not installed", body = BrowserAnswerBody),
    ))]
pub(crate) async fn act(
    by: Caller,
    PathParam(session_id): PathParam<String>,
    JsonBody(body): JsonBody<BrowserBody>,
) -> JsonResult<BrowserAnswerBody> {
    let request = BrowserRequest {
        session: SessionAddress { session_id, user_id: body.user_id, agent_id: body.agent_id },
        action: body.action,
        params: body.params,
        kind: body.context.as_ref().map(BrowserContext::kind),
    };
    let begun = by.service.begin_browser(&by.principal, request).await.map_err(Problem::from_session_error)?;
    let BrowserAnswer { success, data, error, picture, .. } =
        by.service.finish_browser(&begun).await.map_err(Problem::from_session_error)?;
    let screenshot = picture.map(|picture| STANDARD.encode(picture));
    Ok(Json(BrowserAnswerBody { success, data, error, screenshot }))
}

#[utoipa::path(get, path = "/api/browser/{session_id}", tag = "browser",
    params(("session_id" = String, Path), SessionOwner),
    responses((status = 200, description = "The session's browser and its last actions", body = BrowserStateBody)))]
pub(crate) async fn show(
    by: Caller,
    PathParam(session): PathParam<String>,
    Query(owner): Query<SessionOwner>,
) -> JsonResult<BrowserStateBody> {
    let view = by.service.browser(&by.principal, &owner.address(session)).await?;
    let screenshot = view.picture.map(|picture| STANDARD.encode(picture.as_slice()));
    Ok(Json(BrowserStateBody { kind: view.kind, url: view.url, title: view.title, screenshot, actions: view.actions }))
}
