//! The HTTP client of the bridge: one request per connection, over HTTP or over HTTPS.
//!
//! Dropping a response closes the connection, which cancels the request on the server.

use std::sync::Arc;

use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Request, Response, Uri, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::cli::client::Scheme;
use crate::cli::message::Message;

pub(super) struct RemoteServer {
    authority: Authority,
    /// The path of the URL, which precedes every route.
    prefix: String,
    host: HeaderValue,
    /// The TLS configuration, and the name that the server's certificate must have.
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("RemoteServer").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl RemoteServer {
    pub(super) fn new(url: &str) -> Result<Self, Message> {
        let scheme = Scheme::of(url)?;
        let wrong = || Message::new(format!("--url {url}: not an http:// or https:// address"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).cloned().ok_or_else(wrong)?;
        let tls = match scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let tls_config = ringwall_executor::trusting_client();
                let tls_config = tls_config.map_err(|error| Message::new(format!("could not set up TLS: {error}")))?;
                let bare = authority.host().trim_matches(['[', ']']).to_owned();
                Some((TlsConnector::from(Arc::new(tls_config)), ServerName::try_from(bare).map_err(|_| wrong())?))
            }
        };
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { authority, prefix, host, tls })
    }

    /// The URL without a trailing slash.
    pub(super) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.prefix)
    }

    /// Sends one request on a new connection, which ends with the response.
    pub(super) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, String> {
        let target = format!("{}{}", self.prefix, request.uri());
        *request.uri_mut() = target.parse().map_err(|_| format!("{target} is not a valid request target"))?;
        request.headers_mut().insert(header::HOST, self.host.clone());
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let bare = self.authority.host().trim_matches(['[', ']']);
        let stream = TcpStream::connect((bare, port)).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => exchange(stream, request).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
                exchange(stream, request).await
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<Response<Incoming>, String> {
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_keeps_its_scheme_and_prefix() {
        for url in ["http://127.0.0.1:8003", "https://ringwall.example.org", "https://[::1]:8003/behind/it"] {
            assert_eq!(RemoteServer::new(&format!("{url}/")).expect("an address").url(), url);
        }
        for wrong in ["ftp://x", "127.0.0.1:8003", "http://", "http:///x", "https://a b"] {
            assert!(RemoteServer::new(wrong).is_err(), "{wrong}");
        }
    }
}
