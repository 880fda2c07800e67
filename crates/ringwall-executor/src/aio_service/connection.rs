//! Sends one HTTP request to an AIO service, with a timeout and a maximum size of the answer.
//!
//! No redirect is followed and no proxy used, because either would receive our key. The HTTP client
//! blocks, so each request runs on a blocking thread. If the caller stops waiting, the request
//! still runs until its timeout.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ringwall_policy::Secret;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ureq::http::{HeaderValue, Response};
use ureq::{Agent, Body};

use super::address::ServiceUrl;
use crate::aio_error::{AioError, MAX_ANSWER};
use crate::tls_roots::trust;

const MAX_STDERR_LEN: u64 = 64 << 10;
const MAX_TEXT_CHARS: usize = 300;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections are closed before the service closes them: a command sent into a connection
/// that is just closed would be lost.
const MAX_IDLE: Duration = Duration::from_secs(2);
const KEY: &str = "x-aio-api-key";

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Connection(Arc<Shared>);

struct Shared {
    url: ServiceUrl,
    key: HeaderValue,
    agent: Agent,
}

impl fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Connection").field(&self.0.url).finish()
    }
}

/// One request: its description for "could not …", its path and its timeout.
#[derive(Debug, Clone)]
pub(super) struct ServiceRequest {
    pub(super) action: &'static str,
    pub(super) path: String,
    pub(super) timeout: Duration,
}

impl ServiceRequest {
    pub(super) fn new(action: &'static str, path: impl Into<String>, timeout: Duration) -> Self {
        Self { action, path: path.into(), timeout }
    }
}

impl Connection {
    pub(super) fn new(url: ServiceUrl, key: &Secret) -> Result<Self, AioError> {
        let mut value = HeaderValue::from_bytes(key.expose().as_encoded_bytes()).map_err(|_| AioError::KeyMalformed)?;
        value.set_sensitive(true);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_age(MAX_IDLE)
            .user_agent(concat!("ringwall/", env!("CARGO_PKG_VERSION")))
            .tls_config(trust())
            .build()
            .into();
        Ok(Self(Arc::new(Shared { url, key: value, agent })))
    }

    /// Returns `data` of the answer.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        request: ServiceRequest,
        body: &impl Serialize,
    ) -> Result<T, AioError> {
        let action = request.action;
        let bytes = self.send(request, body).await?;
        let envelope: Envelope<T> =
            serde_json::from_slice(&bytes).map_err(|error| parse_error(action, &bytes, &error))?;
        envelope.data(action)
    }

    /// For requests without a result.
    pub(super) async fn order(&self, request: ServiceRequest, body: &impl Serialize) -> Result<(), AioError> {
        let action = request.action;
        let bytes = self.send(request, body).await?;
        let envelope: Envelope<IgnoredAny> =
            serde_json::from_slice(&bytes).map_err(|error| parse_error(action, &bytes, &error))?;
        envelope.done(action)
    }

    /// For an answer without an envelope.
    pub(super) async fn get<T: DeserializeOwned>(&self, request: ServiceRequest) -> Result<T, AioError> {
        let action = request.action;
        let bytes = self.exchange(request, None).await?;
        serde_json::from_slice(&bytes).map_err(|error| parse_error(action, &bytes, &error))
    }

    async fn send(&self, request: ServiceRequest, body: &impl Serialize) -> Result<Vec<u8>, AioError> {
        let action = request.action;
        let body = serde_json::to_vec(body).map_err(|error| malformed(action, &error.to_string()))?;
        self.exchange(request, Some(body)).await
    }

    async fn exchange(&self, request: ServiceRequest, body: Option<Vec<u8>>) -> Result<Vec<u8>, AioError> {
        let (connection, action) = (self.clone(), request.action);
        let exchanged = tokio::task::spawn_blocking(move || connection.exchange_here(&request, body)).await;
        exchanged.unwrap_or_else(|_| Err(AioError::Unreachable { action, why: "the request was cancelled".to_owned() }))
    }

    fn exchange_here(&self, request: &ServiceRequest, body: Option<Vec<u8>>) -> Result<Vec<u8>, AioError> {
        let Shared { url, key, agent } = &*self.0;
        let address = format!("{url}{}", request.path);
        let timeout = Some(request.timeout);
        let answered = match body {
            None => agent.get(address).config().timeout_global(timeout).build().header(KEY, key).call(),
            Some(body) => agent
                .post(address)
                .config()
                .timeout_global(timeout)
                .build()
                .header(KEY, key)
                .header("content-type", "application/json")
                .send(body),
        };
        let mut answer = answered.map_err(|error| failure(request, error))?;
        let (action, status) = (request.action, answer.status().as_u16());
        match status {
            200..=299 => {
                let read = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
                read.map_err(|error| failure(request, error))
            }
            300..=399 => Err(AioError::Redirected { action }),
            401 | 403 => Err(AioError::KeyRefused),
            422 => Err(AioError::NotUnderstood { action, words: complaint(&mut answer) }),
            _ => Err(AioError::Failed { action, status, words: complaint(&mut answer) }),
        }
    }
}

/// The envelope of every answer except that of `/v1/sandbox`.
#[derive(Debug, Deserialize)]
struct Envelope<T> {
    success: Option<bool>,
    message: Option<String>,
    data: Option<T>,
}

impl<T> Envelope<T> {
    fn data(self, action: &'static str) -> Result<T, AioError> {
        match self {
            Self { success: Some(false), message, .. } => Err(refused(action, message)),
            Self { data: Some(data), .. } => Ok(data),
            Self { data: None, .. } => Err(malformed(action, "it has no data")),
        }
    }

    fn done(self, action: &'static str) -> Result<(), AioError> {
        match self.success {
            Some(false) => Err(refused(action, self.message)),
            Some(true) | None => Ok(()),
        }
    }
}

fn refused(action: &'static str, message: Option<String>) -> AioError {
    AioError::Refused { action, words: shorten(&message.unwrap_or_default()) }
}

/// The body of an HTTP error, in either of two forms: `message`, or `detail` as of FastAPI.
#[derive(Debug, Deserialize)]
struct ErrorBody {
    message: Option<String>,
    detail: Option<Value>,
}

impl ErrorBody {
    fn text(self) -> String {
        match self {
            Self { message: Some(message), .. } => message,
            Self { detail: Some(Value::String(detail)), .. } => detail,
            Self { detail: Some(detail), .. } => detail.to_string(),
            Self { message: None, detail: None } => String::new(),
        }
    }
}

fn failure(request: &ServiceRequest, error: ureq::Error) -> AioError {
    let action = request.action;
    match error {
        ureq::Error::Timeout(_) => AioError::TooLate { action, timeout: request.timeout },
        ureq::Error::BodyExceedsLimit(_) => AioError::TooLarge { action },
        other => AioError::Unreachable { action, why: shorten(&other.to_string()) },
    }
}

/// The error message in the answer, or else the beginning of its text.
fn complaint(answer: &mut Response<Body>) -> String {
    let mut bytes = Vec::new();
    let mut reader = answer.body_mut().as_reader().take(MAX_STDERR_LEN);
    // An answer that breaks off is shown as far as it came.
    let _ = reader.read_to_end(&mut bytes);
    match serde_json::from_slice::<ErrorBody>(&bytes) {
        Ok(body) => shorten(&body.text()),
        Err(_) => shorten(&String::from_utf8_lossy(&bytes)),
    }
}

/// Error of an answer that cannot be parsed: an envelope with `success: false` may have `data` of
/// another form.
fn parse_error(action: &'static str, bytes: &[u8], error: &serde_json::Error) -> AioError {
    match serde_json::from_slice::<Envelope<IgnoredAny>>(bytes).map(|envelope| envelope.done(action)) {
        Ok(Err(refused)) => refused,
        Ok(Ok(())) | Err(_) => malformed(action, &error.to_string()),
    }
}

pub(super) fn malformed(action: &'static str, words: &str) -> AioError {
    AioError::Malformed { action, words: shorten(words) }
}

/// Untrusted text for one line of ours: no control characters, at most [`MAX_TEXT_CHARS`] characters.
pub(super) fn shorten(words: &str) -> String {
    let plain = words.chars().map(|character| if character.is_control() { ' ' } else { character });
    let text: String = plain.take(MAX_TEXT_CHARS).collect();
    let text = text.trim();
    if text.is_empty() { "no message".to_owned() } else { text.to_owned() }
}
