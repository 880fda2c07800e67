//! `/api/tickets`: single-use tickets for clients that cannot send headers when they open a
//! WebSocket.

use axum::Json;
use axum::extract::Extension;
use axum::http::{StatusCode, Uri};
use ringwall_service::{HeldLogin, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::transport::access::Caller;
use crate::http::transport::problem::Problem;

/// Tickets are accepted on WebSocket routes only: beneath this prefix, and on terminals.
const SOCKET_PREFIX: &str = "/ws/";
const TERMINAL_PATH: (&str, &str) = ("/api/sessions/", "/pty");

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TicketView {
    /// Value of the query parameter `ticket` of one WebSocket
    ticket: String,
    /// 30 seconds after its creation
    expires_at: Timestamp,
}

#[derive(Debug, Deserialize)]
struct TicketQuery {
    ticket: Option<String>,
}

#[utoipa::path(post, path = "/api/tickets", tag = "tickets",
    responses((status = 201, description = "A ticket that opens one WebSocket within 30 seconds", body = TicketView)))]
pub(crate) async fn create(
    by: Caller,
    login: Option<Extension<HeldLogin>>,
) -> Result<(StatusCode, Json<TicketView>), Problem> {
    let ticket = by.service.issue_ticket(&by.principal, login.map(|Extension(login)| login))?;
    Ok((StatusCode::CREATED, Json(TicketView { ticket: ticket.text, expires_at: ticket.expires_at })))
}

/// The ticket in the query of a WebSocket route.
pub(crate) fn of(uri: &Uri) -> Option<String> {
    let path = uri.path();
    let session = path.strip_prefix(TERMINAL_PATH.0).and_then(|rest| rest.strip_suffix(TERMINAL_PATH.1));
    // `/api/sessions/{id}/files/pty` is a file of a session, not a terminal.
    if !path.starts_with(SOCKET_PREFIX) && session.is_none_or(|session| session.contains('/')) {
        return None;
    }
    axum::extract::Query::<TicketQuery>::try_from_uri(uri).ok()?.0.ticket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticket_is_read_on_websocket_routes_only() {
        let ticket = |uri: &'static str| of(&Uri::from_static(uri));
        assert_eq!(ticket("/ws/approvals?ticket=x").as_deref(), Some("x"));
        assert_eq!(ticket("/api/sessions/s/pty?cols=80&ticket=x").as_deref(), Some("x"));
        for none in [
            "/api/sessions/s/files/pty?ticket=x",
            "/api/sessions/pty?ticket=x",
            "/api/tokens?ticket=x",
            "/ws/approvals",
            "/wsx?ticket=x",
            "/ws/a?ticket=x&ticket=y",
        ] {
            assert_eq!(ticket(none), None, "{none}");
        }
    }
}
