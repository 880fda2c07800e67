//! Asks the services that backends use: Docker's daemon and the external AIO service.
//!
//! Another program may own Docker's socket. Of its response the report contains at most the status and an
//! API version that consists of digits and dots.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::facts::{Aio, Daemon, Docker};
use super::probe;
use crate::message::Message;
use crate::server::config;
use crate::server::environment::Environment;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// Candidates; the first that exists is used.
    Local(Vec<PathBuf>),
    /// The scheme of an address that is not a local socket.
    NotLocal(String),
}

pub(crate) fn sockets_of_this_process() -> Sockets {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    sockets(variable("DOCKER_HOST"), variable("XDG_RUNTIME_DIR"))
}

/// `DOCKER_HOST`; otherwise the system's daemon, then the user's rootless one.
fn sockets(docker_host: Option<String>, runtime: Option<String>) -> Sockets {
    match docker_host {
        Some(address) => match address.strip_prefix("unix://") {
            Some(path) => Sockets::Local(vec![path.into()]),
            None => Sockets::NotLocal(address.split_once("://").map_or("strange", |(scheme, _)| scheme).to_owned()),
        },
        None => {
            let system = PathBuf::from("/var/run/docker.sock");
            let own = runtime.map(|directory| Path::new(&directory).join("docker.sock"));
            Sockets::Local(std::iter::once(system).chain(own).collect())
        }
    }
}

/// Checks whether a Docker daemon answers `GET /_ping` on its socket within 2 seconds.
pub(crate) async fn docker(sockets: &Sockets) -> Docker {
    let client = probe::on_path(&["docker"]);
    let daemon = match sockets {
        Sockets::NotLocal(scheme) => Daemon::NotLocal { scheme: scheme.clone() },
        Sockets::Local(paths) => match paths.iter().find(|path| rustix::fs::stat(path.as_path()).is_ok()) {
            None => Daemon::Absent,
            Some(path) => match tokio::time::timeout(TIMEOUT, connect_and_ping(path)).await {
                Ok(daemon) => daemon,
                Err(_) => Daemon::NoAnswer { socket: path.clone() },
            },
        },
    };
    Docker { client, daemon }
}

async fn connect_and_ping(path: &Path) -> Daemon {
    let socket = path.to_owned();
    match UnixStream::connect(path).await {
        Ok(stream) => ping(socket, stream).await,
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Daemon::NotListening { socket },
            ErrorKind::PermissionDenied => Daemon::Forbidden { socket },
            // The daemon accepts no connections and the socket's backlog is full.
            ErrorKind::WouldBlock => Daemon::NoAnswer { socket },
            _ => Daemon::NotDocker { socket, what: error.to_string() },
        },
    }
}

async fn ping(socket: PathBuf, stream: UnixStream) -> Daemon {
    let mut request = Request::new(Body::empty());
    *request.uri_mut() = Uri::from_static("/_ping");
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("docker"));
    let response = async {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender.send_request(request).await
    };
    match response.await {
        Ok(response) if response.status() == StatusCode::OK => {
            let is_version = |api: &&str| {
                !api.is_empty() && api.len() < 16 && api.chars().all(|character| matches!(character, '0'..='9' | '.'))
            };
            let api = response.headers().get("api-version").and_then(|api| api.to_str().ok()).filter(is_version);
            Daemon::Answers { socket, api: api.map(str::to_owned) }
        }
        Ok(response) => {
            Daemon::NotDocker { socket, what: format!("it answered with status {}", response.status().as_u16()) }
        }
        Err(error) if error.is_parse() => Daemon::NotDocker { socket, what: "it does not speak HTTP".to_owned() },
        Err(_) => Daemon::NotDocker { socket, what: "it closed the connection without an answer".to_owned() },
    }
}

/// Sends one request to the external AIO service that a server with this data directory and
/// environment would use, to check that it answers and accepts the configured key.
pub(crate) async fn aio(data: &Path) -> Aio {
    let configured = Environment::read().and_then(|environment| config::aio(data, &environment));
    let service = configured.and_then(|pinned| ringwall_service::aio_service(&pinned).map_err(Message::from));
    match service {
        Ok(None) => Aio::NotConfigured,
        Ok(Some(service)) => match service.info().await {
            Ok(info) => Aio::Answers { version: info.version },
            Err(error) => Aio::Unusable { why: error.to_string(), fix: error.hint().to_owned() },
        },
        Err(message) => Aio::Unusable {
            why: message.text().to_owned(),
            fix: "correct [aio] of ringwall.toml, or the variables RINGWALL_AIO_*".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[test]
    fn docker_host_overrides_the_default_sockets() {
        let local = |paths: &[&str]| Sockets::Local(paths.iter().map(PathBuf::from).collect());
        let table = [
            (Some("unix:///run/d.sock"), Some("/run/user/1"), local(&["/run/d.sock"])),
            (Some("tcp://10.0.0.1:2375"), None, Sockets::NotLocal("tcp".into())),
            (None, Some("/run/user/1"), local(&["/var/run/docker.sock", "/run/user/1/docker.sock"])),
            (None, None, local(&["/var/run/docker.sock"])),
        ];
        for (host, runtime, expected) in table {
            assert_eq!(sockets(host.map(str::to_owned), runtime.map(str::to_owned)), expected);
        }
    }

    #[tokio::test]
    async fn responses_to_ping_are_classified() {
        let socket = || PathBuf::from("/s");
        let answers = |api: Option<&str>| Daemon::Answers { socket: socket(), api: api.map(str::to_owned) };
        let strange = |what: &str| Daemon::NotDocker { socket: socket(), what: what.to_owned() };
        let table: [(&[u8], Daemon); 9] = [
            (b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nServer: Docker/24\r\n\r\nOK", answers(Some("1.43"))),
            (b"HTTP/1.0 200 OK\r\napi-version:1.41\r\n\r\nOK", answers(Some("1.41"))),
            (b"HTTP/1.1 200 OK\r\n\r\nOK", answers(None)),
            (b"HTTP/1.1 200 OK\r\nApi-Version: red\r\n\r\nOK", answers(None)),
            (b"HTTP/1.1 200 OK\r\nApi-Version: \x1b[31mred\r\n\r\nOK", strange("it does not speak HTTP")),
            (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", strange("it answered with status 500")),
            (b"HTTP/1.1 \x1b[31m", strange("it does not speak HTTP")),
            (b"SSH-2.0-OpenSSH\r\n", strange("it does not speak HTTP")),
            (b"", strange("it closed the connection without an answer")),
        ];
        for (bytes, expected) in table {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let speak = async {
                // The request is small enough to arrive in one read.
                theirs.read_buf(&mut Vec::with_capacity(1024)).await.unwrap();
                theirs.write_all(bytes).await.unwrap();
                drop(theirs);
            };
            let (daemon, ()) = tokio::join!(ping(socket(), ours), speak);
            assert_eq!(daemon, expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
