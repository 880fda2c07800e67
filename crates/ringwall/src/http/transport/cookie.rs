//! The login cookie, and the check that a request with it comes from a page of this server (CSRF).
//!
//! A browser attaches the cookie to requests that other pages cause. Three measures together
//! replace a CSRF token:
//!
//! - `SameSite=Strict`: the browser sends it with no request that a page of another site causes.
//! - `Sec-Fetch-Site`, which scripts cannot set, must be `same-origin` or `none`. It excludes pages
//!   of the same site on another port of this host.
//! - Requests that change something or open a WebSocket need an `Origin` header. Browsers send it
//!   with all of these, and `gate` has rejected every foreign origin before.
//!
//! The cookie is `HttpOnly`, so no script reads it.

use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use ringwall_service::LOGIN_LASTS;

use super::problem::Problem;

const NAME: &str = "ringwall_session";

/// The value of the login cookie. Two cookies of that name count as none.
pub(crate) fn find(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut ours = pairs
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter_map(|(name, text)| (name == NAME).then_some(text));
    let (text, another) = (ours.next()?, ours.next());
    Some(text).filter(|text| another.is_none() && !text.is_empty())
}

/// Rejects a request that a page of another origin may have caused.
pub(crate) fn check(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let foreign = |message: &str| Err(Problem::new(StatusCode::FORBIDDEN, "FOREIGN_ORIGIN", message));
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return foreign("a login cookie is accepted only from this server's own pages");
    }
    let changes = !matches!(*method, Method::GET | Method::HEAD);
    if (changes || headers.contains_key(header::UPGRADE)) && !headers.contains_key(header::ORIGIN) {
        return foreign("a request that authenticates by cookie and changes something needs the header `Origin`");
    }
    Ok(())
}

/// The header that sets the cookie. It has `Secure` if the page was loaded over TLS (from a proxy),
/// as its `Origin` shows.
pub(crate) fn set(request: &Parts, text: &str) -> HeaderValue {
    let origin = request.headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
    let secure = if origin.starts_with(b"https://") { "; Secure" } else { "" };
    let seconds = LOGIN_LASTS.as_secs();
    write(&format!("{NAME}={text}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"))
}

/// The header that deletes the cookie.
pub(crate) fn clear() -> HeaderValue {
    write(&format!("{NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"))
}

/// Cannot fail: the value consists of a login's text and the attributes above, all visible ASCII.
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
    fn login_cookie_is_found_among_others() {
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
    fn request_of_foreign_page_is_rejected() {
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
    fn cookie_set_over_tls_is_secure() {
        let cookie = |origin: &str| {
            let (parts, ()) = Request::post("/").header("origin", origin).body(()).unwrap().into_parts();
            set(&parts, "x").to_str().unwrap().to_owned()
        };
        assert!(cookie("https://box.example").ends_with("; Secure"));
        let plain = cookie("http://localhost:8003");
        assert!(!plain.contains("Secure") && plain.contains("; HttpOnly; SameSite=Strict"), "{plain}");
    }
}
