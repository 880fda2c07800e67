//! The same code over `POST /api/run` and the MCP tool `run_code` of one server, alternating.
//!
//! Both are one request on a kept connection, answered when the outcome is recorded.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::Error;
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::{Connection, Server};

const REVISION: &str = "2026-07-28";

#[derive(Debug)]
pub(crate) struct Interfaces {
    pub(crate) http: Samples,
    pub(crate) mcp: Samples,
}

pub(crate) fn measure(ringwall: &Path, rounds: usize) -> Result<Interfaces, Error> {
    let server = Server::start(ringwall, None)?;
    let mut connection = server.connect()?;
    // Warm boxes would serve only one of the two.
    connection.exchange(&server.request("PUT", "/settings", &json!({ "pool": { "min_instances": 0 } })))?;
    let code = json!({ "session_id": "bench", "language": "shell", "code": "echo 1" });
    let post = server.request("POST", "/api/run", &code);
    let call = server.call_tool(&json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "run_code", "arguments": code, "_meta": {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "0" },
        } },
    }));
    let mut interfaces = Interfaces { http: Samples::default(), mcp: Samples::default() };
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        interfaces.http.streak(|| printed(&mut connection, &post, "/stdout"))?;
        interfaces.mcp.streak(|| printed(&mut connection, &call, "/result/structuredContent/stdout"))?;
    }
    Ok(interfaces)
}

/// Sends a request. Its response must contain the output of the code.
fn printed(connection: &mut Connection, request: &[u8], place: &str) -> Result<Duration, Error> {
    let began = Instant::now();
    let answer = connection.exchange(request)?;
    let took = began.elapsed();
    match answer.pointer(place).and_then(Value::as_str) {
        Some("1\n") => Ok(took),
        _ => Err(Error::ExecEnded(answer.to_string())),
    }
}

impl Server {
    /// A tool call in the protocol revision without sessions.
    fn call_tool(&self, message: &Value) -> Vec<u8> {
        let name = message["params"]["name"].as_str().unwrap_or_default();
        let fields = format!(
            "\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: {REVISION}\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
        );
        let request = self.request("POST", "/mcp", message);
        String::from_utf8_lossy(&request).replacen("\r\n", &fields, 1).into_bytes()
    }
}
