//! Serves the web console, which is built into the binary.
//!
//! Its pages are `/`, `/login` and everything beneath `/console`; an unknown path elsewhere stays a
//! 404 of the API. The content security policy lets a page load the console's own files and call
//! this server only: no inline script or style, nothing from other origins, no framing.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::http::transport::body::PathParam;
use crate::http::transport::problem::Problem;

/// Name and content of every file of the console; empty if the console was not built.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// `Cache-Control` of files whose names contain a hash of their content.
pub(crate) const IMMUTABLE: &str = "public, max-age=31536000, immutable";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:; \
     font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const MISSING: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringwall</title><h1>Ringwall</h1>\
     <p>The server runs. This binary was built without its console: build it with <code>make build</code>, which needs Node \
     18.19 or newer and npm, or run <code>npm ci &amp;&amp; npm run build</code> in <code>web</code> before \
     <code>cargo build</code>.</p><p>The API is described at <code>/docs</code>.</p>";

#[utoipa::path(get, path = "/", tag = "console", responses((status = 200, description = "The console", content_type = "text/html", body = String)))]
pub(crate) async fn home() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/login", tag = "console", responses((status = 200, description = "The console's login page", content_type = "text/html", body = String)))]
pub(crate) async fn login() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/console", tag = "console", responses((status = 200, description = "The console", content_type = "text/html", body = String)))]
pub(crate) async fn start() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/console/{path}", tag = "console", params(("path" = String, Path)),
    responses((status = 200, description = "A page of the console; its script routes by the path", content_type = "text/html", body = String)))]
pub(crate) async fn page() -> Response {
    document(find("index.html"))
}

#[utoipa::path(get, path = "/assets/{path}", tag = "console", params(("path" = String, Path)),
    responses((status = 200, description = "A file of the console", content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn asset(PathParam(path): PathParam<String>) -> Result<Response, Problem> {
    let name = format!("assets/{path}");
    let bytes = find(&name).ok_or_else(|| Problem::not_found("the console has no such file"))?;
    Ok(answer(bytes, &[(header::CONTENT_TYPE, kind(&name)), (header::CACHE_CONTROL, IMMUTABLE)]))
}

/// The console's page, or instructions if this binary was built without it.
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

/// The content type of a file. Responses have `nosniff`, so the browser does not guess one.
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
        // The content security policy forbids all of these.
        for forbidden in ["<style", " style=", "<script>", "onclick", "http://", "https://"] {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
        text
    }

    #[tokio::test]
    async fn page_is_served_without_caching() {
        text_of(home().await).await;
    }

    #[tokio::test]
    async fn binary_without_console_explains_how_to_build_it() {
        let text = text_of(document(None)).await;
        for text_part in ["built without its console", "<code>make build</code>", "Node", "<code>/docs</code>"] {
            assert!(text.contains(text_part), "{text_part}: {text}");
        }
    }

    /// tests/console requests the files of a built console.
    #[tokio::test]
    async fn unknown_asset_is_not_found() {
        for name in ["../index.html", "index.html", "x.js", ""] {
            assert!(asset(PathParam(name.to_owned())).await.is_err(), "{name}");
        }
        for (name, kind_of) in [("a-1.js", "text/javascript; charset=utf-8"), ("a.css", "text/css; charset=utf-8")] {
            assert_eq!(kind(name), kind_of);
        }
    }
}
