//! The API document: `/openapi.json` for programs, `/docs` as a page.
//!
//! Descriptions come from the handlers (utoipa), the role of each route from the route table. The
//! page loads nothing: no script, font or style sheet.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::routes::{Described, ROUTES, Route};
use crate::http::transport::access::Access;
use crate::http::transport::problem::{BROWSER_ROUTES, DETAIL_ROUTES, ENVELOPE_ROUTES, MESSAGE_ROUTES, is_within};

/// Built once: a request needs no token, and building the document takes about a millisecond.
static DOCUMENT: LazyLock<Value> = LazyLock::new(describe);
static TEXT: LazyLock<Bytes> = LazyLock::new(|| DOCUMENT.to_string().into());
static PAGE: LazyLock<Bytes> = LazyLock::new(|| write_page(&DOCUMENT).into());

#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, description = "This document", body = Object)))]
pub(crate) async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.clone())
}

#[utoipa::path(get, path = "/docs", tag = "server", responses((status = 200, description = "This document as an HTML page", content_type = "text/html", body = String)))]
pub(crate) async fn page() -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    ];
    (headers, PAGE.clone())
}

/// Builds the document and adds to each operation its error schema and the role that it needs.
fn describe() -> Value {
    let mut document = serde_json::to_value(Described::openapi()).unwrap_or_default();
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["components"]["schemas"]["ErrorDetail"] = wrapped("detail", &["code", "message"]);
    document["components"]["schemas"]["Error"] = wrapped("error", &["code", "message", "request_id"]);
    let text = |description: &str| json!({ "type": "string", "description": description });
    document["components"]["schemas"]["ErrorEnvelope"] = json!({
        "type": "object",
        "properties": { "status": text("`error`"), "data": text("The error message, with the hint after a semicolon") },
        "required": ["status", "data"],
    });
    document["components"]["schemas"]["ErrorMessage"] = json!({
        "type": "object",
        "properties": { "error": text("The error message, with the hint after a semicolon") },
        "required": ["error"],
    });
    for route in ROUTES {
        let path = route.path.replace("{*", "{");
        let method = route.method.as_str().to_ascii_lowercase();
        let Some(operation) = document["paths"].get_mut(&path).and_then(|path| path.get_mut(&method)) else { continue };
        // utoipa takes the operation id from the handler's name, which several families share.
        let (family, verb) = (operation["tags"][0].as_str(), operation["operationId"].as_str());
        let id = format!("{}_{}", family.unwrap_or_default(), verb.unwrap_or_default());
        operation["operationId"] = id.replace(' ', "_").into();
        // utoipa describes `Vec<u8>` as a list of numbers.
        let mut describe_bytes = |body: &mut Value| {
            if let Some(bytes) = body.pointer_mut("/content/application~1octet-stream") {
                *bytes = json!({ "schema": { "type": "string", "format": "binary" } });
            }
        };
        operation.get_mut("requestBody").into_iter().for_each(&mut describe_bytes);
        operation["responses"].as_object_mut().into_iter().flat_map(Map::values_mut).for_each(describe_bytes);
        let form = if is_within(route.path, DETAIL_ROUTES) {
            "ErrorDetail"
        } else if is_within(route.path, ENVELOPE_ROUTES) {
            "ErrorEnvelope"
        } else if is_within(route.path, BROWSER_ROUTES) {
            "BrowserAnswer"
        } else if is_within(route.path, MESSAGE_ROUTES) {
            "ErrorMessage"
        } else {
            "Error"
        };
        operation["responses"]["default"] = json!({
            "description": "Error",
            "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{form}") } } },
        });
        operation["x-access"] = route.access.name().into();
        operation["security"] = match route.access {
            Access::Open => json!([]),
            Access::Agent | Access::User | Access::Operator | Access::Owner => json!([{ "token": [] }]),
        };
    }
    document
}

/// The operation of a route in the document.
fn operation(route: &Route) -> &'static Value {
    &DOCUMENT["paths"][route.path.replace("{*", "{")][route.method.as_str().to_ascii_lowercase()]
}

pub(crate) fn takes_body(route: &Route) -> bool {
    operation(route).get("requestBody").is_some()
}

/// The names of a route's query parameters.
pub(crate) fn query_names(route: &Route) -> Vec<String> {
    let parameters = operation(route)["parameters"].as_array().into_iter().flatten();
    let names = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| &parameter["name"]);
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The schema of an error object under `key`, with an optional `hint`.
fn wrapped(key: &str, always: &[&str]) -> Value {
    let texts: Map<String, Value> =
        always.iter().chain(&["hint"]).map(|name| (name.to_string(), json!({ "type": "string" }))).collect();
    let inner = json!({ "type": "object", "properties": texts, "required": always });
    json!({ "type": "object", "properties": { key: inner }, "required": [key] })
}

fn write_page(document: &Value) -> String {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Ringwall</title><style>\
         body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
         code{font:14px ui-monospace,monospace}h2{margin-top:2rem;border-top:1px solid #8884;padding-top:1rem}\
         li{margin:.2rem 0}</style><h1>Ringwall</h1><p>Machine-readable: <code>/openapi.json</code>. Every route whose \
         role is not <code>open</code> needs <code>Authorization: Bearer &lt;token&gt;</code>.</p>",
    );
    let nothing = Map::new();
    for (path, methods) in document["paths"].as_object().unwrap_or(&nothing) {
        for (method, operation) in methods.as_object().unwrap_or(&nothing) {
            let _ = write!(page, "<h2><code>{} {}</code></h2>", method.to_ascii_uppercase(), escape(path));
            let _ = write!(page, "<p>Role: {}</p><ul>", escape(operation["x-access"].as_str().unwrap_or_default()));
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let text = |name: &str| escape(parameter[name].as_str().unwrap_or_default());
                let _ = write!(page, "<li><code>{}</code> ({}) {}</li>", text("name"), text("in"), text("description"));
            }
            for (status, response) in operation["responses"].as_object().unwrap_or(&nothing) {
                let description = escape(response["description"].as_str().unwrap_or_default());
                let _ = write!(page, "<li>{}: {description}</li>", escape(status));
            }
            page.push_str("</ul>");
        }
    }
    page.push_str("<h2>Schemas</h2>");
    for (name, form) in document["components"]["schemas"].as_object().unwrap_or(&nothing) {
        let _ = write!(page, "<h3>{}</h3><ul>", escape(name));
        for (key, property) in form["properties"].as_object().unwrap_or(&nothing) {
            let description = property["description"].as_str().unwrap_or_default();
            let _ = write!(page, "<li><code>{}</code> {}</li>", escape(key), escape(description));
        }
        page.push_str("</ul>");
    }
    page
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn document_describes_exactly_the_routes() {
        let document = describe();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
            })
            .collect();
        let routed: BTreeSet<(String, String)> = ROUTES
            .iter()
            .map(|route| (route.method.as_str().to_ascii_lowercase(), route.path.replace("{*", "{")))
            .collect();
        assert_eq!(described, routed);
        assert_eq!(routed.len(), ROUTES.len());
    }

    /// Generators of clients turn these ids into names of functions.
    #[test]
    fn operation_ids_are_unique_identifiers() {
        let ids: BTreeSet<&str> =
            ROUTES.iter().map(|route| operation(route)["operationId"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), ROUTES.len(), "{ids:?}");
        let form = regex::Regex::new("^[a-z][a-z0-9_]*$").unwrap();
        assert_eq!(ids.into_iter().find(|id| !form.is_match(id)), None);
    }

    /// `RINGWALL_WRITE_DOCS=1 cargo test -p ringwall openapi` updates the file.
    #[test]
    fn published_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let current = format!("{}\n", serde_json::to_string_pretty(&describe()).unwrap());
        if std::env::var_os("RINGWALL_WRITE_DOCS").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == current, "docs/openapi.json is out of date; write it with RINGWALL_WRITE_DOCS=1");
    }

    /// `/openapi.json` itself is exempt: its schema is the OpenAPI specification's.
    #[test]
    fn every_json_response_has_a_named_schema() {
        let document = describe();
        let mut count = 0;
        for route in ROUTES.iter().filter(|route| route.path != "/openapi.json") {
            let operation =
                &document["paths"][route.path.replace("{*", "{")][route.method.as_str().to_ascii_lowercase()];
            for (status, response) in operation["responses"].as_object().unwrap() {
                let Some(answer) = response.pointer("/content/application~1json/schema") else { continue };
                let form = answer.get("$ref").or_else(|| answer.pointer("/items/$ref")).and_then(Value::as_str);
                let name = form.and_then(|form| form.strip_prefix("#/components/schemas/")).unwrap_or_default();
                assert!(document["components"]["schemas"].get(name).is_some(), "{} {status}: {answer}", route.path);
                count += usize::from(status != "default");
            }
        }
        assert!(count >= 19, "{count}");
    }

    #[test]
    fn page_loads_nothing() {
        let page = write_page(&describe());
        assert!(page.contains("POST /sandbox/execs"));
        for forbidden in ["<script", "src=", "href=", "http://", "https://", "@import", "url("] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
    }
}
