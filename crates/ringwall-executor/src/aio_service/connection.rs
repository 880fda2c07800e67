//! One question to an AIO service and its answer: within a time, up to a size, from the address that was named and no other.
//!
//! No redirect is followed and no proxy is asked, because either would be handed our key. A question is asked on a thread where
//! it may block; whoever stops waiting for it leaves it to its own time limit.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ringwall_policy::Secret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{HeaderValue, Response};
use ureq::{Agent, Body};

use super::address::ServiceUrl;
use super::messages::{Complaint, Envelope};
use crate::error::{AioError, MAX_ANSWER};
use crate::tls_roots::trust;

const MAX_STDERR_LEN: u64 = 64 << 10;
const MAX_WORDS: usize = 300;
const CONNECTING: Duration = Duration::from_secs(5);
/// A connection that nobody used is closed before the service does: a command must not be lost on its way into one.
const IDLE: Duration = Duration::from_secs(2);
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

/// What is asked, for "could not …", where, and how long the answer may take.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) asked: &'static str,
    pub(super) path: String,
    pub(super) patience: Duration,
}

impl Connection {
    pub(super) fn new(url: ServiceUrl, key: &Secret) -> Result<Self, AioError> {
        let mut value = HeaderValue::from_bytes(key.expose().as_encoded_bytes()).map_err(|_| AioError::KeyMalformed)?;
        value.set_sensitive(true);
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECTING))
            .max_idle_age(IDLE)
            .user_agent(concat!("ringwall/", env!("CARGO_PKG_VERSION")))
            .tls_config(trust())
            .build()
            .into();
        Ok(Self(Arc::new(Shared { url, key: value, agent })))
    }

    /// The `data` of the answer.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        question: Question,
        body: &impl Serialize,
    ) -> Result<T, AioError> {
        let asked = question.asked;
        let bytes = self.send(question, body).await?;
        let envelope: Envelope<T> = serde_json::from_slice(&bytes).map_err(|error| not_this(asked, &bytes, &error))?;
        envelope.data(asked)
    }

    /// For questions whose answer is that it was done.
    pub(super) async fn order(&self, question: Question, body: &impl Serialize) -> Result<(), AioError> {
        let asked = question.asked;
        let bytes = self.send(question, body).await?;
        let envelope: Envelope<serde::de::IgnoredAny> =
            serde_json::from_slice(&bytes).map_err(|error| not_this(asked, &bytes, &error))?;
        envelope.done(asked)
    }

    /// The answer itself, where it is no envelope.
    pub(super) async fn get<T: DeserializeOwned>(&self, question: Question) -> Result<T, AioError> {
        let asked = question.asked;
        let bytes = self.exchange(question, None).await?;
        serde_json::from_slice(&bytes).map_err(|error| not_this(asked, &bytes, &error))
    }

    async fn send(&self, question: Question, body: &impl Serialize) -> Result<Vec<u8>, AioError> {
        let asked = question.asked;
        let body = serde_json::to_vec(body).map_err(|error| malformed(asked, &error.to_string()))?;
        self.exchange(question, Some(body)).await
    }

    async fn exchange(&self, question: Question, body: Option<Vec<u8>>) -> Result<Vec<u8>, AioError> {
        let (connection, asked) = (self.clone(), question.asked);
        let exchanged = tokio::task::spawn_blocking(move || connection.exchange_here(&question, body)).await;
        exchanged.unwrap_or_else(|_| Err(AioError::Unreachable { asked, why: "it was broken off".to_owned() }))
    }

    fn exchange_here(&self, question: &Question, body: Option<Vec<u8>>) -> Result<Vec<u8>, AioError> {
        let Shared { url, key, agent } = &*self.0;
        let address = format!("{url}{}", question.path);
        let patience = Some(question.patience);
        let answered = match body {
            None => agent.get(address).config().timeout_global(patience).build().header(KEY, key).call(),
            Some(body) => agent
                .post(address)
                .config()
                .timeout_global(patience)
                .build()
                .header(KEY, key)
                .header("content-type", "application/json")
                .send(body),
        };
        let mut answer = answered.map_err(|error| failure(question, error))?;
        let (asked, status) = (question.asked, answer.status().as_u16());
        match status {
            200..=299 => {
                let read = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
                read.map_err(|error| failure(question, error))
            }
            300..=399 => Err(AioError::Redirected { asked }),
            401 | 403 => Err(AioError::KeyRefused),
            422 => Err(AioError::NotUnderstood { asked, words: complaint(&mut answer) }),
            _ => Err(AioError::Failed { asked, status, words: complaint(&mut answer) }),
        }
    }
}

fn failure(question: &Question, error: ureq::Error) -> AioError {
    let asked = question.asked;
    match error {
        ureq::Error::Timeout(_) => AioError::TooLate { asked, patience: question.patience },
        ureq::Error::BodyExceedsLimit(_) => AioError::TooLarge { asked },
        other => AioError::Unreachable { asked, why: in_short(&other.to_string()) },
    }
}

/// What it says about itself, or else its first words.
fn complaint(answer: &mut Response<Body>) -> String {
    let mut bytes = Vec::new();
    let mut reader = answer.body_mut().as_reader().take(MAX_STDERR_LEN);
    // What came is shown, also of an answer that breaks off.
    let _ = reader.read_to_end(&mut bytes);
    match serde_json::from_slice::<Complaint>(&bytes) {
        Ok(complaint) => in_short(&complaint.words()),
        Err(_) => in_short(&String::from_utf8_lossy(&bytes)),
    }
}

/// A refusal may come with data of another form, or none.
fn not_this(asked: &'static str, bytes: &[u8], error: &serde_json::Error) -> AioError {
    match serde_json::from_slice::<Envelope<serde::de::IgnoredAny>>(bytes).map(|envelope| envelope.done(asked)) {
        Ok(Err(refused)) => refused,
        Ok(Ok(())) | Err(_) => malformed(asked, &error.to_string()),
    }
}

pub(super) fn malformed(asked: &'static str, words: &str) -> AioError {
    AioError::Malformed { asked, words: in_short(words) }
}

/// Words of a stranger's, for a line of ours.
pub(super) fn in_short(words: &str) -> String {
    let plain = words.chars().map(|character| if character.is_control() { ' ' } else { character });
    let text: String = plain.take(MAX_WORDS).collect();
    let text = text.trim();
    if text.is_empty() { "without a word".to_owned() } else { text.to_owned() }
}
