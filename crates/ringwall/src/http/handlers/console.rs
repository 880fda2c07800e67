//! The console: a page that this binary carries, and that talks to the same routes as everybody.
//!
//! Its addresses are `/`, `/login` and whatever lies beneath `/console`, so that none is an address of the interface: a path
//! that nobody knows stays a 404 of its family. The page may load its own files and ask this server, and nothing else:
//! there is no script or style in the page itself, none from elsewhere, and nobody may put it into a frame.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::transport::body::Named;
use crate::http::transport::problem::Problem;

/// Every file of the page with its name; empty when it was not built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// For files whose name changes when they do.
pub(crate) const LASTING: &str = "public, max-age=31536000, immutable";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
     font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringwall</title><h1>Ringwall</h1>\
     <p>The server runs. This binary was built without its console: build it with <code>make build</code>, which needs Node \
     18.19 or newer and npm, or run <code>npm ci &amp;&amp; npm run build</code> in <code>web</code> before \
     <code>cargo build</code>.</p><p>The interface is at <code>/docs</code>.</p>";

#[utoipa::path(get, path = "/", tag = "console", responses((status = 200, description = "the console", content_type = "text/html", body = String)))]
pub(crate) async fn home() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/login", tag = "console", responses((status = 200, description = "the console's door", content_type = "text/html", body = String)))]
pub(crate) async fn login() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/console", tag = "console", responses((status = 200, description = "the console", content_type = "text/html", body = String)))]
pub(crate) async fn start() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/console/{path}", tag = "console", params(("path" = String, Path)),
    responses((status = 200, description = "a page of the console, which finds out itself which", content_type = "text/html", body = String)))]
pub(crate) async fn page() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/assets/{path}", tag = "console", params(("path" = String, Path)),
    responses((status = 200, description = "a file of the console", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn asset(Named(path): Named<String>) -> Result<Response, Problem> {
    let name = format!("assets/{path}");
    let bytes = find(&name).ok_or_else(|| Problem::not_found("the console has no such file"))?;
    Ok(answer(bytes, &[(header::CONTENT_TYPE, kind(&name)), (header::CACHE_CONTROL, LASTING)]))
}

/// The page, or what to do where this binary has none.
fn document(page: Option<&'static [u8]>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    answer(page.unwrap_or(MISSING.as_bytes()), &headers)
}

fn answer(bytes: &'static [u8], headers: &[(HeaderName, &'static str)]) -> Response {
    let mut response = bytes.into_response();
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn find(name: &str) -> Option<&'static [u8]> {
    FILES.iter().find(|(file, _)| *file == name).map(|(_, bytes)| *bytes)
}

/// What a browser is told that a file is; it is not to guess.
fn kind(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "woff2" => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text_of(response: Response) -> String {
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        assert!(!response.headers().contains_key(header::CACHE_CONTROL));
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("Ringwall"), "{text}");
        // The policy forbids both, so a page that had one would not work.
        for word in ["<style", " style=", "<script>", "onclick", "http://", "https://"] {
            assert!(!text.contains(word), "{word}");
        }
        text
    }

    #[tokio::test]
    async fn the_page_is_there_and_is_not_kept() {
        text_of(home().await).await;
    }

    #[tokio::test]
    async fn a_binary_without_the_page_says_what_is_missing() {
        let text = text_of(document(None)).await;
        for words in ["built without its console", "<code>make build</code>", "Node", "<code>/docs</code>"] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    /// Those of a page that was built are asked for in tests/console, where one has to be.
    #[tokio::test]
    async fn only_files_of_the_page_are_there() {
        for name in ["../index.html", "index.html", "x.js", ""] {
            assert!(asset(Named(name.to_owned())).await.is_err(), "{name}");
        }
        for (name, kind_of) in [("a-1.js", "text/javascript; charset=utf-8"), ("a.css", "text/css; charset=utf-8")] {
            assert_eq!(kind(name), kind_of);
        }
    }
}
