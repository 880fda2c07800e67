//! `/api/login`, `/api/logout`, `/api/me`: how a browser becomes somebody, and who it is.
//!
//! A token, or the code of the link that `ringwall serve` prints, is changed for a cookie. Programs need none of this: they send
//! their token with every request.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ringwall_service::{Holder, Principal};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::Door;
use crate::http::transport::body::{read_json, shape};
use crate::http::transport::cookie;
use crate::http::transport::problem::Problem;

/// Most bytes of a login. Anybody may send one, so the server's limit for other bodies would let strangers fill its memory.
const MAX_BODY_BYTES: usize = 4 << 10;

/// One of the two.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginBody {
    token: Option<String>,
    /// What stands behind the `#` of the link that the server printed when it started
    code: Option<String>,
}

/// Who asks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Me {
    /// `owner`, `operator`, `user` or `agent`
    role: &'static str,
    /// Whose agents these are; null for those who see all
    user: Option<String>,
    agent: Option<String>,
    /// The id of the token, as the record has it
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
    responses((status = 200, description = "who that is; the cookie shows it from now on", body = Me),
        (status = 401, description = "a token or code that is not valid")))]
pub(crate) async fn log_in(State(door): State<Door>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let body: LoginBody = shape(read_json(body, MAX_BODY_BYTES).await.map_err(without_setting)?)?;
    let begun = match (body.token, body.code) {
        (Some(token), None) => door.service.log_in(token.trim()).await?,
        (None, Some(code)) => {
            let hint = "the link works once, within ten minutes of the server's start; a token always does";
            door.service.log_in_with_code(&code).await.map_err(|error| Problem::from(error).with_hint(hint))?
        }
        _ => return Err(Problem::invalid("either `token` or `code`")),
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

#[utoipa::path(post, path = "/api/logout", tag = "login", responses((status = 204, description = "the login is over")))]
pub(crate) async fn log_out(State(door): State<Door>, headers: HeaderMap, _: Body) -> Response {
    if let Some(text) = cookie::find(&headers) {
        door.service.log_out(text);
    }
    (StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie::clear())]).into_response()
}

#[utoipa::path(get, path = "/api/me", tag = "login", responses((status = 200, description = "who asks", body = Me)))]
pub(crate) async fn me(Extension(principal): Extension<Principal>) -> Json<Me> {
    Json(Me::from(&principal))
}
