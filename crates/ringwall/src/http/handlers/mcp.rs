//! `/mcp`: the MCP door over HTTP. Requests pass the gate and the question who is asking as all do, and only then mean anything.
//!
//! A session's id opens nothing: every request of one is its sender's own, and whoever did not begin a session does not find
//! it. How many one caller has is bounded; the one that was not used for longest makes room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Extension, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use ringwall_service::{Gone, Principal, Service};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager as _};
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use utoipa::ToSchema;

use crate::http::Door;
use crate::http::transport::attended::attend;
use crate::http::transport::body::read_bytes;
use crate::http::transport::problem::Problem;
use crate::mcp::{Mcp, Scope};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How a body that cannot be read is told from one of a kind that cannot.
const MALFORMED: &str = "fail to deserialize request body";
const MAX_WORDS: usize = 4096;
/// Of one caller.
const MAX_SESSIONS: usize = 64;
/// A person may think for hours about what an agent does next.
const KEPT: Duration = Duration::from_secs(12 * 60 * 60);

/// Everything that serves it.
pub(crate) struct Endpoint {
    http: StreamableHttpService<Mcp, LocalSessionManager>,
    manager: Arc<LocalSessionManager>,
    begun: Mutex<HashMap<String, Begun>>,
}

/// A session, and whose.
#[derive(Debug)]
struct Begun {
    caller: String,
    used: Instant,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Endpoint").finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(crate) fn new(service: Service, largest_body: usize) -> Self {
        let mut sessions = SessionConfig::default();
        sessions.keep_alive = Some(KEPT);
        let mut manager = LocalSessionManager::default();
        manager.session_config = sessions;
        let manager = Arc::new(manager);
        // Hosts and origins were checked at the gate, by the operator's own list.
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_json_response(true)
            .with_max_request_body_bytes(largest_body);
        let mcp = Mcp::new(service.clone());
        let (stopping, answering) = (config.cancellation_token.clone(), mcp.clone());
        tokio::spawn(async move {
            stopped(&service).await;
            // What runs is still answered; those who only listen are not waited for.
            answering.idle().await;
            stopping.cancel();
        });
        let http = StreamableHttpService::new(move || Ok(mcp.for_another()), manager.clone(), config);
        Self { http, manager, begun: Mutex::default() }
    }

    async fn serve(&self, door: &Door, by: &Principal, request: Request) -> Result<Response, Problem> {
        let words = Query::<Scope>::try_from_uri(request.uri())
            .map_err(|_| Problem::invalid("of an address only user, agent and session are understood"))?;
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(words.0);
        if let Some(session) = session_of(&parts.headers) {
            self.find(by, &session)?;
        }
        let long = door.long_answers.begin(by)?;
        // rmcp would wait for the body without a time limit, and would hold one for each connection in memory.
        let body = read_bytes(body, door.largest_body, "server.max_body_bytes").await?;
        let request = Request::from_parts(parts, Body::from(body));
        let response = worded(self.http.handle(request).await.map(Body::new)).await?;
        if let Some(session) = session_of(response.headers()) {
            self.keep(by, session).await;
        }
        Ok(attend(response, long))
    }

    /// What somebody else began is not there.
    fn find(&self, by: &Principal, session: &str) -> Result<(), Problem> {
        let mut begun = self.lock();
        let own = begun.get_mut(session).filter(|begun| begun.caller == by.caller());
        let own = own.ok_or_else(|| Problem::not_found("there is no such session; begin one with `initialize`"))?;
        own.used = Instant::now();
        Ok(())
    }

    async fn keep(&self, by: &Principal, session: String) {
        let alive: Vec<SessionId> = self.manager.sessions.read().await.keys().cloned().collect();
        let excess = {
            let mut begun = self.lock();
            begun.retain(|id, _| alive.iter().any(|known| known.as_ref() == id));
            begun.insert(session, Begun { caller: by.caller().to_owned(), used: Instant::now() });
            let own = begun.iter().filter(|(_, one)| one.caller == by.caller());
            let (count, oldest) = (own.clone().count(), own.min_by_key(|(_, one)| one.used));
            let oldest = oldest.filter(|_| count > MAX_SESSIONS).map(|(id, _)| id.clone());
            oldest.inspect(|id| drop(begun.remove(id)))
        };
        if let Some(excess) = excess
            && let Err(error) = self.manager.close_session(&excess.into()).await
        {
            tracing::debug!(%error, "could not close a session that was not used for long");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// What is refused in plain words, before it is a message of the protocol, is told as all problems are.
async fn worded(response: Response) -> Result<Response, Problem> {
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
    let words = axum::body::to_bytes(response.into_body(), MAX_WORDS).await.unwrap_or_default();
    let words = String::from_utf8_lossy(&words).into_owned();
    Err(match words.strip_prefix(MALFORMED) {
        Some(why) => Problem::invalid(format!("that is no message of JSON-RPC: {}", why.trim())),
        None => Problem::new(status, code, words),
    })
}

/// Comes back when the server stops.
async fn stopped(service: &Service) {
    let mut following = service.announcements();
    loop {
        match following.next().await {
            Ok(_) => {}
            Err(Gone::Behind) => following = service.announcements(),
            Err(Gone::Stopping) => return,
        }
    }
}

/// A message of JSON-RPC; several come as a stream of events.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes what is read and written elsewhere")]
pub(crate) struct RpcMessage {
    /// `2.0`
    jsonrpc: String,
    /// A number or a string: which request this is, or answers
    id: Option<String>,
    /// Of a request or a notification
    method: Option<String>,
    #[schema(value_type = Option<Object>)]
    params: Option<serde_json::Value>,
    /// Of an answer
    #[schema(value_type = Option<Object>)]
    result: Option<serde_json::Value>,
    error: Option<RpcError>,
}

#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes what is written elsewhere")]
pub(crate) struct RpcError {
    code: i64,
    message: String,
}

#[utoipa::path(post, path = "/mcp", tag = "mcp", params(
        ("user" = Option<String>, Query, description = "for an owner or operator: whose agent; `default` unless said"),
        ("agent" = Option<String>, Query, description = "the agent: the token's, or `default`"),
        ("session" = Option<String>, Query, description = "the session whose workspace the tools share; `default` unless said"),
    ),
    request_body = RpcMessage,
    responses((status = 200, description = "a JSON-RPC message, or a stream of them", body = RpcMessage),
        (status = 202, description = "it was taken")))]
pub(crate) async fn talk(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response, Problem> {
    door.mcp.serve(&door, &principal, request).await
}

#[utoipa::path(get, path = "/mcp", tag = "mcp",
    params(("Mcp-Session-Id" = String, Header, description = "of a session that `initialize` began")),
    responses((status = 200, description = "what the server says of itself, as a stream", content_type = "text/event-stream", body = String)))]
pub(crate) async fn listen(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response, Problem> {
    door.mcp.serve(&door, &principal, request).await
}

#[utoipa::path(delete, path = "/mcp", tag = "mcp",
    params(("Mcp-Session-Id" = String, Header, description = "of a session that `initialize` began")),
    responses((status = 204, description = "the session is over")))]
pub(crate) async fn leave(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Result<Response, Problem> {
    let mut response = door.mcp.serve(&door, &principal, request).await?;
    // Clients take nothing else for a success that has nothing to say.
    if response.status() == StatusCode::ACCEPTED {
        *response.status_mut() = StatusCode::NO_CONTENT;
    }
    Ok(response)
}
