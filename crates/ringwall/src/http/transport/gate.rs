//! The outermost middleware of every request: assigns a request id, checks host and origin, writes
//! error bodies and logs one line. The log never contains a query, a header or a body.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::host_check::Hosts;
use super::problem::{self, Problem};
use super::unread_body;
use crate::http::handlers::console::IMMUTABLE;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const MAX_ID_LEN: usize = 64;

pub(crate) async fn pass(State(hosts): State<Arc<Hosts>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let request_id = identify(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (parts, body) = request.into_parts();
    let response = match hosts.check(&parts) {
        Ok(()) => {
            let (body, unread) = unread_body::split(&parts.headers, body);
            let response = next.run(Request::from_parts(parts, body)).await;
            if let Some(unread) = unread.filter(|_| response.status().is_client_error()) {
                unread.drain().await;
            }
            response
        }
        Err(problem) => problem.into_response(),
    };
    let code = response.extensions().get::<Problem>().map(Problem::code);
    let status = response.status().as_u16();
    let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    tracing::info!(request_id, %method, path, status, code, took_us, "request");
    let mut response = problem::write_error_body(response, &path, &request_id);
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The caller's request id if it has at most 64 characters, all of them `[A-Za-z0-9._-]`; otherwise
/// a new one.
fn identify(headers: &HeaderMap) -> String {
    static BEGUN: LazyLock<u64> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or_default()
    });
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let is_plain = |text: &&str| {
        (1..=MAX_ID_LEN).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    };
    match headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(is_plain) {
        Some(own) => own.to_owned(),
        None => format!("r{:x}-{:x}", *BEGUN, COUNT.fetch_add(1, Ordering::Relaxed)),
    }
}

/// Sets headers that keep a browser from rendering content of boxes as a page of this server, and
/// caches from storing it. Only the console's files, whose names contain a hash of their content,
/// may be cached.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if headers.get(header::CACHE_CONTROL).is_none_or(|value| value != IMMUTABLE) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(HeaderValue::from_static("sandbox; default-src 'none'"));
    response
}

pub(crate) async fn unknown_path(request: Request) -> Problem {
    Problem::not_found(format!("there is no route {}", request.uri().path()))
        .with_hint("GET /openapi.json lists all routes")
}

pub(crate) async fn unknown_method(request: Request) -> Problem {
    let message = format!("{} does not support {}", request.uri().path(), request.method());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message)
        .with_hint("GET /openapi.json lists the methods of each route")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_request_id_is_replaced() {
        let id = |value: &'static str| identify(&HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(value))]));
        assert_eq!(id("abc-1.2_X"), "abc-1.2_X");
        for odd in ["", "a b", "a\"b", "0123456789012345678901234567890123456789012345678901234567890123456789"] {
            assert_ne!(id(odd), odd);
        }
        assert_ne!(identify(&HeaderMap::new()), identify(&HeaderMap::new()));
    }
}
