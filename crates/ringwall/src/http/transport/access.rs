//! Authenticates requests by bearer token, login cookie or WebSocket ticket, and checks the least
//! role of the route. The service checks again what the principal may see and do.

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use ringwall_service::{HeldLogin, Holder, Origin, Principal, Service};

use super::body::only_header;
use super::cookie;
use super::guarded_body::guard_body;
use super::problem::Problem;
use crate::http::body_memory::as_caller;
use crate::http::{AppState, ClientConnection, handlers::tickets};

/// The least role that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No authentication.
    Open,
    /// Any token.
    Agent,
    /// Any token but an agent's.
    User,
    Operator,
    Owner,
}

impl Access {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Access::Open => "open",
            Access::Agent => "agent",
            Access::User => "user",
            Access::Operator => "operator",
            Access::Owner => "owner",
        }
    }

    const fn allows(self, holder: &Holder) -> bool {
        match (self, holder) {
            (Access::Open | Access::Agent, _)
            | (_, Holder::Owner)
            | (Access::User | Access::Operator, Holder::Operator)
            | (Access::User, Holder::User(_)) => true,
            (Access::User | Access::Operator | Access::Owner, _) => false,
        }
    }
}

/// The principal of an authenticated request, and the service.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) service: Service,
    pub(crate) principal: Principal,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        // Missing only on routes that are open to everyone.
        let principal = parts.extensions.get::<Principal>().cloned();
        let principal = principal.ok_or(ringwall_service::Error::Unauthenticated)?;
        Ok(Caller { service: state.service.clone(), principal })
    }
}

/// Authenticates a request, counts it for its caller and passes it to the handler with its
/// [`Principal`].
pub(crate) async fn authorize(
    State((state, access)): State<(AppState, Access)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    if access == Access::Open {
        return Ok(next.run(request).await);
    }
    let (principal, login) = match tickets::of(request.uri()) {
        Some(ticket) if !request.headers().contains_key(header::AUTHORIZATION) => {
            state.service.authenticate_ticket(&ticket).await?
        }
        Some(_) | None => identify(&state, request.method(), request.headers()).await?,
    };
    if !access.allows(principal.holder()) {
        let message =
            format!("this route needs the role {} or higher; yours is {}", access.name(), principal.holder().role());
        return Err(Problem::new(StatusCode::FORBIDDEN, "FORBIDDEN", message));
    }
    let in_progress = state.requests.acquire(&principal)?;
    let remote = request.extensions().get::<ClientConnection>().map(|client| client.remote);
    let principal = principal.through(Origin { door: "http", remote, client: None });
    request.extensions_mut().insert(principal.clone());
    login.map(|login| request.extensions_mut().insert(login));
    Ok(guard_body(as_caller(&principal, next.run(request)).await, in_progress))
}

/// A cookie counts only without an `Authorization` header.
async fn identify(
    state: &AppState,
    method: &Method,
    headers: &HeaderMap,
) -> Result<(Principal, Option<HeldLogin>), Problem> {
    match cookie::find(headers) {
        Some(text) if !headers.contains_key(header::AUTHORIZATION) => {
            cookie::check(method, headers)?;
            Ok(state.service.authenticate_login(text).await?)
        }
        Some(_) | None => Ok((state.service.authenticate(bearer(headers)).await?, None)),
    }
}

/// The bearer token. Two `Authorization` headers count as none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only_header(headers, header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_allows_its_role_and_higher_ones() {
        let user: ringwall_service::UserId = "u".parse().unwrap();
        let holders =
            [Holder::Owner, Holder::Operator, Holder::User(user.clone()), Holder::Agent(user, "a".parse().unwrap())];
        let allowed = |access: Access| holders.each_ref().map(|holder| access.allows(holder));
        assert_eq!(allowed(Access::Agent), [true; 4]);
        assert_eq!(allowed(Access::User), [true, true, true, false]);
        assert_eq!(allowed(Access::Operator), [true, true, false, false]);
        assert_eq!(allowed(Access::Owner), [true, false, false, false]);
    }

    #[test]
    fn bearer_is_read_from_exactly_one_header() {
        let found = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, value.parse().unwrap());
            }
            bearer(&headers).map(str::to_owned)
        };
        assert_eq!(found(&["Bearer x"]).as_deref(), Some("x"));
        assert_eq!(found(&["bearer x"]).as_deref(), Some("x"));
        for none in [&[][..], &["Basic x"], &["Bearer"], &["Bearer "], &["Bearer x", "Bearer x"]] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }
}
