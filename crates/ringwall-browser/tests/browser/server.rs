//! A minimal HTTP server on loopback: one request per connection, and some malformed answers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::pages;

/// Above the maximum size of a download.
const HUGE: usize = 80 << 20;

pub struct Server {
    address: SocketAddr,
    bodies: Arc<Mutex<HashMap<String, String>>>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = Arc::new(Mutex::new(HashMap::new()));
        let shared = Arc::clone(&bodies);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Self { address, bodies }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The same server under another host name, so that Chromium treats it as another site.
    pub fn foreign(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.address.port())
    }

    /// Serves a new page and returns its path.
    pub fn serve(&self, body: &str) -> String {
        let mut bodies = self.bodies.lock().unwrap();
        let path = format!("/made/{}", bodies.len());
        bodies.insert(path.clone(), body.to_owned());
        path
    }
}

/// `None` if the client disconnects early.
async fn answer(mut stream: TcpStream, bodies: Arc<Mutex<HashMap<String, String>>>) -> Option<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let target = request.split(' ').nth(1)?.to_owned();
    let path = target.split('?').next()?;
    let made = bodies.lock().unwrap().get(path).cloned();
    let (status, headers, body) = match (path, made) {
        (_, Some(body)) => ("200 OK", "", body),
        // Sends nothing until the client disconnects.
        ("/never", None) => {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.ok()?;
            return None;
        }
        ("/half", None) => {
            let half = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 1000000\r\n\r\n<title>Half</title><p>the first half";
            stream.write_all(half.as_bytes()).await.ok()?;
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.ok()?;
            return None;
        }
        ("/endless" | "/huge", None) => {
            let kind = "content-type: application/octet-stream\r\ncontent-disposition: attachment; filename=x.bin";
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{kind}\r\n\r\n").as_bytes()).await.ok()?;
            let more = if path == "/huge" { HUGE } else { 1 };
            let portion = vec![0; more.min(1 << 20)];
            for _ in 0..more.div_ceil(portion.len()) {
                stream.write_all(&portion).await.ok()?;
            }
            let mut rest = Vec::new();
            if path == "/endless" {
                stream.read_to_end(&mut rest).await.ok()?;
            }
            return None;
        }
        (_, None) => pages::page(&target)?,
    };
    let kind = if headers.contains("content-type") { "" } else { "content-type: text/html; charset=utf-8\r\n" };
    let head =
        format!("HTTP/1.1 {status}\r\n{kind}{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()
}
