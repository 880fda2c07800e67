//! The cookie that shows a login, and when a request that has one is believed.
//!
//! A browser sends a cookie along whoever made it ask, so the cookie alone does not say that our own page asked. Three things
//! do together. It is `SameSite=Strict`: no page of another site makes the browser send it. A page of the same site that is
//! not ours (another port of this host) is told apart by `Sec-Fetch-Site`, which no page can set. And whatever changes
//! something, or opens a WebSocket, needs an `Origin`: browsers send one with all of those, the gate has refused every foreign
//! one before, so one that is present here is our own. Hence no secret in a header is needed beside it. The cookie is
//! `HttpOnly`: no script reads it.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ringwall_service::LOGIN_LASTS;

use super::problem::Problem;

const NAME: &str = "ringwall_session";

/// The text of the login that a request shows. Two cookies of our name are none, as two headers are.
pub(crate) fn find(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = pairs
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(name, text)| (name == NAME).then_some(text));
    let (text, another) = (ours.next()?, ours.next());
    Some(text).filter(|text| another.is_none() && !text.is_empty())
}

/// Says whether it was our own page that asked.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let foreign = |message: &str| Err(Problem::new(StatusCode::FORBIDDEN, "FOREIGN_ORIGIN", message));
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return foreign("a login is for this server's own pages alone");
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if (changes || headers.contains_key(header::UPGRADE)) && !headers.contains_key(header::ORIGIN) {
        return foreign("a request by cookie that changes something needs the header `Origin`");
    }
    Ok(())
}

/// Sets the cookie. Over TLS it is never sent without; which of the two it was, the page's own address says.
pub(crate) fn set(request: &Parts, text: &str) -> HeaderValue {
    let origin = request.headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
    let secure = if origin.starts_with(b"https://") { "; Secure" } else { "" };
    let seconds = LOGIN_LASTS.as_secs();
    write(&format!("{NAME}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"))
}

/// Takes it away.
pub(crate) fn clear() -> HeaderValue {
    write(&format!("{NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"))
}

/// What is written is digits and the words above.
fn write(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn one_cookie_is_found_among_others() {
        let found = |pairs| find(&headers(pairs)).map(str::to_owned);
        assert_eq!(found(&[("cookie", "a=b; ringwall_session=x; c=d")]).as_deref(), Some("x"));
        assert_eq!(found(&[("cookie", "a=b"), ("cookie", "ringwall_session=x")]).as_deref(), Some("x"));
        for none in [
            &[][..],
            &[("cookie", "ringwall_session=")],
            &[("cookie", "ringwall_session=x; ringwall_session=y")],
            &[("cookie", "xringwall_session=x")],
        ] {
            assert_eq!(found(none), None, "{none:?}");
        }
    }

    #[test]
    fn only_our_own_page_may_use_it() {
        let may = |method: Method, pairs| check(&method, &headers(pairs)).is_ok();
        assert!(may(Method::GET, &[]));
        assert!(may(Method::GET, &[("sec-fetch-site", "same-origin")]));
        assert!(may(Method::GET, &[("sec-fetch-site", "none")]));
        assert!(may(Method::POST, &[("origin", "http://localhost"), ("sec-fetch-site", "same-origin")]));
        assert!(may(Method::GET, &[("origin", "http://localhost"), ("upgrade", "websocket")]));
        assert!(!may(Method::GET, &[("sec-fetch-site", "same-site")]));
        assert!(!may(Method::GET, &[("sec-fetch-site", "cross-site")]));
        assert!(!may(Method::GET, &[("upgrade", "websocket")]));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            assert!(!may(method, &[]));
        }
    }

    #[test]
    fn over_tls_it_stays_there() {
        let cookie = |origin: &str| {
            let (parts, ()) = Request::post("/").header("origin", origin).body(()).unwrap().into_parts();
            set(&parts, "x").to_str().unwrap().to_owned()
        };
        assert!(cookie("https://box.example").ends_with("; Secure"));
        let plain = cookie("http://localhost:8003");
        assert!(!plain.contains("Secure") && plain.contains("; HttpOnly; SameSite=Strict"), "{plain}");
    }
}
