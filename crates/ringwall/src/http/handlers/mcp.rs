//! `/mcp`: MCP over streamable HTTP.
//!
//! Each request is authenticated by itself, like those of other routes. A session id grants
//! nothing: a session that another token began is 404. A token has at most [`MAX_SESSIONS`]
//! sessions; a further one ends the least recently used.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use parking_lot::Mutex;
use ringwall_service::{Principal, Service, StreamEnd};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager as _};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use utoipa::ToSchema;

use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::read_bytes;
use crate::http::transport::guarded_body::guard_body;
use crate::http::transport::problem::Problem;
use crate::mcp::{Mcp, Scope};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How rmcp's message about a body that is not JSON-RPC begins.
const MALFORMED: &str = "fail to deserialize request body";
const MAX_ERROR_BYTES: usize = 4096;
/// Per token.
const MAX_SESSIONS: usize = 64;
/// How long a session without messages is kept. A call that waits for an approval sends none, and an
/// approval may be open for seven days (`approvals.timeout_s`).
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(8 * 24 * 60 * 60);

/// The MCP service, and the owners of its sessions.
pub(crate) struct Endpoint {
    http: StreamableHttpService<Mcp, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    owners: Mutex<HashMap<String, SessionOwner>>,
}

/// The owner of a session, and its last use.
#[derive(Debug)]
struct SessionOwner {
    caller: String,
    used: Instant,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(service: Service, max_body_bytes: usize) -> Self {
        let mut sessions = SessionConfig::default();
        sessions.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        let mut manager = LocalSessionManager::default();
        manager.session_config = sessions;
        let manager = Arc::new(manager);
        // `gate` has checked host and origin with the operator's list.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_max_request_body_bytes(max_body_bytes);
        let mcp = Mcp::new(service.clone());
        let (stopping, answering) = (config.cancellation_token.clone(), mcp.clone());
        tokio::spawn(async move {
            stopped(&service).await;
            // Calls in progress are answered first; streams that only listen are cut.
            answering.idle().await;
            stopping.cancel();
        });
        let http = StreamableHttpService::new(move || Ok(mcp.for_new_client()), manager.clone(), config);
        Self { http, manager, owners: Mutex::default() }
    }

    async fn serve(&self, state: &AppState, by: &Principal, request: Request) -> Result<Response, Problem> {
        let scope = Query::<Scope>::try_from_uri(request.uri())
            .map_err(|_| Problem::invalid("the query has an unknown parameter; known are user, agent and session"))?;
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(scope.0);
        if let Some(session) = session_id(&parts.headers) {
            self.find(by, &session)?;
        }
        let permit = state.streams.acquire(by)?;
        // rmcp would read the body without a time limit and without counting its memory.
        let body = read_bytes(body, state.max_body_bytes, "server.max_body_bytes").await?;
        let request = Request::from_parts(parts, Body::from(body));
        let response = convert_error(self.http.handle(request).await.map(Body::new)).await?;
        if let Some(session) = session_id(response.headers()) {
            self.record(by, session).await;
        }
        Ok(guard_body(response, permit))
    }

    /// Marks a session as used. One that another token began is 404.
    fn find(&self, by: &Principal, session: &str) -> Result<(), Problem> {
        let mut owners = self.owners.lock();
        let own = owners.get_mut(session).filter(|owner| owner.caller == by.caller());
        let own = own.ok_or_else(|| Problem::not_found("there is no such session; start one with `initialize`"))?;
        own.used = Instant::now();
        Ok(())
    }

    async fn record(&self, by: &Principal, session: String) {
        let alive: Vec<SessionId> = self.manager.sessions.read().await.keys().cloned().collect();
        let excess = {
            let mut owners = self.owners.lock();
            owners.retain(|id, _| alive.iter().any(|known| known.as_ref() == id));
            owners.insert(session, SessionOwner { caller: by.caller().to_owned(), used: Instant::now() });
            let own = owners.iter().filter(|(_, one)| one.caller == by.caller());
            let (count, oldest) = (own.clone().count(), own.min_by_key(|(_, one)| one.used));
            let oldest = oldest.filter(|_| count > MAX_SESSIONS).map(|(id, _)| id.clone());
            oldest.inspect(|id| drop(owners.remove(id)))
        };
        if let Some(excess) = excess
            && let Err(error) = self.manager.close_session(&excess.into()).await
        {
            tracing::debug!(%error, "could not close the least recently used session");
        }
    }
}

fn session_id(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Converts rmcp's plain-text errors to a [`Problem`]. JSON-RPC responses pass.
async fn convert_error(response: Response) -> Result<Response, Problem> {
    let status = response.status();
    let code = match status {
        StatusCode::BAD_REQUEST => "INVALID_ARGUMENT",
        StatusCode::NOT_ACCEPTABLE => "NOT_ACCEPTABLE",
        StatusCode::PAYLOAD_TOO_LARGE => "BODY_TOO_LARGE",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UNSUPPORTED_MEDIA_TYPE",
        _ => return Ok(response),
    };
    if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes() == b"application/json") {
        return Ok(response);
    }
    let text = axum::body::to_bytes(response.into_body(), MAX_ERROR_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    Err(match text.strip_prefix(MALFORMED) {
        Some(why) => Problem::invalid(format!("the body is not a JSON-RPC message: {}", why.trim())),
        None => Problem::new(status, code, text),
    })
}

/// Returns when the server stops.
async fn stopped(service: &Service) {
    let mut following = service.announcements();
    loop {
        match following.next().await {
            Ok(_) => {}
            Err(StreamEnd::Lagged) => following = service.announcements(),
            Err(StreamEnd::Stopping) => return,
        }
    }
}

/// A JSON-RPC message. Several are sent as a stream of events
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "documentation only; rmcp reads and writes the messages")]
pub(crate) struct RpcMessage {
    /// `2.0`
    jsonrpc: String,
    /// Number or string that identifies a request and its response
    id: Option<String>,
    /// Name of the request or notification
    method: Option<String>,
    #[schema(value_type = Option<Object>)]
    params: Option<serde_json::Value>,
    /// Result of a successful request
    #[schema(value_type = Option<Object>)]
    result: Option<serde_json::Value>,
    error: Option<RpcError>,
}

#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "documentation only; rmcp writes the errors")]
pub(crate) struct RpcError {
    code: i64,
    message: String,
}

#[utoipa::path(post, path = "/mcp", tag = "mcp", operation_id = "talk", params(
        ("user" = Option<String>, Query, description = "User of the workspace. Default: the token's own user; `default` for owner and operator tokens"),
        ("agent" = Option<String>, Query, description = "Agent of the workspace. Default: an agent token's own agent, otherwise `default`"),
        ("session" = Option<String>, Query, description = "Session whose workspace the tools use unless a call names another one; default `default`"),
    ),
    request_body = RpcMessage,
    responses((status = 200, description = "A JSON-RPC message, or a stream of them", body = RpcMessage),
        (status = 202, description = "The notification or response was accepted")))]
pub(crate) async fn post(State(state): State<AppState>, by: Caller, request: Request) -> Result<Response, Problem> {
    state.mcp.serve(&state, &by.principal, request).await
}

#[utoipa::path(get, path = "/mcp", tag = "mcp", operation_id = "listen",
    params(("Mcp-Session-Id" = String, Header, description = "Id of a session that `initialize` began")),
    responses((status = 200, description = "Notifications and requests of the server, as a stream", content_type = "text/event-stream", body = String)))]
pub(crate) async fn open_stream(
    State(state): State<AppState>,
    by: Caller,
    request: Request,
) -> Result<Response, Problem> {
    state.mcp.serve(&state, &by.principal, request).await
}

#[utoipa::path(delete, path = "/mcp", tag = "mcp", operation_id = "leave",
    params(("Mcp-Session-Id" = String, Header, description = "Id of a session that `initialize` began")),
    responses((status = 204, description = "The session was ended")))]
pub(crate) async fn end_session(
    State(state): State<AppState>,
    by: Caller,
    request: Request,
) -> Result<Response, Problem> {
    let mut response = state.mcp.serve(&state, &by.principal, request).await?;
    // Clients expect 204 for a success without a body; rmcp sends 202.
    if response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    Ok(response)
}
