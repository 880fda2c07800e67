//! Reads request bodies of bounded size and duration, query and path parameters, and some headers.
//!
//! Malformed input is INVALID_ARGUMENT with the place of the mistake. It is never logged, because a
//! body may hold the values of environment variables.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::AsHeaderName;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use futures::StreamExt;
use ringwall_service::Idempotency;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::json;
use super::problem::Problem;
use crate::http::AppState;
use crate::http::body_memory::Reservation;

/// The result of a handler that responds with JSON.
pub(crate) type JsonResult<T> = Result<Json<T>, Problem>;

/// For the whole body.
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_KEY_LEN: usize = 255;

/// Reads a whole body as JSON.
pub(crate) async fn read_json(body: Body, max_bytes: usize) -> Result<Value, Problem> {
    read_json_within(body, max_bytes, "server.max_body_bytes").await
}

/// Like [`read_json`]; `setting` is the one that limits the body and appears in the error.
pub(crate) async fn read_json_within(body: Body, max_bytes: usize, setting: &str) -> Result<Value, Problem> {
    parse(&read_bytes(body, max_bytes, setting).await?)
}

/// Rejects a body on a route that reads none, because its keys would be ignored silently. `{}` and
/// `null` are accepted: they have no keys, and some clients send one of them with every request.
pub(crate) async fn refuse_body(body: Body, query: &[String]) -> Result<(), Problem> {
    /// Enough for `{}` and some white space.
    const MAX_EMPTY_LEN: usize = 64;
    if axum::body::HttpBody::is_end_stream(&body) {
        return Ok(());
    }
    if let Ok(Ok(bytes)) = tokio::time::timeout(TIMEOUT, to_bytes(body, MAX_EMPTY_LEN)).await
        && (bytes.is_empty() || parse(&bytes).is_ok_and(|body| has_no_keys(&body)))
    {
        return Ok(());
    }
    let problem = Problem::invalid("this route takes no body, so its content would be ignored");
    Err(match query {
        [] => problem.with_hint("send the request without a body"),
        names => problem.with_hint(format!("send it as a query parameter: {}", names.join(", "))),
    })
}

fn has_no_keys(body: &Value) -> bool {
    body.is_null() || body.as_object().is_some_and(serde_json::Map::is_empty)
}

fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    json::read(bytes).map_err(|error| Problem::invalid(format!("the body is not JSON: {error}")))
}

/// Like [`read_json`]; an empty body is `None`.
pub(crate) async fn read_optional_json(body: Body, max_bytes: usize) -> Result<Option<Value>, Problem> {
    let bytes = read_bytes(body, max_bytes, "server.max_body_bytes").await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    parse(&bytes).map(Some)
}

/// Reads a whole body as text.
pub(crate) async fn read_text_within(body: Body, max_bytes: usize, setting: &str) -> Result<String, Problem> {
    let bytes = read_bytes(body, max_bytes, setting).await?;
    String::from_utf8(bytes.into()).map_err(|_| Problem::invalid("the body is not UTF-8 text"))
}

/// Reads a whole body as bytes.
pub(crate) async fn read_bytes(body: Body, max_bytes: usize, setting: &str) -> Result<Bytes, Problem> {
    read_reserved(body, max_bytes, setting, Reservation::new(max_bytes)).await
}

async fn read_reserved(
    body: Body,
    max_bytes: usize,
    setting: &str,
    mut reservation: Reservation,
) -> Result<Bytes, Problem> {
    let too_large = || too_large(u64::try_from(max_bytes).unwrap_or(u64::MAX), setting);
    // Rejects a too large `Content-Length` before reading.
    if usize::try_from(axum::body::HttpBody::size_hint(&body).lower()).is_ok_and(|announced| announced > max_bytes) {
        return Err(too_large());
    }
    let reading = async {
        let (mut stream, mut bytes) = (body.into_data_stream(), Vec::new());
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|_| Problem::invalid("the body could not be read completely"))?;
            if bytes.len() + chunk.len() > max_bytes {
                return Err(too_large());
            }
            reservation.grow_to(bytes.len() + chunk.len())?;
            bytes.extend_from_slice(&chunk);
        }
        Ok(Bytes::from_owner(ReceivedBody { bytes, _reservation: reservation }))
    };
    tokio::time::timeout(TIMEOUT, reading).await.unwrap_or_else(|_| {
        let message = "the body did not arrive within 60 seconds";
        Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", message))
    })
}

/// A body that holds its memory reservation.
struct ReceivedBody {
    bytes: Vec<u8>,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReceivedBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

pub(crate) fn too_large(max_bytes: u64, setting: &str) -> Problem {
    let message = format!("the body is larger than {max_bytes} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
        .with_hint(format!("the operator can raise {setting}"))
}

/// Deserializes the body of a route.
pub(crate) fn deserialize<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    // serde also reads a struct from an array of its fields, which the published schema does not
    // allow.
    if !body.is_object() {
        return Err(Problem::invalid("the body is malformed: it must be a JSON object"));
    }
    serde_json::from_value(body).map_err(|error| Problem::invalid(format!("the body is malformed: {error}")))
}

/// The body of a request as JSON. Unknown members are rejected if `T` has `deny_unknown_fields`.
#[derive(Debug)]
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        deserialize(read_json(request.into_body(), state.max_body_bytes).await?).map(JsonBody)
    }
}

/// The query parameters. Unknown ones are rejected if `T` has `deny_unknown_fields`.
#[derive(Debug)]
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Query(query)),
            Err(error) => {
                let text = error.body_text();
                // Keeps the message in the form of those about bodies.
                let reason = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(Problem::invalid(format!("the query is malformed: {reason}")))
            }
        }
    }
}

/// The decoded path parameters. A path that cannot be decoded is 404.
#[derive(Debug)]
pub(crate) struct PathParam<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathParam<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(names)) => Ok(PathParam(names)),
            Err(_) => Err(Problem::not_found(format!("there is nothing at {}", parts.uri.path()))),
        }
    }
}

/// Reads `Idempotency-Key`. The digest covers path and body; order of members and white space do
/// not matter.
pub(crate) fn idempotency_key(headers: &HeaderMap, path: &str, body: &Value) -> Result<Option<Idempotency>, Problem> {
    if !headers.contains_key("idempotency-key") {
        return Ok(None);
    }
    let key = only_header(headers, "idempotency-key").and_then(|key| key.to_str().ok());
    let Some(key) = key.filter(|key| (1..=MAX_KEY_LEN).contains(&key.len())) else {
        return Err(Problem::invalid("Idempotency-Key: one header of 1 to 255 printable ASCII characters"));
    };
    let digest = Sha256::new().chain_update(path).chain_update([0]).chain_update(body.to_string()).finalize();
    Ok(Some(Idempotency { key: key.to_owned(), body_digest: digest.into() }))
}

/// The value of a header. Several headers of that name count as none: a proxy may have read another
/// one.
pub(crate) fn only_header(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let (value, another) = (values.next()?, values.next());
    another.is_none().then_some(value)
}

/// True if the request has `Prefer: respond-async`.
pub(crate) fn prefers_async(headers: &HeaderMap) -> bool {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    preferences
        .flat_map(|value| value.split(','))
        .any(|preference| preference.trim().eq_ignore_ascii_case("respond-async"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::body_memory::{BodyMemory, SMALL_BODY};

    #[tokio::test]
    async fn body_above_the_limit_is_rejected() {
        let read = async |text: &str, max_bytes| {
            read_json(Body::from(text.to_owned()), max_bytes).await.map_err(|problem| problem.code())
        };
        assert_eq!(read("[1]", 3).await, Ok(json!([1])));
        assert_eq!(read("[12]", 3).await, Err("BODY_TOO_LARGE"));
        assert_eq!(read("[1", 3).await, Err("INVALID_ARGUMENT"));
        assert_eq!(read(r#"{"a":1,"a":2}"#, 99).await, Err("INVALID_ARGUMENT"));
        let unannounced = || Body::from_stream(futures::stream::iter(["[1", ",2]"].map(Ok::<_, std::io::Error>)));
        assert_eq!(read_json(unannounced(), 5).await.unwrap(), json!([1, 2]));
        assert_eq!(read_json(unannounced(), 4).await.unwrap_err().code(), "BODY_TOO_LARGE");
    }

    #[tokio::test]
    async fn unread_body_is_rejected_unless_it_has_no_keys() {
        let refuse = async |text: &str| {
            let refused = refuse_body(Body::from(text.to_owned()), &["dry_run".to_owned()]).await;
            refused.map_err(|problem| problem.code())
        };
        for nothing in ["", "{}", " { }\n", "null"] {
            assert_eq!(refuse(nothing).await, Ok(()), "{nothing:?}");
        }
        for something in [r#"{"dry_run":true}"#, "[]", "true", "x", " ", &" ".repeat(100)] {
            assert_eq!(refuse(something).await, Err("INVALID_ARGUMENT"), "{something:?}");
        }
    }

    #[tokio::test]
    async fn received_body_holds_its_memory_until_it_is_dropped() {
        static MEMORY: BodyMemory = BodyMemory::new();
        let read = async |length: usize| {
            let reservation = MEMORY.reserve("a".to_owned(), 3 * SMALL_BODY, 3 * SMALL_BODY);
            let chunks = (0..length / 1024).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 1024]));
            let body = Body::from_stream(futures::stream::iter(chunks));
            read_reserved(body, usize::MAX, "", reservation).await.map_err(|problem| problem.code())
        };
        let large = read(2 * SMALL_BODY).await.unwrap();
        let small = read(SMALL_BODY).await.unwrap();
        assert_eq!(MEMORY.total(), large.len(), "{} bytes count", small.len());
        assert_eq!(read(2 * SMALL_BODY).await.unwrap_err(), "BODY_MEMORY");
        assert_eq!(MEMORY.total(), large.len(), "a refused body keeps its memory");
        drop(large);
        assert!(read(2 * SMALL_BODY).await.is_ok());
        assert_eq!(MEMORY.total(), 0);
    }

    #[test]
    fn body_other_than_an_object_is_rejected() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Small {
            x: u32,
        }
        assert_eq!(deserialize::<Small>(json!({ "x": 1 })).unwrap(), Small { x: 1 });
        for odd in [json!([1]), json!(null), json!("x")] {
            assert_eq!(deserialize::<Small>(odd).unwrap_err().code(), "INVALID_ARGUMENT");
        }
    }

    #[test]
    fn digest_ignores_order_and_white_space() {
        let mut headers = HeaderMap::new();
        assert!(idempotency_key(&headers, "/a", &json!({})).unwrap().is_none());
        headers.insert("idempotency-key", "k".parse().unwrap());
        let digest = |path, body: &str| {
            idempotency_key(&headers, path, &serde_json::from_str(body).unwrap()).unwrap().unwrap().body_digest
        };
        assert_eq!(digest("/a", r#"{"x":1,"y":2}"#), digest("/a", r#"{ "y": 2, "x": 1 }"#));
        assert_ne!(digest("/a", r#"{"x":1}"#), digest("/a", r#"{"x":2}"#));
        assert_ne!(digest("/a", r#"{"x":1}"#), digest("/b", r#"{"x":1}"#));
        headers.append("idempotency-key", "l".parse().unwrap());
        assert!(idempotency_key(&headers, "/a", &json!({})).is_err());
    }

    #[test]
    fn respond_async_is_found_in_a_list_of_preferences() {
        let asks = |value: &str| {
            prefers_async(&HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("prefer"),
                value.parse().unwrap(),
            )]))
        };
        assert!(asks("respond-async") && asks("wait=5, Respond-Async"));
        assert!(!asks("respond-asynchronously") && !asks("return=minimal"));
    }
}
