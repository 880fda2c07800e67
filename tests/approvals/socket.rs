//! A WebSocket client.

use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use tungstenite::client::IntoClientRequest;
use tungstenite::handshake::HandshakeError;
use tungstenite::http::HeaderValue;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use crate::server::Server;

#[derive(Debug)]
pub struct Socket(pub WebSocket<TcpStream>);

impl Socket {
    pub fn open(server: &Server, path: &str, token: &str) -> Self {
        let authorization = format!("Bearer {token}");
        match Self::try_open(server, path, &[("authorization", &authorization)]) {
            Ok(socket) => socket,
            Err(status) => panic!("{path}: {status}"),
        }
    }

    /// Opens a socket with these headers. The error is the HTTP status of a rejected handshake.
    pub fn try_open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let mut request = format!("ws://{}{path}", server.address).into_client_request().unwrap();
        for (name, value) in headers {
            let name: tungstenite::http::HeaderName = name.parse().unwrap();
            request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        }
        // Tests send messages above the server's limit.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        match tungstenite::client::client_with_config(request, server.connect(), Some(config)) {
            Ok((socket, _)) => Ok(Self(socket)),
            Err(HandshakeError::Failure(Error::Http(response))) => Err(response.status().as_u16()),
            Err(error) => panic!("{path}: {error}"),
        }
    }

    /// The next message, or `None` after the server has closed the socket.
    pub fn read(&mut self) -> Option<Value> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(Error::ConnectionClosed | Error::Protocol(_)) => return None,
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn next(&mut self) -> Value {
        self.read().unwrap()
    }

    pub fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).unwrap();
    }

    /// Fails if a message arrives before the pong to a ping that is sent now.
    pub fn assert_silent(&mut self) {
        self.0.send(Message::Ping(Vec::new().into())).unwrap();
        loop {
            match self.0.read().unwrap() {
                Message::Pong(_) => return,
                // The server pings every 20 s.
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn set_timeout(&self, timeout: Duration) {
        self.0.get_ref().set_read_timeout(Some(timeout)).unwrap();
    }
}
