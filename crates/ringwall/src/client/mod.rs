//! An HTTP client of a server's API.
//!
//! HTTPS serves for a TLS proxy before the server (docs/tls.md); its roots come from the system store.
//! Proxies in environment variables are ignored, so that a token for a loopback port does not leave the
//! machine.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::{Agent, Body, SendBody};

use crate::message::{BAD_ANSWER, Message, UNREACHABLE};

pub(crate) mod event_stream;

/// All characters but the unreserved ones of RFC 3986.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Far above the size of the server's JSON responses.
const MAX_RESPONSE_BYTES: u64 = 64 << 20;
const TOKEN_HINT: &str = "give a token with --token or RINGWALL_TOKEN";

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// URL of the server
    #[arg(long, value_name = "URL", env = "RINGWALL_URL", hide_env = true, default_value = "http://127.0.0.1:8003")]
    url: String,
    /// Token [default: the owner's token in the data directory]
    #[arg(long, value_name = "TOKEN", env = "RINGWALL_TOKEN", hide_env = true, hide_env_values = true)]
    token: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn of(url: &str) -> Result<Self, Message> {
        match url.split_once("://") {
            Some(("http", _)) => Ok(Self::Http),
            Some(("https", _)) => Ok(Self::Https),
            Some(_) | None => Err(Message::new(format!("--url {url}: must begin with http:// or https://"))),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

/// A response whose body is read as it arrives.
pub(crate) struct Download {
    /// The body is a ZIP archive of a directory.
    pub(crate) is_archive: bool,
    pub(crate) length: Option<u64>,
    pub(crate) bytes: Box<dyn Read>,
}

impl Client {
    pub(crate) fn new(arguments: &ServerArguments, data: &Path) -> Result<Self, Message> {
        let url = arguments.url.trim_end_matches('/').to_owned();
        let scheme = Scheme::of(&url)?;
        // A server with `--no-auth` needs no token.
        let token = arguments.token.clone().or_else(|| owner_token(data));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_TIMEOUT));
        let config = match scheme {
            Scheme::Http => config,
            Scheme::Https => config.tls_config(ringwall_executor::trust()),
        };
        let agent = config.build().into();
        Ok(Client { agent, url, authorization: token.map(|token| format!("Bearer {}", token.trim())) })
    }

    /// Sends a request and returns the JSON of its response. An error response becomes a message.
    pub(crate) fn json(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, Message> {
        self.read_json(self.send(method, path, headers, body)?)
    }

    /// Sends a GET request and returns the body as a reader.
    pub(crate) fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Result<impl Read + use<>, Message> {
        Ok(self.send("GET", path, headers, None)?.into_body().into_reader())
    }

    /// Sends a GET request for a file or an archive.
    pub(crate) fn download(&self, path: &str) -> Result<Download, Message> {
        let response = self.send("GET", path, &[], None)?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let is_archive = header("content-type") == Some("application/zip");
        let length = header("content-length").and_then(|length| length.parse().ok());
        Ok(Download { is_archive, length, bytes: Box::new(response.into_body().into_reader()) })
    }

    /// Sends a POST request whose body is read while it is sent; `length` is the length of the body, if
    /// known.
    pub(crate) fn send_stream(
        &self,
        path: &str,
        kind: &str,
        length: Option<u64>,
        body: impl Read,
    ) -> Result<Value, Message> {
        let mut request = self.agent.post(format!("{}{path}", self.url));
        // A server that refuses the request answers before the body is sent. Otherwise it would close the
        // connection during the upload, and the answer could be lost.
        request = request.header("expect", "100-continue");
        request = request.header("content-type", kind);
        if let Some(length) = length {
            request = request.header("content-length", length.to_string());
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let mut body = BodyReader { body, failure: None };
        let response = request.send(SendBody::from_reader(&mut body));
        let response = match (response, body.failure) {
            (_, Some(failure)) => return Err(Message::io(failure)),
            (response, None) => self.accept(response)?,
        };
        self.read_json(response)
    }

    fn read_json(&self, response: Response<Body>) -> Result<Value, Message> {
        let text = read(response)?;
        let wrong = |_| Message::failed(BAD_ANSWER, format!("the response of {} is not JSON", self.url));
        serde_json::from_str(&text).map_err(wrong)
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response<Body>, Message> {
        let malformed = |error: ureq::http::Error| Message::new(format!("{}{path}: {error}", self.url));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let response = match body {
            Some(body) => {
                let request =
                    request.header("content-type", "application/json").body(body.to_string()).map_err(malformed)?;
                self.agent.run(request)
            }
            None => self.agent.run(request.body(()).map_err(malformed)?),
        };
        self.accept(response)
    }

    /// Returns a successful response; everything else becomes a message.
    fn accept(&self, response: Result<Response<Body>, ureq::Error>) -> Result<Response<Body>, Message> {
        let response = response.map_err(|error| {
            Message::failed(UNREACHABLE, format!("could not reach {}: {error}", self.url))
                .with_hint("start a server with `ringwall serve`, or set --url or RINGWALL_URL")
        })?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(error_message(status.as_u16(), &read(response)?))
    }
}

/// The owner's token of the server with this data directory.
pub(crate) fn owner_token(data: &Path) -> Option<String> {
    std::fs::read_to_string(data.join("owner.token")).ok().map(|text| text.trim().to_owned())
}

/// A request body that keeps its read error, so that it is not reported as an error of the connection.
struct BodyReader<R> {
    body: R,
    failure: Option<String>,
}

impl<R: Read> Read for BodyReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.body.read(buffer).inspect_err(|error| self.failure = Some(error.to_string()))
    }
}

fn read(response: Response<Body>) -> Result<String, Message> {
    let mut text = String::new();
    response.into_body().into_reader().take(MAX_RESPONSE_BYTES).read_to_string(&mut text).map_err(|error| {
        Message::failed(UNREACHABLE, format!("the connection broke during the server's response: {error}"))
    })?;
    Ok(text)
}

/// Converts the three JSON forms of the server's errors to a message.
fn error_message(status: u16, body: &str) -> Message {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    if let (Some("error"), Some(text)) = (body["status"].as_str(), body["data"].as_str()) {
        let message = Message::remote_without_code(status, default_code(status), text);
        return if status == 401 { message.with_hint(TOKEN_HINT) } else { message };
    }
    let error = body.get("detail").or_else(|| body.get("error")).unwrap_or(&Value::Null);
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let message = match (text("code"), text("message")) {
        (Some(code), Some(message)) => Message::remote(status, code, message),
        _ => Message::remote_without_code(
            status,
            default_code(status),
            format!("the server answered with status {status}"),
        ),
    };
    match text("hint") {
        Some(hint) => message.with_hint(hint),
        None if status == 401 => message.with_hint(TOKEN_HINT),
        None => message,
    }
}

/// The code for an error response without one.
const fn default_code(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "FORBIDDEN",
        404 => "NOT_FOUND",
        408 => "TIMEOUT",
        409 => "CONFLICT",
        413 => "BODY_TOO_LARGE",
        429 => "TOO_MANY_REQUESTS",
        500 => "RUNTIME_ERROR",
        501.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

/// Encodes a text as one segment of a path.
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(status: u16, body: &str) -> (Value, bool) {
        let message = error_message(status, body);
        (message.to_json()["error"].clone(), message.is_failure())
    }

    #[test]
    fn error_forms_keep_code_message_and_hint() {
        let (error, is_failure) =
            parsed(404, r#"{"error":{"code":"NOT_FOUND","message":"no exec e_1","hint":"list them"}}"#);
        let whole = serde_json::json!({ "code": "NOT_FOUND", "message": "no exec e_1", "hint": "list them" });
        assert_eq!((error, is_failure), (whole, false));
        let (error, _) = parsed(403, r#"{"detail":{"code":"POLICY_DENIED","message":"no"}}"#);
        assert_eq!((&error["code"], &error["message"]), (&"POLICY_DENIED".into(), &"no".into()));
        let (error, _) = parsed(401, r#"{"status":"error","data":"who?"}"#);
        assert_eq!((&error["code"], &error["hint"]), (&"UNAUTHENTICATED".into(), &TOKEN_HINT.into()));
        let (error, is_failure) = parsed(503, "<html>");
        assert_eq!((&error["code"], is_failure), (&"UNAVAILABLE".into(), true));
    }

    #[test]
    fn only_http_and_https_urls_are_accepted() {
        assert_eq!(Scheme::of("http://x").ok(), Some(Scheme::Http));
        assert_eq!(Scheme::of("https://x/y").ok(), Some(Scheme::Https));
        assert!(Scheme::of("ftp://x").is_err() && Scheme::of("x:8003").is_err());
    }
}
