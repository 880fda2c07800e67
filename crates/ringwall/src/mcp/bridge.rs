//! Forwards messages between standard streams and `/mcp` of another server, and reads only the
//! parts that decide where a message goes.
//!
//! Each message of the client is one HTTP request, and its responses are passed on as they arrive.
//! With a session, notifications of the server come over an additional GET request. Without one,
//! cancelling a request means closing its connection. After the client's end of input, responses to
//! earlier requests are still written for [`LAST_RESPONSES_TIMEOUT`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::caller::Scope;
use super::stdio::{LAST_RESPONSES_TIMEOUT, MAX_MESSAGE_BYTES};
use crate::client::Scheme;
use crate::client::encode;
use crate::client::event_stream::{Events, TooLong};
use crate::message::{Message, UNREACHABLE};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The key in `_meta` with the protocol version of a request without a session.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const INTERNAL: i64 = -32603;
/// A request whose response is a stream that lasts until it is cancelled.
const LISTEN: &str = "subscriptions/listen";

/// The remote server, and the channel of messages to standard output. The channel closes when the
/// last clone is dropped.
#[derive(Debug, Clone)]
struct Bridge {
    remote: Arc<Remote>,
    output: mpsc::Sender<String>,
}

/// The remote server and the state of the session with it.
#[derive(Debug)]
struct Remote {
    server: RemoteServer,
    target: String,
    authorization: Option<HeaderValue>,
    session: Mutex<Session>,
}

#[derive(Debug, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// Sessionless requests that wait for a response, by request id.
    waiting: HashMap<String, AbortHandle>,
    /// Streams that end when the client has closed its output.
    listening: Vec<AbortHandle>,
}

/// Forwards messages until standard input ends.
pub(super) async fn forward_stdio(url: &str, token: Option<&str>, scope: &Scope) -> Result<(), Message> {
    let (output, mut messages) = mpsc::channel::<String>(64);
    let remote = Arc::new(Remote::new(url, token, scope)?);
    let bridge = Bridge { remote: remote.clone(), output };
    // Reports a wrong address or token at once, as an error of the command.
    remote.check_token().await?;
    let mut written = tokio::spawn(async move {
        let mut out = tokio::io::stdout();
        while let Some(mut message) = messages.recv().await {
            message.push('\n');
            if out.write_all(message.as_bytes()).await.is_err() || out.flush().await.is_err() {
                break;
            }
        }
    });
    let mut input = BufReader::new(tokio::io::stdin());
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut input).take(MAX_MESSAGE_BYTES as u64).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => break,
            Ok(_) => bridge.forward(&line).await,
            Err(error) => return Err(Message::new(format!("could not read standard input: {error}"))),
        }
        if written.is_finished() {
            break;
        }
    }
    remote.stop_listening();
    // The tasks that still wait for responses have clones; the writer ends with the last one.
    drop(bridge);
    let _ = tokio::time::timeout(LAST_RESPONSES_TIMEOUT, &mut written).await;
    remote.leave().await;
    Ok(())
}

impl Bridge {
    /// Forwards one message. `initialize` and notifications are awaited, because later messages
    /// depend on them; other requests run concurrently.
    async fn forward(&self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            if !line.trim_ascii().is_empty() {
                let error = json!({ "code": -32700, "message": "the message is not JSON, or too long" });
                self.write_json(&json!({ "jsonrpc": "2.0", "id": null, "error": error })).await;
            }
            return;
        };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let version = message["params"]["_meta"][VERSION_KEY].as_str().map(str::to_owned);
        if method == "notifications/cancelled" && self.remote.cancel(&message["params"]["requestId"]) {
            return;
        }
        if method == "initialize" || method.starts_with("notifications/") {
            self.exchange(message, version.as_deref()).await;
            if method == "notifications/initialized" {
                let listening = tokio::spawn(self.clone().listen());
                self.remote.session.lock().listening.push(listening.abort_handle());
            }
            return;
        }
        let (bridge, id) = (self.clone(), message["id"].to_string());
        let is_sessionless = version.is_some() && !message["id"].is_null();
        let waiting_id = id.clone();
        let mut session = self.remote.session.lock();
        let task = tokio::spawn(async move {
            bridge.exchange(message, version.as_deref()).await;
            bridge.remote.session.lock().waiting.remove(&waiting_id);
        });
        if is_sessionless {
            session.waiting.insert(id, task.abort_handle());
        }
        if method == LISTEN {
            session.listening.push(task.abort_handle());
        }
    }

    /// Sends one message and passes on its responses.
    async fn exchange(&self, message: Value, version: Option<&str>) {
        let id = message["id"].clone();
        let headers = self.remote.headers(&message, version);
        let is_initialize = message["method"] == "initialize";
        let answer = self.remote.call_mcp(Method::POST, headers, Body::from(message.to_string())).await;
        let failure = match answer {
            Ok(answer) => {
                if let Some(session) = answer.headers().get(SESSION).filter(|_| is_initialize) {
                    self.remote.session.lock().id = Some(session.clone());
                }
                self.read(answer, is_initialize).await.err()
            }
            Err(error) => Some(error),
        };
        if let Some(failure) = failure.filter(|_| !id.is_null()) {
            let error = json!({ "code": INTERNAL, "message": failure });
            self.write_json(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
        }
    }

    /// Passes on a response: one message, or a stream of them. The error is a message for the
    /// client.
    async fn read(&self, answer: Response<Incoming>, is_initialize: bool) -> Result<(), String> {
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let body = Body::new(answer.into_body());
        if is_stream {
            let mut events = Events::new(MAX_MESSAGE_BYTES);
            let mut pieces = body.into_data_stream();
            while let Some(piece) = pieces.next().await {
                let piece =
                    piece.map_err(|error| format!("the connection broke during the server's response: {error}"))?;
                let whole =
                    events.take(&piece).map_err(|TooLong| "the server sent a message that is too long".to_owned())?;
                for event in whole.into_iter().filter(|event| !event.data.is_empty()) {
                    self.note_version(&event.data, is_initialize);
                    // On standard output a message is one line. In JSON a line break outside of
                    // strings equals a space.
                    self.write(event.data.replace('\n', " ")).await;
                }
            }
            return Ok(());
        }
        let bytes = axum::body::to_bytes(body, MAX_MESSAGE_BYTES).await;
        let bytes = bytes.map_err(|error| format!("the connection broke during the server's response: {error}"))?;
        let message: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if message["jsonrpc"] == "2.0" {
            self.note_version(&message.to_string(), is_initialize);
            self.write_json(&message).await;
            return Ok(());
        }
        if status.is_success() {
            return Ok(());
        }
        let parts = message["error"]["message"].as_str().map(str::to_owned);
        Err(parts.unwrap_or_else(|| format!("the server responded with status {status}")))
    }

    /// Remembers the protocol version of the response to `initialize`.
    fn note_version(&self, data: &str, is_initialize: bool) {
        if is_initialize && let Ok(message) = serde_json::from_str::<Value>(data) {
            let version = message["result"]["protocolVersion"].as_str();
            let version = version.and_then(|version| HeaderValue::from_str(version).ok());
            self.remote.session.lock().version = version;
        }
    }

    /// Passes on the server's notifications, as long as the session exists.
    async fn listen(self) {
        loop {
            let headers = self.remote.headers(&Value::Null, None);
            match self.remote.call_mcp(Method::GET, headers, Body::empty()).await {
                Ok(answer) if answer.status().is_success() => drop(self.read(answer, false).await),
                // The server has no such stream, or the session has ended.
                Ok(_) => return,
                Err(error) => tracing::debug!(error, "could not open the stream of notifications"),
            }
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn write_json(&self, message: &Value) {
        self.write(message.to_string()).await;
    }

    async fn write(&self, message: String) {
        // Fails if standard output was closed; then `forward_stdio` ends.
        let _ = self.output.send(message).await;
    }
}

impl Remote {
    fn new(url: &str, token: Option<&str>, scope: &Scope) -> Result<Self, Message> {
        let named = [("user", &scope.user), ("agent", &scope.agent), ("session", &scope.session)];
        let parts = named.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_deref()?))));
        let query = parts.collect::<Vec<_>>().join("&");
        let target = if query.is_empty() { "/mcp".to_owned() } else { format!("/mcp?{query}") };
        let authorization = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.trim()))).transpose();
        let authorization = authorization
            .map_err(|_| Message::new("--token: not a token; it has characters that are not allowed in a header"))?;
        Ok(Self { server: RemoteServer::new(url)?, target, authorization, session: Mutex::default() })
    }

    async fn check_token(&self) -> Result<(), Message> {
        let answer = self.server.send(self.request(Method::GET, "/api/me", HeaderMap::new(), Body::empty())).await;
        let url = self.server.url();
        match answer {
            Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                let message = format!("{url} rejected the token");
                Err(Message::remote_without_code(401, "UNAUTHENTICATED", message)
                    .with_hint("pass a valid token with --token or RINGWALL_TOKEN"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Message::failed(UNREACHABLE, format!("could not reach {url}: {error}"))
                .with_hint("start a server with `ringwall serve`, or omit --url")),
        }
    }

    /// Cancels a sessionless request by closing its connection. Returns false if there is none with
    /// this id.
    fn cancel(&self, id: &Value) -> bool {
        let waiting = self.session.lock().waiting.remove(&id.to_string());
        waiting.map(|task| task.abort()).is_some()
    }

    fn headers(&self, message: &Value, version: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&header_text(value)) {
                headers.insert(name, value);
            }
        };
        match version {
            Some(version) => {
                let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
                put(VERSION, version);
                put(METHOD, method);
                let name = match method {
                    "tools/call" | "prompts/get" => params["name"].as_str(),
                    "resources/read" => params["uri"].as_str(),
                    _ => None,
                };
                if let Some(name) = name {
                    put(NAME, name);
                }
            }
            None => {
                let session = self.session.lock();
                let known = [(SESSION, &session.id), (VERSION, &session.version)];
                headers.extend(known.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
    }

    fn stop_listening(&self) {
        let listening = std::mem::take(&mut self.session.lock().listening);
        listening.iter().for_each(AbortHandle::abort);
    }

    /// Cancels the requests that still wait, and ends the session.
    async fn leave(&self) {
        let tasks: Vec<AbortHandle> = self.session.lock().waiting.drain().map(|(_, task)| task).collect();
        tasks.iter().for_each(AbortHandle::abort);
        if self.session.lock().id.is_some() {
            let headers = self.headers(&Value::Null, None);
            let _ = self.call_mcp(Method::DELETE, headers, Body::empty()).await;
        }
    }

    /// One request to `/mcp`.
    async fn call_mcp(&self, method: Method, headers: HeaderMap, body: Body) -> Result<Response<Incoming>, String> {
        self.server.send(self.request(method, &self.target, headers, body)).await
    }

    fn request(&self, method: Method, target: &str, headers: HeaderMap, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        // Always a valid URI: user, agent and session are percent-encoded.
        *request.uri_mut() = target.parse().unwrap_or_default();
        *request.headers_mut() = headers;
        let fixed = request.headers_mut();
        fixed.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(authorization) = &self.authorization {
            fixed.insert(header::AUTHORIZATION, authorization.clone());
        }
        request
    }
}

/// The address of the remote server. One request per connection, over HTTP or over HTTPS; dropping a
/// response closes the connection, which cancels the request on the server.
struct RemoteServer {
    authority: Authority,
    /// The path of the URL, which precedes every route.
    prefix: String,
    host: HeaderValue,
    /// The TLS configuration, and the name that the server's certificate must have.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RemoteServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl RemoteServer {
    fn new(url: &str) -> Result<Self, Message> {
        let scheme = Scheme::of(url)?;
        let wrong = || Message::new(format!("--url {url}: not an http:// or https:// address"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).cloned().ok_or_else(wrong)?;
        let tls = match scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let tls_config = ringwall_executor::trusting_client();
                let tls_config = tls_config.map_err(|error| Message::new(format!("could not set up TLS: {error}")))?;
                let bare = authority.host().trim_matches(['[', ']']).to_owned();
                Some((TlsConnector::from(Arc::new(tls_config)), ServerName::try_from(bare).map_err(|_| wrong())?))
            }
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { authority, prefix, host, tls })
    }

    /// The URL without a trailing slash.
    fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.prefix)
    }

    /// Sends one request on a new connection, which ends with the response.
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, String> {
        let target = format!("{}{}", self.prefix, request.uri());
        *request.uri_mut() = target.parse().map_err(|_| format!("{target} is not a valid request target"))?;
        request.headers_mut().insert(header::HOST, self.host.clone());
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let bare = self.authority.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((bare, port)).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
                exchange(stream, request).await
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<Response<Incoming>, String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

/// A header value: text that is not printable ASCII becomes `=?base64?…?=`.
fn header_text(value: &str) -> String {
    let is_plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && value.trim() == value;
    if is_plain && !value.starts_with("=?base64?") {
        return value.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_value_that_is_not_ascii_is_encoded() {
        assert_eq!(header_text("run_code"), "run_code");
        assert_eq!(header_text("ringwall://files/ü"), format!("=?base64?{}?=", STANDARD.encode("ringwall://files/ü")));
        assert_eq!(header_text(" a"), format!("=?base64?{}?=", STANDARD.encode(" a")));
        assert!(header_text("=?base64?x?=").len() > 12);
    }

    #[test]
    fn url_keeps_its_scheme_and_prefix() {
        for url in ["http://127.0.0.1:8003", "https://ringwall.example.org", "https://[::1]:8003/behind/it"] {
            assert_eq!(RemoteServer::new(&format!("{url}/")).expect("an address").url(), url);
        }
        for wrong in ["ftp://x", "127.0.0.1:8003", "http://", "http:///x", "https://a b"] {
            assert!(RemoteServer::new(wrong).is_err(), "{wrong}");
        }
    }
}
