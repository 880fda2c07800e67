//! A stand-in for an external AIO service (`aio_service.py`) with its own directory. It runs code in boxes of the binary
//! under test, and is stopped when dropped.

#![expect(clippy::unwrap_used, reason = "a failed assumption is a failed test")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use super::boxed::binary;
use super::payload::PYTHON;

/// Its configuration.
pub const KEY: &str = "a-key-that-nobody-prints";

#[derive(Debug)]
pub struct AioStandIn {
    process: Child,
    pub url: String,
    directory: TempDir,
}

impl AioStandIn {
    pub fn start() -> Self {
        let directory = TempDir::with_prefix("rw-aio-").unwrap();
        let mut process = Command::new(PYTHON)
            .arg("-B")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("support/aio_service.py"))
            .args([binary().unwrap().as_os_str(), directory.path().as_os_str(), KEY.as_ref()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { process, url: url.trim().to_owned(), directory }
    }

    /// The workspace path in its boxes.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// All received requests in order, with `method`, `path`, `headers` and `body`.
    pub fn requests(&self) -> Vec<Value> {
        let mut answer = ureq::get(format!("{}/stand-in/requests", self.url)).call().unwrap();
        serde_json::from_reader(answer.body_mut().as_reader()).unwrap()
    }

    /// Makes a route fail; `aio_service.py` defines the kinds of failure.
    pub fn spoil(&self, fault: &Value) {
        ureq::post(format!("{}/stand-in/fault", self.url)).send(fault.to_string()).unwrap();
    }

    /// The environment of a server that uses this service for one workspace.
    pub fn environment(&self, user: &'static str, agent: &'static str) -> [(&'static str, String); 4] {
        [
            ("RINGWALL_AIO_URL", self.url.clone()),
            ("RINGWALL_AIO_KEY", KEY.to_owned()),
            ("RINGWALL_AIO_USER", user.to_owned()),
            ("RINGWALL_AIO_AGENT", agent.to_owned()),
        ]
    }
}

impl Drop for AioStandIn {
    fn drop(&mut self) {
        // At the end of its input it ends its boxes, then itself.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
