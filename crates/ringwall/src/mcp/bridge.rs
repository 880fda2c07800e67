//! Carrying messages between standard streams and a server's `/mcp`, and nothing else: no message is read further than to know
//! where it goes.
//!
//! Each message of the client's is a request of its own, and whatever answers it is passed on as it comes. Where there are
//! sessions, the server's messages that answer nothing come over one more request. Without them, taking a request back
//! means to hang up. Plain HTTP only, as everywhere in this program's own client (docs/tls.md).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::event_stream::Events;
use super::verb::LONGEST_MESSAGE;
use super::who::Scope;
use crate::agent::encode;
use crate::message::Message;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Where a request without a session says its version.
const OWN_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const BEFORE_LISTENING_AGAIN: Duration = Duration::from_secs(1);
const INTERNAL: i64 = -32603;

/// What is known of the other end.
#[derive(Debug, Clone)]
struct Bridge {
    authority: String,
    target: String,
    authorization: Option<HeaderValue>,
    session: Arc<Mutex<Session>>,
    output: mpsc::Sender<String>,
}

#[derive(Debug, Default)]
struct Session {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// What waits for an answer without a session, by its id.
    waiting: HashMap<String, AbortHandle>,
}

/// Carries until the client hangs up.
pub(super) async fn carry(url: &str, token: Option<&str>, scope: &Scope) -> Result<(), Message> {
    let (output, mut messages) = mpsc::channel::<String>(64);
    let bridge = Bridge::new(url, token, scope, output)?;
    // Whoever is not there, or does not let us in, is told to a person at once.
    bridge.knock().await?;
    let written = tokio::spawn(async move {
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
        let read = (&mut input).take(LONGEST_MESSAGE as u64).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => break,
            Ok(_) => bridge.pass(&line).await,
            Err(error) => return Err(Message::new(format!("could not read standard input: {error}"))),
        }
        if written.is_finished() {
            break;
        }
    }
    bridge.leave().await;
    Ok(())
}

impl Bridge {
    fn new(url: &str, token: Option<&str>, scope: &Scope, output: mpsc::Sender<String>) -> Result<Self, Message> {
        let uri: Option<Uri> = url.trim_end_matches('/').parse().ok();
        let authority = uri.filter(|uri| uri.scheme_str() == Some("http")).and_then(|uri| uri.authority().cloned());
        let authority = authority.ok_or_else(|| {
            Message::new(format!("--url {url}: only http:// is spoken here"))
                .with_hint("docs/tls.md shows how to reach a server behind TLS")
        })?;
        let named = [("user", &scope.user), ("agent", &scope.agent), ("session", &scope.session)];
        let words = named.iter().filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_deref()?))));
        let query = words.collect::<Vec<_>>().join("&");
        let target = if query.is_empty() { "/mcp".to_owned() } else { format!("/mcp?{query}") };
        let authorization = token.map(|token| HeaderValue::from_str(&format!("Bearer {}", token.trim()))).transpose();
        let authorization = authorization.map_err(|_| Message::new("--token: that cannot be a token"))?;
        let with_port = if authority.port().is_some() { authority.to_string() } else { format!("{authority}:80") };
        Ok(Self { authority: with_port, target, authorization, session: Arc::default(), output })
    }

    async fn knock(&self) -> Result<(), Message> {
        let answer = self.send_to(Method::GET, "/api/me", HeaderMap::new(), Body::empty()).await;
        let url = format!("http://{}", self.authority);
        match answer {
            Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED => {
                Err(Message::new(format!("{url} does not know this token"))
                    .with_hint("give a token with --token or RINGWALL_TOKEN"))
            }
            Ok(_) => Ok(()),
            Err(error) => Err(Message::new(format!("could not reach {url}: {error}"))
                .with_hint("start a server with `ringwall serve`, or leave --url out")),
        }
    }

    /// Sends one message on. What begins a conversation is waited for, because the rest needs its answer.
    async fn pass(&self, line: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            if !line.trim_ascii().is_empty() {
                let error = json!({ "code": -32700, "message": "that is no JSON, or too much of it" });
                self.tell(&json!({ "jsonrpc": "2.0", "id": null, "error": error })).await;
            }
            return;
        };
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        let version = message["params"]["_meta"][OWN_VERSION].as_str().map(str::to_owned);
        if method == "notifications/cancelled" && self.hang_up(&message["params"]["requestId"]) {
            return;
        }
        if method == "initialize" || method.starts_with("notifications/") {
            self.exchange(message, version.as_deref()).await;
            if method == "notifications/initialized" {
                tokio::spawn(self.clone().listen());
            }
            return;
        }
        let (bridge, id) = (self.clone(), message["id"].to_string());
        let is_single = version.is_some() && !message["id"].is_null();
        let waiting_id = id.clone();
        let mut waiting = self.lock();
        let task = tokio::spawn(async move {
            bridge.exchange(message, version.as_deref()).await;
            bridge.lock().waiting.remove(&waiting_id);
        });
        if is_single {
            waiting.waiting.insert(id, task.abort_handle());
        }
    }

    /// Takes back what waits under this id, if that is how it is taken back.
    fn hang_up(&self, id: &Value) -> bool {
        let waiting = self.lock().waiting.remove(&id.to_string());
        waiting.map(|task| task.abort()).is_some()
    }

    /// One message, and whatever answers it.
    async fn exchange(&self, message: Value, version: Option<&str>) {
        let id = message["id"].clone();
        let headers = self.headers(&message, version);
        let is_beginning = message["method"] == "initialize";
        let answer = self.send_to(Method::POST, &self.target, headers, Body::from(message.to_string())).await;
        let failure = match answer {
            Ok(answer) => {
                if let Some(session) = answer.headers().get(SESSION).filter(|_| is_beginning) {
                    self.lock().id = Some(session.clone());
                }
                self.read(answer, is_beginning).await.err()
            }
            Err(error) => Some(error),
        };
        if let Some(failure) = failure.filter(|_| !id.is_null()) {
            let error = json!({ "code": INTERNAL, "message": failure });
            self.tell(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
        }
    }

    fn headers(&self, message: &Value, version: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut put = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(&legible(value)) {
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
                let session = self.lock();
                let known = [(SESSION, &session.id), (VERSION, &session.version)];
                headers.extend(known.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
            }
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
    }

    /// Passes on what an answer holds: one message, or several as they come.
    async fn read(&self, answer: Response<Incoming>, is_beginning: bool) -> Result<(), String> {
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let is_stream = kind.starts_with("text/event-stream");
        let body = Body::new(answer.into_body());
        if is_stream {
            let mut events = Events::default();
            let mut pieces = body.into_data_stream();
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|error| format!("the server's answer broke off: {error}"))?;
                for data in events.take(&piece)? {
                    self.note(&data, is_beginning);
                    self.say(data).await;
                }
            }
            return Ok(());
        }
        let bytes = axum::body::to_bytes(body, LONGEST_MESSAGE).await;
        let bytes = bytes.map_err(|error| format!("the server's answer broke off: {error}"))?;
        let told: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if told["jsonrpc"] == "2.0" {
            self.note(&told.to_string(), is_beginning);
            self.tell(&told).await;
            return Ok(());
        }
        if status.is_success() {
            return Ok(());
        }
        let words = told["error"]["message"].as_str().map(str::to_owned);
        Err(words.unwrap_or_else(|| format!("the server answered with status {status}")))
    }

    /// Which version was agreed on.
    fn note(&self, data: &str, is_beginning: bool) {
        if is_beginning && let Ok(message) = serde_json::from_str::<Value>(data) {
            let version = message["result"]["protocolVersion"].as_str();
            let version = version.and_then(|version| HeaderValue::from_str(version).ok());
            self.lock().version = version;
        }
    }

    /// What the server says of itself, for as long as the session is there.
    async fn listen(self) {
        loop {
            let headers = self.headers(&Value::Null, None);
            match self.send_to(Method::GET, &self.target, headers, Body::empty()).await {
                Ok(answer) if answer.status().is_success() => drop(self.read(answer, false).await),
                // There is nothing to listen to, or not any more.
                Ok(_) => return,
                Err(error) => tracing::debug!(error, "could not listen"),
            }
            tokio::time::sleep(BEFORE_LISTENING_AGAIN).await;
        }
    }

    async fn leave(&self) {
        let tasks: Vec<AbortHandle> = self.lock().waiting.drain().map(|(_, task)| task).collect();
        tasks.iter().for_each(AbortHandle::abort);
        if self.lock().id.is_some() {
            let headers = self.headers(&Value::Null, None);
            let _ = self.send_to(Method::DELETE, &self.target, headers, Body::empty()).await;
        }
    }

    /// One request on a connection of its own, which ends with the answer.
    async fn send_to(
        &self,
        method: Method,
        target: &str,
        headers: HeaderMap,
        body: Body,
    ) -> Result<Response<Incoming>, String> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = target.parse().map_err(|_| format!("{target} cannot be asked for"))?;
        *request.headers_mut() = headers;
        let fixed = request.headers_mut();
        if let Ok(host) = HeaderValue::from_str(&self.authority) {
            fixed.insert(header::HOST, host);
        }
        fixed.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(authorization) = &self.authorization {
            fixed.insert(header::AUTHORIZATION, authorization.clone());
        }
        sender.send_request(request).await.map_err(|error| error.to_string())
    }

    async fn tell(&self, message: &Value) {
        self.say(message.to_string()).await;
    }

    async fn say(&self, message: String) {
        // Nobody reads any more where this fails, and that ends everything soon.
        let _ = self.output.send(message).await;
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value as a header can have it: what is no plain text is encoded, and says so.
fn legible(value: &str) -> String {
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
    fn what_a_header_cannot_have_is_encoded() {
        assert_eq!(legible("run_code"), "run_code");
        assert_eq!(legible("ringwall://files/ü"), format!("=?base64?{}?=", STANDARD.encode("ringwall://files/ü")));
        assert_eq!(legible(" a"), format!("=?base64?{}?=", STANDARD.encode(" a")));
        assert!(legible("=?base64?x?=").len() > 12);
    }
}
