//! Talking to a server as any other client would: over HTTP, with a token, and with no power of its own.
//!
//! Plain HTTP only: a server elsewhere is reached through a tunnel or a proxy that ends TLS (docs/tls.md). Proxies named in
//! the environment are not used, so that a token for a loopback port cannot leave the machine.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

use crate::message::Message;

const CONNECTING: Duration = Duration::from_secs(10);
/// An answer of ours is far smaller; a longer one is somebody else's.
const LONGEST_ANSWER: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct ServerArguments {
    /// The server
    #[arg(long, value_name = "URL", env = "RINGWALL_URL", hide_env = true, default_value = "http://127.0.0.1:8003")]
    url: String,
    /// The token [default: the owner's, from the data directory]
    #[arg(long, value_name = "TOKEN", env = "RINGWALL_TOKEN", hide_env = true, hide_env_values = true)]
    token: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Client {
    agent: Agent,
    url: String,
    authorization: Option<String>,
}

impl Client {
    pub(crate) fn new(arguments: &ServerArguments, data: &Path) -> Result<Self, Message> {
        let url = arguments.url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") {
            return Err(Message::new(format!("--url {url}: only http:// is spoken here"))
                .with_hint("docs/tls.md shows how to reach a server behind TLS"));
        }
        // Without a token the server is asked all the same: it may be one that serves everyone.
        let token = arguments.token.clone().or_else(|| std::fs::read_to_string(data.join("owner.token")).ok());
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECTING))
            .build()
            .into();
        Ok(Client { agent, url, authorization: token.map(|token| format!("Bearer {}", token.trim())) })
    }

    /// The JSON that a request is answered with; what is no success becomes a message.
    pub(crate) fn json(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, Message> {
        let answer = self.send(method, path, headers, body)?;
        let text = read(answer)?;
        serde_json::from_str(&text).map_err(|_| Message::new(format!("{} did not answer with JSON", self.url)))
    }

    /// The bytes of an answer as they come.
    pub(crate) fn stream(&self, path: &str, headers: &[(&str, &str)]) -> Result<impl Read + use<>, Message> {
        Ok(self.send("GET", path, headers, None)?.into_body().into_reader())
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
        let answer = match body {
            Some(body) => {
                let request =
                    request.header("content-type", "application/json").body(body.to_string()).map_err(malformed)?;
                self.agent.run(request)
            }
            None => self.agent.run(request.body(()).map_err(malformed)?),
        };
        let answer = answer.map_err(|error| {
            Message::new(format!("could not reach {}: {error}", self.url))
                .with_hint("start a server with `ringwall serve`, or name one with --url")
        })?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        Err(refusal(status.as_u16(), &read(answer)?))
    }
}

fn read(answer: Response<Body>) -> Result<String, Message> {
    let mut text = String::new();
    answer
        .into_body()
        .into_reader()
        .take(LONGEST_ANSWER)
        .read_to_string(&mut text)
        .map_err(|error| Message::new(format!("the server's answer broke off: {error}")))?;
    Ok(text)
}

/// Both forms of the server's errors, as a message.
fn refusal(status: u16, body: &str) -> Message {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let error = body.get("detail").or_else(|| body.get("error")).unwrap_or(&Value::Null);
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let message = Message::new(match (text("code"), text("message")) {
        (Some(code), Some(message)) => format!("{message} ({code})"),
        _ => format!("the server answered with status {status}"),
    });
    match text("hint") {
        Some(hint) => message.with_hint(hint),
        None if status == 401 => message.with_hint("give a token with --token or RINGWALL_TOKEN"),
        None => message,
    }
}
