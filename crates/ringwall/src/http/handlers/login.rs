//! `/api/login`, `/api/logout`, `/api/me`: exchanges a token, or the code of the link that
//! `ringwall serve` prints, for a login cookie.
//!
//! Only browsers need a login. Programs send their token with every request.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_service::{Holder, Principal};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::AppState;
use crate::http::transport::body::{deserialize, read_json};
use crate::http::transport::cookie;
use crate::http::transport::problem::Problem;

/// Small, because this route accepts bodies without authentication.
const MAX_BODY_BYTES: usize = 4 << 10;

/// Exactly one of the fields
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginBody {
    token: Option<String>,
    /// The text after `#` in the link that the server printed at its start
    code: Option<String>,
}

/// The authenticated caller
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// `owner`, `operator`, `user` or `agent`
    role: &'static str,
    /// The user; null for the roles `owner` and `operator`
    user: Option<String>,
    /// The agent; null unless the role is `agent`
    agent: Option<String>,
    /// Id of the token in the record
    token_id: String,
}

impl From<&Principal> for Me {
    fn from(principal: &Principal) -> Self {
        let holder = principal.holder();
        let (user, agent) = match holder {
            Holder::Owner | Holder::Operator => (None, None),
            Holder::User(user) => (Some(user.to_string()), None),
            Holder::Agent(user, agent) => (Some(user.to_string()), Some(agent.to_string())),
        };
        Me { role: holder.role(), user, agent, token_id: principal.caller().to_owned() }
    }
}

#[utoipa::path(post, path = "/api/login", tag = "login", request_body = LoginBody,
    responses((status = 200, description = "Logged in; the response sets the login cookie", body = Me),
        (status = 401, description = "Invalid token or code")))]
pub(crate) async fn log_in(State(state): State<AppState>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body: LoginBody = deserialize(read_json(body, MAX_BODY_BYTES).await.map_err(without_setting)?)?;
    let begun = match (body.token, body.code) {
        (Some(token), None) => state.service.log_in(token.trim()).await?,
        (None, Some(code)) => {
            let hint = "the link works once, within ten minutes of the server's start; log in with a token instead";
            state.service.log_in_with_code(&code).await.map_err(|error| Problem::from(error).with_hint(hint))?
        }
        _ => return Err(Problem::invalid("the body needs either `token` or `code`")),
    };
    let headers = [(header::SET_COOKIE, cookie::set(&parts, &begun.text))];
    Ok((headers, Json(Me::from(&begun.principal))).into_response())
}

/// No setting raises this limit, so the hint that names one is left out.
fn without_setting(problem: Problem) -> Problem {
    match problem.code() {
        "BODY_TOO_LARGE" => {
            let message = format!("the body of a login is larger than {MAX_BODY_BYTES} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
        }
        _ => problem,
    }
}

#[utoipa::path(post, path = "/api/logout", tag = "login", responses((status = 204, description = "Logged out; the response deletes the login cookie")))]
pub(crate) async fn log_out(State(state): State<AppState>, headers: HeaderMap, _: Body) -> Response {
    if let Some(text) = cookie::find(&headers) {
        state.service.log_out(text);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie::clear())]).into_response()
}

#[utoipa::path(get, path = "/api/me", tag = "login", responses((status = 200, description = "The authenticated caller", body = Me)))]
pub(crate) async fn me(Extension(principal): Extension<Principal>) -> Json<Me> {
    Json(Me::from(&principal))
}
