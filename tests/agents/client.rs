//! HTTP client for the agent routes. Checks in every response what all have in common: the
//! envelope, a matching status, and no path of the host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::support::server::Server;
use ureq::Agent;
use ureq::http::Request;

/// Parts of paths in the data directory that no message may contain.
const PHYSICAL: [&str; 5] = ["workspaces/", "baselines/", ".staging", ".baseline/", "/proc/self"];
const BOUNDARY: &str = "the-boundary-of-these-parts";
const MAX_ANSWER_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    address: String,
    authorization: Option<String>,
    data: PathBuf,
}

/// A request body with its content type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body<'a> {
    None,
    Json(&'a Value),
    Text(&'a str),
    Other { kind: &'a str, bytes: &'a [u8] },
}

/// A response in the envelope.
#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) data: Value,
    about: String,
}

impl Client {
    pub(crate) fn of(server: &Server, token: &str) -> Self {
        Self::with(server, Some(format!("Bearer {token}")))
    }

    /// With this `authorization` header, or without one.
    pub(crate) fn with(server: &Server, authorization: Option<String>) -> Self {
        let config = Agent::config_builder().http_status_as_error(false).proxy(None);
        // Keeps connections open, because the tests send thousands of requests.
        let agent = config.timeout_global(Some(Duration::from_secs(400))).build().into();
        Self { agent, address: server.address.clone(), authorization, data: server.data().to_owned() }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn get(&self, path: &str) -> ApiResponse {
        self.ask("GET", path, Body::None)
    }

    pub(crate) fn delete(&self, path: &str) -> ApiResponse {
        self.ask("DELETE", path, Body::None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> ApiResponse {
        self.ask("POST", path, Body::Json(body))
    }

    pub(crate) fn put(&self, path: &str, text: &str) -> ApiResponse {
        self.ask("PUT", path, Body::Text(text))
    }

    /// Sends a form with one part named `file`.
    pub(crate) fn upload(&self, path: &str, file_name: &[u8], bytes: &[u8]) -> ApiResponse {
        self.send_form(path, &[&file_part(file_name, bytes)])
    }

    pub(crate) fn send_form(&self, path: &str, parts: &[&[u8]]) -> ApiResponse {
        let (kind, bytes) = form(parts);
        self.ask("POST", path, Body::Other { kind: &kind, bytes: &bytes })
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Body) -> ApiResponse {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Like [`Self::ask`], for a server that may be killed.
    pub(crate) fn try_ask(&self, method: &str, path: &str, body: Body) -> Result<ApiResponse, ureq::Error> {
        let (status, kind, bytes) = self.try_raw(method, path, body)?;
        let about = format!("{method} {path}: {status} {}", shorten(&bytes));
        assert!(kind.starts_with("application/json"), "{about}: {kind}");
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| panic!("no JSON: {about}"));
        let object = answer.as_object().unwrap_or_else(|| panic!("no object: {about}"));
        assert_eq!(object.len(), 2, "not an envelope of two members: {about}");
        assert_eq!(answer["status"], if status == 200 { "success" } else { "error" }, "{about}");
        if status != 200 {
            let message = answer["data"].as_str().unwrap_or_else(|| panic!("no message: {about}"));
            assert!(!message.is_empty(), "{about}");
            self.assert_no_physical_path(message, &about);
        }
        Ok(ApiResponse { status, data: answer["data"].clone(), about })
    }

    fn assert_no_physical_path(&self, message: &str, about: &str) {
        assert!(!message.contains(self.data.to_str().unwrap()), "a physical path: {about}");
        for word in PHYSICAL {
            assert!(!message.contains(word), "a physical path: {about}");
        }
    }

    /// Status, content type and body of any response.
    pub(crate) fn raw(&self, method: &str, path: &str) -> (u16, String, Vec<u8>) {
        self.try_raw(method, path, Body::None).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    fn try_raw(&self, method: &str, path: &str, body: Body) -> Result<(u16, String, Vec<u8>), ureq::Error> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        let (kind, bytes) = match body {
            Body::None => ("", Vec::new()),
            Body::Json(value) => ("application/json", value.to_string().into_bytes()),
            Body::Text(text) => ("text/plain; charset=utf-8", text.as_bytes().to_vec()),
            Body::Other { kind, bytes } => (kind, bytes.to_vec()),
        };
        let answer = if kind.is_empty() {
            self.agent.run(request.body(()).unwrap())?
        } else {
            self.agent.run(request.header("content-type", kind).body(bytes).unwrap())?
        };
        let (parts, body) = answer.into_parts();
        let kind = parts.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
        let bytes = body.into_with_config().limit(MAX_ANSWER_BYTES).read_to_vec()?;
        Ok((parts.status.as_u16(), kind.unwrap_or_default(), bytes))
    }
}

impl ApiResponse {
    pub(crate) fn success(self) -> Value {
        assert_eq!(self.status, 200, "{}", self.about);
        self.data
    }

    /// The message of an error with this status.
    pub(crate) fn expect_error(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.about);
        self.data.as_str().unwrap().to_owned()
    }

    /// The message of an error with one of these statuses.
    pub(crate) fn expect_error_of(self, statuses: &[u16]) -> String {
        assert!(statuses.contains(&self.status), "not one of {statuses:?}: {}", self.about);
        self.data.as_str().unwrap().to_owned()
    }
}

/// A part of a form named `file`.
pub(crate) fn file_part(file_name: &[u8], bytes: &[u8]) -> Vec<u8> {
    let head = b"Content-Disposition: form-data; name=\"file\"; filename=\"".as_slice();
    [head, file_name, b"\"\r\nContent-Type: application/octet-stream\r\n\r\n", bytes].concat()
}

/// A text part of a form.
pub(crate) fn text_part(name: &str, value: &str) -> Vec<u8> {
    format!("Content-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}").into_bytes()
}

/// Content type and body of a form with these parts.
pub(crate) fn form(parts: &[&[u8]]) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(format!("--{BOUNDARY}\r\n").as_bytes());
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), bytes)
}

/// Percent-encodes a query value or path segment.
pub(crate) fn encode(text: &str) -> String {
    encode_bytes(text.as_bytes())
}

pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(one).collect()
}

fn shorten(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned()
}
